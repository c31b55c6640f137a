package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(stage.Run(m, &pool, main)) }

// TestEachPodHasAGhost with the rights of the manifests and no others.
func TestEachPodHasAGhost(t *testing.T) {
	w := newWorld(t)
	p := w.run()

	t.Run("a Pod has a ghost", func(t *testing.T) {
		w.create(t, w.live, "default", "nginx")
		ghost := w.haunts(t, "live", "default", "nginx")
		if n := len(w.all(t)); n != 1 {
			t.Errorf("there are %d PodGhosts, want 1", n)
		}
		pod := w.pod(t, w.live, "default", "nginx")
		want := PodGhostSpec{Cluster: "live", Namespace: "default", Name: "nginx", UID: pod.UID}
		if diff := cmp.Diff(want, ghost.Spec); diff != "" {
			t.Errorf("the PodGhost is of (-want, +got):\n%s", diff)
		}
		owner, _ := mcowner.ControllerOf(ghost, mcreconcile.LocalCluster)
		if got := fmt.Sprintln(owner.Cluster, owner.APIVersion, owner.Kind, owner.NamespacedName(), owner.UID); got != fmt.Sprintln("live v1 Pod default/nginx", pod.UID) {
			t.Errorf("the reference is to %s", got)
		}
	})
	t.Run("a ghost that is deleted by hand is created anew, one that is changed is changed back", func(t *testing.T) {
		before := w.haunts(t, "live", "default", "nginx")
		w.mustDelete(t, w.ghost, before)
		stage.Eventually(t, "there is another PodGhost", func() bool {
			ghost := w.get(t, "live", "default", "nginx")
			return ghost != nil && ghost.UID != before.UID
		})
		changed := w.haunts(t, "live", "default", "nginx")
		patch := client.MergeFrom(changed.DeepCopyObject().(client.Object))
		changed.Spec.UID = "changed"
		if err := w.ghost.Client().Patch(t.Context(), changed, patch); err != nil {
			t.Fatal(err)
		}
		stage.Eventually(t, "the PodGhost is as it was", func() bool {
			ghost := w.get(t, "live", "default", "nginx")
			return ghost != nil && ghost.Spec == before.Spec
		})
	})
	t.Run("names do not collide", func(t *testing.T) {
		w.create(t, w.live, "foo-bar", "baz")
		w.create(t, w.live, "foo", "bar-baz")
		w.create(t, w.live2, "default", "nginx")
		w.haunts(t, "live", "foo-bar", "baz")
		w.haunts(t, "live", "foo", "bar-baz")
		w.haunts(t, "live2", "default", "nginx")
		if n := len(w.all(t)); n != 4 {
			t.Errorf("there are %d PodGhosts, want 4", n)
		}
	})
	t.Run("somebody else's ghost is left alone", func(t *testing.T) { w.leavesForeign(t) })
	t.Run("a Pod goes while the program does not run", func(t *testing.T) {
		p.Stop()
		w.delete(t, w.live, "default", "nginx")
		w.delete(t, w.live2, "default", "nginx")
		w.create(t, w.live2, "default", "nginx")
		p = w.run()
		w.isGone(t, "default", "nginx")
		uid := w.pod(t, w.live2, "default", "nginx").UID
		stage.Eventually(t, "the ghost of a Pod that was created anew is that of the new one", func() bool {
			ghost := w.get(t, "live2", "default", "nginx")
			return ghost != nil && ghost.Spec.UID == uid
		})
		w.stay(t, "live foo bar-baz", "live foo-bar baz", "live2 default nginx")
	})
	t.Run("a Pod goes while nothing is watched", func(t *testing.T) {
		w.live.Stop(t)
		p.Writes("Health changed", "cluster=live", "Unreachable")
		p.Freeze() // so that it cannot watch before the Pod is gone
		w.live.Restart(t)
		w.delete(t, w.live, "foo", "bar-baz")
		p.Thaw()
		w.isGone(t, "foo", "bar-baz")
		w.stay(t, "live foo-bar baz", "live2 default nginx")
	})
	t.Run("a Pod goes while its cluster is not in the fleet", func(t *testing.T) {
		w.mustDelete(t, w.ghost, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "live"}})
		p.Writes("Disengaged", "cluster=live ")
		w.delete(t, w.live, "foo-bar", "baz")
		stage.Join(t, w.ghost, "live", w.accounts[1].Kubeconfig(t), nil)
		w.isGone(t, "foo-bar", "baz")
		w.stay(t, "live2 default nginx")
	})
	t.Run("every right of the manifests is needed", func(t *testing.T) {
		stage.Join(t, w.ghost, "broken", []byte("this is no kubeconfig"), nil) // an event says so
		for _, account := range w.accounts {
			account.NeedsAll(t)
		}
	})
}

