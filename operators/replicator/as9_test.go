package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	slicesv1alpha1 "github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// The clusters of AS-9. The hub is one of the members.
const primary, secondary1, secondary2 = "primary", "v1262-cluster.kubernetes-admin2", "v1252-cluster.kubernetes-admin3"

// TestReplicatorsBringObjectsToClusters is AS-9. The clusters have no controllers of Kubernetes, so Deployments never get ready.
func TestReplicatorsBringObjectsToClusters(t *testing.T) {
	t.Parallel()
	w := start(t, primary, secondary1, secondary2)
	one, two := w.members[secondary1], w.members[secondary2]
	all := []string{primary, secondary1, secondary2}
	create(t, w.Local, replicator("replicator-sample", all, nginx("nginx", 3)...))

	t.Run("1 all objects are in three clusters, and the status has each", func(t *testing.T) {
		for _, name := range all {
			for _, obj := range nginx("nginx", 3) {
				stage.Soon(t, obj.GetName()+" is in "+name, func() bool {
					return w.members[name].Client().Get(t.Context(), client.ObjectKeyFromObject(obj), obj) == nil
				})
			}
		}
		w.synced("replicator-sample")
		for _, name := range all {
			for _, kind := range []string{"Deployment", "ConfigMap", "Secret", "Service", "Ingress"} {
				stage.Soon(t, "a slice has "+kind+" of "+name, func() bool { return w.slicesHave(name, kind, "nginx") })
			}
		}
	})
	create(t, w.Local, replicator("still", []string{primary, secondary1}, nginx("still", 1)...))
	w.synced("still")
	for _, name := range []string{primary, secondary1} { // slices are written a second later
		stage.Soon(t, "the slices have "+name, func() bool { return w.slicesHave(name, "Ingress", "still") })
	}

	t.Run("meanwhile", func(t *testing.T) {
		t.Run("1 nothing is written for a minute in which nothing changes", func(t *testing.T) {
			before, since := w.versionsOf(t, "still"), time.Now()
			stage.Eventually(t, "what came of the beginning was written", func() bool {
				if now := w.versionsOf(t, "still"); !slices.Equal(before, now) {
					before, since = now, time.Now()
				}
				return time.Since(since) > 5*time.Second
			})
			stage.Stays(t, time.Minute, "nothing is written", func() bool { return slices.Equal(before, w.versionsOf(t, "still")) })
		})
		t.Run("the steps", func(t *testing.T) {
			t.Parallel()
			w.steps(t, one, two)
		})
	})
}

func (w *world) steps(t *testing.T, one, two *mctest.ControlPlane) {
	t.Helper()
	t.Run("2 replicas change everywhere, and drift is reverted", func(t *testing.T) {
		w.scale("replicator-sample", 5)
		for _, name := range w.names {
			hasReplicas(t, w.members[name], 5)
		}
		drifted := get(t, one, deployment("nginx", 1))
		drifted.Spec.Replicas = new(int32(1))
		must(t, one.Client().Update(t.Context(), drifted))
		hasReplicas(t, one, 5)
	})
	t.Run("3 a cluster is down, and others are updated", func(t *testing.T) {
		two.Stop(t)
		w.condition("replicator-sample", v1alpha1.ConditionSynced, "Unreachable", secondary2)
		w.scale("replicator-sample", 4)
		hasReplicas(t, one, 4)
		hasReplicas(t, w.Local, 4)
		if in := w.replicator("replicator-sample").Status.NotSyncedIn; !strings.Contains(in, secondary2+" (Unreachable)") {
			t.Errorf("notSyncedIn is %q", in)
		}
		two.Restart(t)
		stage.Eventually(t, "the cluster is up to date", func() bool { return *get(t, two, deployment("nginx", 1)).Spec.Replicas == 4 })
		w.synced("replicator-sample")
	})
	t.Run("4 what is not wanted any more is pruned, and an unknown target is named", func(t *testing.T) {
		w.change("replicator-sample", func(r *v1alpha1.Replicator) {
			r.Spec.Clusters.Names = []string{primary, secondary2, "nope.x"}
			r.Spec.Manifests = r.Spec.Manifests[:4] // without the Ingress
		})
		isGone(t, one, deployment("nginx", 1))
		for _, cp := range []*mctest.ControlPlane{one, two, w.Local} {
			isGone(t, cp, ingress("nginx"))
		}
		isThere(t, two, deployment("nginx", 1))
		w.condition("replicator-sample", v1alpha1.ConditionSynced, "Unreachable", "nope.x")
		if in := w.replicator("replicator-sample").Status.NotSyncedIn; !strings.Contains(in, "nope.x (Unknown)") {
			t.Errorf("notSyncedIn is %q", in)
		}
		w.change("replicator-sample", func(r *v1alpha1.Replicator) { r.Spec.Clusters.Names = w.names })
		w.synced("replicator-sample")
	})
	t.Run("5 two Replicators of a namespace are apart, also after a restart", func(t *testing.T) {
		create(t, w.Local, replicator("other", w.names, configMap("other", "of", "other")))
		w.synced("other")
		w.program.Kill()
		remove(t, w.Local, w.replicator("other"))
		w.run()
		isGone(t, one, configMap("other"))
		isGone(t, w.Local, w.replicator("other"))
		isThere(t, one, deployment("nginx", 1))
		w.synced("replicator-sample")
	})
	t.Run("6 only its own objects go from a namespace that is there", func(t *testing.T) { w.testForeign(t) })
	t.Run("7 a deletion waits for a cluster that is down, and says so", func(t *testing.T) {
		two.Stop(t)
		w.condition("replicator-sample", v1alpha1.ConditionSynced, "Unreachable", secondary2)
		remove(t, w.Local, w.replicator("replicator-sample"))
		isGone(t, one, deployment("nginx", 1))
		w.condition("replicator-sample", v1alpha1.ConditionSynced, "Unreachable", secondary2)
		two.Restart(t)
		stage.Eventually(t, "the Replicator is gone", func() bool { return w.replicator("replicator-sample") == nil })
		if get(t, two, deployment("nginx", 1)) != nil {
			t.Error("a Deployment was left")
		}
	})
	t.Run("8 events exist", func(t *testing.T) {
		list := &eventsv1.EventList{}
		must(t, w.Local.Client().List(t.Context(), list, client.InNamespace(tenant)))
		for _, reason := range []string{"Created", "Updated", "Deleted", "ClusterNotReady"} {
			if !slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Reason == reason && e.Regarding.Name == "replicator-sample" }) {
				t.Errorf("there is no event %s", reason)
			}
		}
	})
}

