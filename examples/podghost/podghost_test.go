package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

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

// TestEachPodHasAGhost (AS-2), and nothing is swept here: whatever happens to a Pod, an event tells of it.
func TestEachPodHasAGhost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.run("--sweep", "0")

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
		owner, _ := mcowner.ControllerOf(ghost, mcowner.ByName(mcreconcile.LocalCluster))
		if got := fmt.Sprintln(owner.Cluster, owner.APIVersion, owner.Kind, owner.NamespacedName(), owner.UID); got != fmt.Sprintln("live v1 Pod default/nginx", pod.UID) {
			t.Errorf("the reference is to %s", got)
		}
	})
	t.Run("a ghost that is deleted by hand is created anew", func(t *testing.T) {
		before := w.haunts(t, "live", "default", "nginx")
		w.mustDelete(t, w.ghost, before)
		stage.Soon(t, "there is another PodGhost", func() bool {
			ghost := w.get(t, "live", "default", "nginx")
			return ghost != nil && ghost.UID != before.UID
		})
	})
	t.Run("a ghost that names a Pod of the ghosts' cluster leads to no request for Pods there", func(t *testing.T) {
		forged := &PodGhost{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "forged"},
			Spec:       PodGhostSpec{Cluster: "live", Namespace: "default", Name: "forged", UID: "1"},
		}
		of := mcowner.Reference{Fleet: fleetName, APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "forged", UID: "1"}
		if err := mcowner.SetControllerReference(of, forged, mcowner.ByName(mcreconcile.LocalCluster)); err != nil {
			t.Fatal(err)
		}
		if err := w.ghost.Client().Create(t.Context(), forged); err != nil {
			t.Fatal(err)
		}
		before := w.haunts(t, "live", "default", "nginx")
		w.mustDelete(t, w.ghost, before)
		stage.Soon(t, "the event after that was handled", func() bool {
			ghost := w.get(t, "live", "default", "nginx")
			return ghost != nil && ghost.UID != before.UID
		})
		w.mustDelete(t, w.ghost, forged) // the account has no right to read Pods, and tells when the test ends if it has asked for one
	})
	t.Run("a ghost that has the name of another one's cluster is left alone", func(t *testing.T) {
		w.create(t, w.live, "default", "forged")
		ghost := w.haunts(t, "live", "default", "forged")
		forged := &PodGhost{Spec: ghost.Spec}
		forged.Namespace, forged.Name, forged.Labels, forged.Annotations = ghost.Namespace, ghost.Name, ghost.Labels, ghost.Annotations
		forged.Spec.Cluster = "live2"
		p.Freeze() // so that it makes no other one
		w.mustDelete(t, w.ghost, ghost)
		if err := w.ghost.Client().Create(t.Context(), forged); err != nil {
			t.Fatal(err)
		}
		p.Thaw()
		stage.Soon(t, "a Warning event on the Pod names the conflict", func() bool {
			return w.hasWarning(t, w.live, "forged", "Conflict", forged.Name)
		})
		w.mustDelete(t, w.ghost, forged)
		w.delete(t, w.live, "default", "forged")
		w.isGone(t, "default", "forged")
	})
	t.Run("names do not collide", func(t *testing.T) {
		w.create(t, w.live, "foo-bar", "baz")
		w.create(t, w.live, "foo", "bar-baz")
		w.create(t, w.live2, "default", "nginx")
		w.haunts(t, "live", "foo-bar", "baz")
		w.haunts(t, "live", "foo", "bar-baz")
		w.haunts(t, "live2", "default", "nginx")
		if n, ofLive := len(w.all(t)), len(w.all(t, client.MatchingFields{"spec.cluster": "live"})); n != 4 || ofLive != 3 {
			t.Errorf("there are %d PodGhosts, %d of them of live, want 4 and 3", n, ofLive)
		}
	})
	t.Run("a Pod goes while the program does not run", func(t *testing.T) {
		p.Stop()
		w.delete(t, w.live, "default", "nginx")
		w.delete(t, w.live2, "default", "nginx")
		w.create(t, w.live2, "default", "nginx")
		p = w.run("--sweep", "0")
		w.isGone(t, "default", "nginx")
		uid := w.pod(t, w.live2, "default", "nginx").UID
		stage.Soon(t, "the ghost of a Pod that was created anew is that of the new one", func() bool {
			ghost := w.get(t, "live2", "default", "nginx")
			return ghost != nil && ghost.Spec.UID == uid
		})
	})
	t.Run("a Pod goes while the program does not run, and its cluster is reported late", func(t *testing.T) {
		w.create(t, w.live, "default", "late")
		w.haunts(t, "live", "default", "late")
		p.Stop()
		w.delete(t, w.live, "default", "late")
		w.mustDelete(t, w.ghost, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "live"}})
		p = w.run("--sweep", "0")
		w.create(t, w.live2, "default", "next")
		w.haunts(t, "live2", "default", "next") // so what there was of ghosts at the start was handled
		w.delete(t, w.live2, "default", "next")
		stage.Join(t, w.ghost, "live", w.accounts[1].Kubeconfig(t), nil)
		w.isGone(t, "default", "late")
		w.isGone(t, "default", "next")
	})
	t.Run("meanwhile", func(t *testing.T) {
		t.Run("the other ghosts stay", func(t *testing.T) {
			t.Parallel()
			w.stay(t, 15*time.Second, w.haunts(t, "live", "foo-bar", "baz"), w.haunts(t, "live2", "default", "nginx"))
		})
		t.Run("a Pod goes while nothing is watched", func(t *testing.T) {
			t.Parallel()
			w.live.Stop(t)
			w.stay(t, 30*time.Second, w.haunts(t, "live", "foo", "bar-baz"), w.haunts(t, "live", "foo-bar", "baz"))
			p.Freeze() // so that it cannot watch before the Pod is gone
			w.live.Restart(t)
			w.delete(t, w.live, "foo", "bar-baz")
			p.Thaw()
			w.isGone(t, "foo", "bar-baz")
		})
	})
	w.are(t, "live foo-bar baz", "live2 default nginx")
}

