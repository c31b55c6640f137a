package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/examples/foo/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(stage.RunInPod(m, &pool, "foo", main)) }

// world is a central cluster in which the program runs, and clusters that may join. It has the rights of its manifests.
type world struct {
	*mctest.Fleet
	program  *stage.Program
	probes   string // where it says whether it is ready
	central  *stage.Account
	accounts map[string]*stage.Account // in clusters that have joined
}

func start(t *testing.T, clusters int) *world {
	t.Helper()
	s := runtime.NewScheme()
	must(t, errors.Join(scheme.AddToScheme(s), v1alpha1.AddToScheme(s)))
	f := pool.Start(t, mctest.Options{Clusters: clusters, CRDPaths: []string{"crd.yaml"}, Scheme: s})
	central := stage.NewAccount(t, f.Local, mctest.Rights{File: "rbac/central.yaml", Refused: map[string]string{
		"list foos.samplecontroller.k8s.io":  "no central cluster serves Foos but that of this test",
		"watch foos.samplecontroller.k8s.io": "as list",
	}, Needed: map[string]string{
		"create configmaps in foo": "no cluster is given up here: package dependents has tests of that",
		"patch configmaps in foo":  "no cluster is given up here: package dependents has tests of that",
	}})
	probes := mctest.Address(t)
	p := stage.Start(t, "--kubeconfig", central.File(t), "--metrics", "0", "--probes", probes)
	return &world{Fleet: f, program: p, probes: probes, central: central, accounts: map[string]*stage.Account{}}
}

// join adds a cluster as the README does, and waits until it is ready.
func (w *world) join(t *testing.T, cp *mctest.ControlPlane, name string) {
	t.Helper()
	w.accounts[name] = stage.NewAccount(t, cp, mctest.Rights{File: "rbac/member.yaml", Refused: map[string]string{
		"list secrets": "the test itself asks whether it may",
	}})
	stage.Join(t, w.Local, name, w.accounts[name].Kubeconfig(t), nil, objects.LeaveFinalizer)
	w.program.Writes("Engaged", "cluster="+name)
}

// isReady asks the program.
func (w *world) isReady(t *testing.T) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.probes+"/readyz", http.NoBody)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	must(t, resp.Body.Close())
	return resp.StatusCode == http.StatusOK
}

// isLetGo checks that a Foo of a cluster that has left goes when it is deleted, with nobody there to take a finalizer from it.
func isLetGo(t *testing.T, cp *mctest.ControlPlane, name string) {
	t.Helper()
	if held := getFoo(t, cp, name).Finalizers; len(held) > 0 {
		t.Errorf("the Foo %s of the cluster that has left has the finalizers %q", name, held)
	}
	must(t, cp.Client().Delete(t.Context(), getFoo(t, cp, name)))
	isGone(t, cp, name)
}

// newFoo returns a Foo of the namespace default.
func newFoo(name, deployment string) *v1alpha1.Foo {
	return &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       v1alpha1.FooSpec{DeploymentName: deployment, Replicas: new(int32(1))},
	}
}

func getFoo(t *testing.T, cp *mctest.ControlPlane, name string) *v1alpha1.Foo {
	t.Helper()
	return get(t, cp, newFoo(name, ""))
}

func setReplicas(t *testing.T, cp *mctest.ControlPlane, name string, replicas int32) {
	t.Helper()
	change(t, cp, name, func(foo *v1alpha1.Foo) { foo.Spec.Replicas = &replicas })
}

// change changes a Foo.
func change(t *testing.T, cp *mctest.ControlPlane, name string, change func(*v1alpha1.Foo)) {
	t.Helper()
	foo := getFoo(t, cp, name)
	patch := client.MergeFrom(foo.DeepCopy())
	change(foo)
	must(t, cp.Client().Patch(t.Context(), foo, patch))
}