// testForeign has a Replicator write beside objects of others, where one has the place of what it wants.
func (w *world) testForeign(t *testing.T) {
	t.Helper()
	one := w.members[secondary1]
	keep, db := configMap("keep", "is", "theirs"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "db"}}
	create(t, one, keep, db)
	create(t, w.Local, replicator("prod", []string{secondary1}, configMap("own"), configMap("keep", "is", "mine")))
	isThere(t, one, configMap("own"))
	w.condition("prod", v1alpha1.ConditionSynced, "Failed", "keep")
	remove(t, w.Local, w.replicator("prod"))
	isGone(t, w.Local, w.replicator("prod"))
	isGone(t, one, configMap("own"))
	now := get(t, one, keep)
	if now == nil || now.UID != keep.UID || now.Data["is"] != "theirs" || now.DeletionTimestamp != nil || get(t, one, db) == nil {
		t.Errorf("what is others' is %v now", now)
	}
	if namespace := get(t, one, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}); namespace == nil || namespace.DeletionTimestamp != nil {
		t.Error("the namespace was deleted")
	}
}

func (w *world) scale(name string, replicas int32) {
	w.t.Helper()
	w.change(name, func(r *v1alpha1.Replicator) { r.Spec.Manifests[0] = manifest(deployment("nginx", replicas)) })
}

func hasReplicas(t *testing.T, cp *mctest.ControlPlane, replicas int32) {
	t.Helper()
	becomes(t, cp, deployment("nginx", 1), "has as many replicas as wanted", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == replicas })
}

// versionsOf returns the versions of all that there is of a Replicator.
func (w *world) versionsOf(t *testing.T, name string) []string {
	t.Helper()
	versions := []string{w.replicator(name).ResourceVersion}
	list := &slicesv1alpha1.DependentSliceList{}
	must(t, w.Local.Client().List(t.Context(), list, client.InNamespace(tenant)))
	for _, slice := range list.Items {
		if slice.Owner.Name == name {
			versions = append(versions, slice.ResourceVersion)
		}
	}
	for _, in := range []string{primary, secondary1} {
		for _, obj := range nginx(name, 1) {
			must(t, w.members[in].Client().Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
			versions = append(versions, obj.GetResourceVersion())
		}
	}
	return versions
}

// nginx returns the objects of AS-9.
func nginx(name string, replicas int32) []client.Object {
	return []client.Object{
		deployment(name, replicas), configMap(name, "index.html", "hello"),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}, Data: map[string][]byte{"password": []byte("x")}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80}},
		}},
		ingress(name),
	}
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:1.29"}}},
			},
		},
	}
}

func ingress(name string) *networkingv1.Ingress {
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name},
		Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: name, Port: networkingv1.ServiceBackendPort{Number: 80}},
		}},
	}
}