// TestGhostsOfPodsThatWentUnseenAreSwept as often as by default, with every right of the manifests. Meanwhile the program
// leaves alone what is somebody else's (AS-2).
func TestGhostsOfPodsThatWentUnseenAreSwept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.run("--verbosity", "5")
	t.Run("a ghost that is changed is changed back", func(t *testing.T) {
		w.create(t, w.live, "default", "changed")
		before := w.haunts(t, "live", "default", "changed")
		w.change(t, before, func(ghost *PodGhost) { ghost.Spec.UID = "changed" })
		stage.Soon(t, "the PodGhost is as it was", func() bool {
			ghost := w.get(t, "live", "default", "changed")
			return ghost != nil && ghost.Spec == before.Spec
		})
		w.delete(t, w.live, "default", "changed")
		w.isGone(t, "default", "changed")
	})
	t.Run("somebody else's ghost is left alone", func(t *testing.T) {
		for _, namespace := range []string{"default", "foo"} { // the events need the right to be given for all namespaces
			w.leavesForeign(t, namespace)
		}
	})
	t.Run("a ghost that has another owner is left to that", func(t *testing.T) {
		shared := w.shared(t, p, "left")
		w.delete(t, w.live, "default", "left")
		now := shared
		stage.Soon(t, "it is no ghost of the Pod any more", func() bool {
			now = w.get(t, "live", "default", "left")
			return now == nil || now.Labels[mcowner.FleetLabel] == ""
		})
		if now == nil || now.UID != shared.UID || !now.DeletionTimestamp.IsZero() || len(now.OwnerReferences) != 1 {
			t.Fatalf("the ghost was not left as it was: %+v", now)
		}
		w.mustDelete(t, w.ghost, now)
	})
	t.Run("Pods go while their cluster is not in the fleet", func(t *testing.T) {
		w.create(t, w.live2, "default", "nginx")
		stays := w.haunts(t, "live2", "default", "nginx")
		for _, namespace := range []string{"default", "foo"} {
			w.create(t, w.live, namespace, "unseen")
			w.haunts(t, "live", namespace, "unseen")
		}
		shared := w.shared(t, p, "shared")
		w.mustDelete(t, w.ghost, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "live"}})
		p.Writes("Disengaged", "cluster=live ")
		for _, namespace := range []string{"default", "foo"} {
			w.delete(t, w.live, namespace, "unseen")
		}
		w.delete(t, w.live, "default", "shared")
		stage.Join(t, w.ghost, "live", w.accounts[1].Kubeconfig(t), nil)
		stage.Within(t, time.Minute, "only the ghost is left that has another owner, and those of other clusters", func() bool {
			now := w.get(t, "live", "default", "shared")
			return len(w.all(t)) == 2 && now != nil && now.Labels[mcowner.FleetLabel] == ""
		})
		for _, before := range []*PodGhost{stays, shared} {
			if now := w.get(t, before.Spec.Cluster, "default", before.Spec.Name); now == nil || now.UID != before.UID {
				t.Errorf("the ghost of %s was replaced: %+v", before.Spec.Name, now)
			}
		}
	})
	t.Run("no right is missing, and none is too much", func(t *testing.T) {
		stage.Join(t, w.ghost, "broken", []byte("this is no kubeconfig"), nil) // an event says so
		for _, account := range w.accounts {
			account.NeedsAll(t)
		}
	})
}