// TestAnotherClusterOfTheNameTakesNoGhost: the credentials of a member lead to another cluster.
func TestAnotherClusterOfTheNameTakesNoGhost(t *testing.T) {
	w := newWorld(t)
	w.mustDelete(t, w.ghost, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "live2"}})
	w.create(t, w.live, "default", "both")
	w.create(t, w.live, "default", "one")
	w.create(t, w.live2, "default", "both")
	w.run()
	both, one := w.haunts(t, "live", "default", "both"), w.haunts(t, "live", "default", "one")
	w.mustDelete(t, w.ghost, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "live"}})
	stage.Join(t, w.ghost, "live", w.live2.Kubeconfig(), nil)
	stage.Eventually(t, "a Warning event on the Pod names the conflict", func() bool {
		return w.hasWarning(t, w.live2, "both", "Conflict", "mend them")
	})
	w.delete(t, w.live2, "default", "both")
	patch := client.MergeFrom(one.DeepCopyObject().(client.Object))
	one.Labels["an"] = "event"
	if err := w.ghost.Client().Patch(t.Context(), one, patch); err != nil {
		t.Fatal(err)
	}
	w.create(t, w.live2, "default", "next")
	w.haunts(t, "live", "default", "next") // so the events before it were handled
	for _, before := range []*PodGhost{both, one} {
		if now := w.get(t, "live", before.Spec.Namespace, before.Spec.Name); now == nil || now.UID != before.UID || now.Spec != before.Spec {
			t.Errorf("the ghost of %s was replaced: %+v", before.Spec.Name, now)
		}
	}
}

// world is a cluster with ghosts, in which the program runs, and two with Pods.
type world struct {
	ghost, live, live2 *mctest.ControlPlane
	accounts           []*stage.Account // in ghost and in live
	runIn              *testing.T
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	f := pool.Start(t, mctest.Options{Clusters: 2, Scheme: scheme})
	w := &world{ghost: f.Local, live: f.Members[0], live2: f.Members[1], runIn: t}
	stage.ApplyCRD(t, w.ghost, "crd.yaml")
	w.accounts = []*stage.Account{
		stage.NewAccount(t, w.ghost, "rbac/controller.yaml"),
		stage.NewAccount(t, w.live, "rbac/source.yaml"),
	}
	stage.Join(t, w.ghost, "live", w.accounts[1].Kubeconfig(t), nil)
	stage.Join(t, w.ghost, "live2", stage.NewAccount(t, w.live2, "rbac/source.yaml").Kubeconfig(t), nil)
	for _, name := range []string{"foo", "foo-bar"} {
		if err := w.live.Client().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) run() *stage.Program {
	return stage.Start(w.runIn, "--kubeconfig", w.accounts[0].File(w.runIn), "--metrics", "0", "--sweep", "1s")
}

// leavesForeign is step 4: somebody else has an object where the ghost of a Pod is to be.
func (w *world) leavesForeign(t *testing.T) {
	t.Helper()
	foreign := &PodGhost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: mcowner.UniqueName(63, "live", "default", "taken")},
		Spec:       PodGhostSpec{Cluster: "live", Namespace: "default", Name: "taken", UID: "1"},
	}
	if err := w.ghost.Client().Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	w.create(t, w.live, "default", "taken")
	stage.Eventually(t, "a Warning event on the Pod names the conflict", func() bool {
		return w.hasWarning(t, w.live, "taken", "Conflict", foreign.Name)
	})
	w.delete(t, w.live, "default", "taken")
	w.create(t, w.live, "default", "next")
	w.haunts(t, "live", "default", "next") // so the event before it was handled
	w.delete(t, w.live, "default", "next")
	w.isGone(t, "default", "next")
	now := &PodGhost{}
	if err := w.ghost.Client().Get(t.Context(), client.ObjectKeyFromObject(foreign), now); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(foreign.ResourceVersion, now.ResourceVersion); diff != "" {
		t.Errorf("the foreign PodGhost was changed: %+v", now)
	}
	w.mustDelete(t, w.ghost, now)
}