// deployment returns a Deployment of the central cluster, nil if there is none.
func (w *world) deployment(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	return get(t, w.Local, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

// becomes waits until a Deployment is there and as it should be, and returns it.
func (w *world) becomes(t *testing.T, name, what string, holds func(*appsv1.Deployment) bool) *appsv1.Deployment {
	t.Helper()
	var d *appsv1.Deployment
	stage.Soon(t, fmt.Sprintf("Deployment %s %s", name, what), func() bool {
		d = w.deployment(t, name)
		return d != nil && holds(d)
	})
	return d
}

func exists(*appsv1.Deployment) bool { return true }

func hasReplicas(n int32) func(*appsv1.Deployment) bool {
	return func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == n }
}

// ownerOf returns the Foo to which a Deployment of the central cluster belongs, empty if there is none.
func ownerOf(d *appsv1.Deployment) mcowner.Reference {
	owner, _ := mcowner.ControllerOf(d, mcowner.ByName(mcreconcile.LocalCluster))
	return owner
}

// isUntouched reports whether the program has never written to a Deployment.
func isUntouched(d *appsv1.Deployment) bool {
	return !slices.ContainsFunc(d.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "foo-controller" })
}

// makeAvailable plays the kubelet for the pods of the namespace.
func (w *world) makeAvailable(t *testing.T) {
	t.Helper()
	pods := &corev1.PodList{}
	must(t, w.Local.Client().List(t.Context(), pods, client.InNamespace(namespace)))
	for i := range pods.Items {
		pod := &pods.Items[i]
		patch := client.MergeFrom(pod.DeepCopy())
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		must(t, client.IgnoreNotFound(w.Local.Client().Status().Patch(t.Context(), pod, patch)))
	}
}

func isGone(t *testing.T, cp *mctest.ControlPlane, foo string) {
	t.Helper()
	stage.Soon(t, "the Foo "+foo+" is gone", func() bool { return getFoo(t, cp, foo) == nil })
}

// told waits until an event was recorded on a Foo in its own cluster.
func told(t *testing.T, cp *mctest.ControlPlane, foo, kind, reason, text string) {
	t.Helper()
	stage.Soon(t, fmt.Sprintf("an event %s %s about %q on %s", kind, reason, text, foo), func() bool {
		return slices.ContainsFunc(events(t, cp, foo), func(e eventsv1.Event) bool {
			return e.Type == kind && e.Reason == reason && strings.Contains(e.Note, text)
		})
	})
}

func events(t *testing.T, cp *mctest.ControlPlane, foo string) []eventsv1.Event {
	t.Helper()
	list := &eventsv1.EventList{}
	must(t, cp.Client().List(t.Context(), list, client.InNamespace("default")))
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.Kind != "Foo" || e.Regarding.Name != foo })
}

// staysAs looks for a while whether a Deployment of the central cluster has the owner and the spec that it had.
func (w *world) staysAs(t *testing.T, period time.Duration, before *appsv1.Deployment) {
	t.Helper()
	stage.Stays(t, period, "Deployment "+before.Name+" is as it was", func() bool {
		now := w.deployment(t, before.Name)
		return now != nil && now.UID == before.UID && now.Generation == before.Generation && ownerOf(now).Same(ownerOf(before))
	})
}

// outlives looks for a while whether the Deployment of a cluster that has left is as it was, and the program ready.
func (w *world) outlives(t *testing.T, before *appsv1.Deployment) {
	t.Helper()
	stage.Stays(t, 15*time.Second, "Deployment "+before.Name+" is as it was, and the program is ready", func() bool {
		now := w.deployment(t, before.Name)
		return now != nil && now.ResourceVersion == before.ResourceVersion && w.isReady(t)
	})
}

// get returns an object by its name, nil if there is none.
func get[T client.Object](t *testing.T, cp *mctest.ControlPlane, obj T) T {
	t.Helper()
	var none T
	err := cp.Client().Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
	if apierrors.IsNotFound(err) {
		return none
	}
	must(t, err)
	return obj
}

func create(t *testing.T, cp *mctest.ControlPlane, obj client.Object) {
	t.Helper()
	must(t, cp.Client().Create(t.Context(), obj))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