// TestAnotherClusterOfTheNameTakesNoGhost: the credentials of a member lead to another cluster.
func TestAnotherClusterOfTheNameTakesNoGhost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mustDelete(t, w.ghost, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "live2"}})
	w.create(t, w.live, "default", "both")
	w.create(t, w.live, "default", "one")
	w.create(t, w.live2, "default", "both")
	w.run("--sweep", "1s")
	both, one := w.haunts(t, "live", "default", "both"), w.haunts(t, "live", "default", "one")
	w.mustDelete(t, w.ghost, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "live"}})
	stage.Join(t, w.ghost, "live", w.live2.Kubeconfig(), nil)
	stage.Eventually(t, "a Warning event on the Pod names the conflict", func() bool {
		return w.hasWarning(t, w.live2, "both", "Conflict", "mend them")
	})
	w.delete(t, w.live2, "default", "both")
	w.change(t, one, func(ghost *PodGhost) { ghost.Labels["an"] = "event" })
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
		stage.NewAccount(t, w.ghost, mctest.Rights{File: "rbac/controller.yaml"}),
		stage.NewAccount(t, w.live, mctest.Rights{File: "rbac/source.yaml"}),
	}
	stage.Join(t, w.ghost, "live", w.accounts[1].Kubeconfig(t), nil)
	stage.Join(t, w.ghost, "live2", stage.NewAccount(t, w.live2, mctest.Rights{File: "rbac/source.yaml"}).Kubeconfig(t), nil)
	for _, name := range []string{"foo", "foo-bar"} {
		if err := w.live.Client().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) run(flags ...string) *stage.Program {
	return stage.Start(w.runIn, append([]string{"--kubeconfig", w.accounts[0].File(w.runIn), "--metrics", "0"}, flags...)...)
}

// shared returns the ghost of a Pod of live that also has an owner in the cluster of the ghosts. The program has seen that.
func (w *world) shared(t *testing.T, p *stage.Program, name string) *PodGhost {
	t.Helper()
	w.create(t, w.live, "default", name)
	ghost := w.haunts(t, "live", "default", name)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if err := w.ghost.Client().Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	seen := func() int { return len(p.Lines("msg=Reconciling", "cluster=live ", "name="+name)) }
	stage.Soon(t, "the program has seen the ghost", func() bool { return seen() > 1 })
	before := seen()
	w.change(t, ghost, func(ghost *PodGhost) {
		ghost.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	})
	stage.Soon(t, "the program has seen the other owner", func() bool { return seen() > before })
	return ghost
}

// change changes a ghost. What it is given stays as it was.
func (w *world) change(t *testing.T, ghost *PodGhost, change func(*PodGhost)) {
	t.Helper()
	changed := &PodGhost{}
	ghost.DeepCopyInto(changed)
	change(changed)
	if err := w.ghost.Client().Patch(t.Context(), changed, client.MergeFrom(ghost)); err != nil {
		t.Fatal(err)
	}
}

// leavesForeign is about an object of somebody else that is where the ghost of a Pod is to be.
func (w *world) leavesForeign(t *testing.T, namespace string) {
	t.Helper()
	foreign := &PodGhost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: mcowner.UniqueName(63, "live", namespace, "taken")},
		Spec:       PodGhostSpec{Cluster: "live", Namespace: namespace, Name: "taken", UID: "1"},
	}
	if err := w.ghost.Client().Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	w.create(t, w.live, namespace, "taken")
	stage.Soon(t, "a Warning event on the Pod names the conflict", func() bool {
		return w.hasWarning(t, w.live, "taken", "Conflict", foreign.Name)
	})
	w.delete(t, w.live, namespace, "taken")
	w.create(t, w.live, namespace, "next")
	w.haunts(t, "live", namespace, "next") // so the event before it was handled
	w.delete(t, w.live, namespace, "next")
	w.isGone(t, namespace, "next")
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
	stage.Soon(t, fmt.Sprintf("Pod %s/%s of %s has a ghost", namespace, name, cluster), func() bool {
		ghost = w.get(t, cluster, namespace, name)
		return ghost != nil
	})
	return ghost
}

// isGone waits until a Pod of live has no ghost.
func (w *world) isGone(t *testing.T, namespace, name string) {
	t.Helper()
	stage.Soon(t, fmt.Sprintf("the ghost of %s/%s of live is gone", namespace, name), func() bool {
		return w.get(t, "live", namespace, name) == nil
	})
}

// stay looks for a while whether ghosts are as they were.
func (w *world) stay(t *testing.T, period time.Duration, ghosts ...*PodGhost) {
	t.Helper()
	stage.Stays(t, period, "the ghosts are as they were", func() bool {
		return !slices.ContainsFunc(ghosts, func(before *PodGhost) bool {
			now := w.get(t, before.Spec.Cluster, before.Spec.Namespace, before.Spec.Name)
			return now == nil || now.UID != before.UID || now.ResourceVersion != before.ResourceVersion
		})
	})
}

// are checks that there are exactly these ghosts, ordered.
func (w *world) are(t *testing.T, want ...string) {
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

// all returns all ghosts, or those that are asked for.
func (w *world) all(t *testing.T, opts ...client.ListOption) []PodGhost {
	t.Helper()
	list := &PodGhostList{}
	if err := w.ghost.Client().List(t.Context(), list, opts...); err != nil {
		t.Fatal(err)
	}
	return list.Items
}