func (w *world) hasWarning(t *testing.T, cp *mctest.ControlPlane, about, reason, text string) bool {
	t.Helper()
	list := &eventsv1.EventList{}
	if err := cp.Client().List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Type == corev1.EventTypeWarning && e.Regarding.Kind == "Pod" && e.Regarding.Name == about && e.Reason == reason && strings.Contains(e.Note, text) {
			return true
		}
	}
	return false
}

func (w *world) create(t *testing.T, cp *mctest.ControlPlane, namespace, name string) {
	t.Helper()
	err := cp.Client().Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) pod(t *testing.T, cp *mctest.ControlPlane, namespace, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := cp.Client().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// delete deletes a Pod at once, by force.
func (w *world) delete(t *testing.T, cp *mctest.ControlPlane, namespace, name string) {
	t.Helper()
	w.mustDelete(t, cp, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, client.GracePeriodSeconds(0))
}

func (w *world) mustDelete(t *testing.T, cp *mctest.ControlPlane, obj client.Object, opts ...client.DeleteOption) {
	t.Helper()
	if err := cp.Client().Delete(t.Context(), obj, opts...); err != nil {
		t.Fatal(err)
	}
}

// haunts waits until a Pod has a ghost.
func (w *world) haunts(t *testing.T, cluster, namespace, name string) (ghost *PodGhost) {
	t.Helper()
	stage.Eventually(t, fmt.Sprintf("Pod %s/%s of %s has a ghost", namespace, name, cluster), func() bool {
		ghost = w.get(t, cluster, namespace, name)
		return ghost != nil
	})
	return ghost
}

// isGone waits until a Pod of live has no ghost.
func (w *world) isGone(t *testing.T, namespace, name string) {
	t.Helper()
	stage.Eventually(t, fmt.Sprintf("the ghost of %s/%s of live is gone", namespace, name), func() bool {
		return w.get(t, "live", namespace, name) == nil
	})
}

// stay checks that exactly these ghosts are left, ordered.
func (w *world) stay(t *testing.T, want ...string) {
	t.Helper()
	ghosts := w.all(t)
	got := make([]string, 0, len(ghosts))
	for _, ghost := range ghosts {
		got = append(got, strings.Join([]string{ghost.Spec.Cluster, ghost.Spec.Namespace, ghost.Spec.Name}, " "))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the PodGhosts are of (-want, +got):\n%s", diff)
	}
}

// get returns the ghost of a Pod, nil if it has none.
func (w *world) get(t *testing.T, cluster, namespace, name string) *PodGhost {
	t.Helper()
	ghost := &PodGhost{}
	key := client.ObjectKey{Namespace: "default", Name: mcowner.UniqueName(63, cluster, namespace, name)}
	err := w.ghost.Client().Get(t.Context(), key, ghost)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return ghost
}

// all returns all ghosts.
func (w *world) all(t *testing.T) []PodGhost {
	t.Helper()
	list := &PodGhostList{}
	if err := w.ghost.Client().List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}
