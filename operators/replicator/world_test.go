package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	inventoryv1alpha1 "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	slicesv1alpha1 "github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

const tenant = "team-a" // a namespace of the hub, and of members

// world is a hub in which the program runs, with the rights of its manifests, and members that have joined.
type world struct {
	*mctest.Fleet
	t       *testing.T
	program *stage.Program
	hub     *stage.Account
	members map[string]*mctest.ControlPlane // by name
	names   []string
}

// start starts the program. The members have these names, and the hub is one of them if it is to be.
func start(t *testing.T, hubAs string, names ...string) *world {
	t.Helper()
	w := prepare(t, len(names))
	w.run()
	if hubAs != "" {
		w.join(w.Local, hubAs)
	}
	for i, name := range names {
		w.join(w.Members[i], name)
	}
	return w
}

func prepare(t *testing.T, members int) *world {
	t.Helper()
	s := runtime.NewScheme()
	must(t, errors.Join(scheme.AddToScheme(s), v1alpha1.AddToScheme(s), slicesv1alpha1.AddToScheme(s), inventoryv1alpha1.AddToScheme(s)))
	f := pool.Start(t, mctest.Options{
		Clusters: members, CRDPaths: []string{"v1alpha1/crd.yaml", "../../mcowner/dependents/v1alpha1/crd.yaml"}, Scheme: s,
	})
	w := &world{Fleet: f, t: t, members: map[string]*mctest.ControlPlane{}}
	create(t, f.Local, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}})
	w.hub = stage.NewAccount(t, f.Local, hubRights())
	return w
}

func (w *world) run(args ...string) {
	w.t.Helper()
	w.program = stage.Start(w.t, slices.Concat([]string{
		"--kubeconfig", w.hub.File(w.t), "--namespace", "fleet", "--metrics-bind-address", "0", "--health-probe-bind-address", "0",
	}, args)...)
}

// join lets a cluster join, and waits until the program works on it.
func (w *world) join(cp *mctest.ControlPlane, name string) {
	w.t.Helper()
	w.add(cp, name)
	w.program.Writes("Engaged", "cluster="+name)
}

// add lets a cluster join by an account that reads, and may write as the tenant.
func (w *world) add(cp *mctest.ControlPlane, name string) {
	w.t.Helper()
	account := stage.NewAccount(w.t, cp, memberRights())
	stage.Apply(w.t, cp, "config/tenant.yaml")
	stage.Join(w.t, w.Local, name, account.Kubeconfig(w.t), map[string]string{"name": name})
	w.members[name] = cp
	w.names = append(w.names, name)
}

// replicator returns one with these manifests, for these clusters.
func replicator(name string, clusters []string, objs ...client.Object) *v1alpha1.Replicator {
	r := &v1alpha1.Replicator{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}}
	r.Spec.Clusters.Names = clusters
	for _, obj := range objs {
		r.Spec.Manifests = append(r.Spec.Manifests, manifest(obj))
	}
	return r
}

func manifest(obj client.Object) v1alpha1.Manifest {
	gvks, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		panic(err)
	}
	obj.GetObjectKind().SetGroupVersionKind(gvks[0])
	raw, err := json.Marshal(obj)
	if err != nil {
		panic(err)
	}
	return v1alpha1.Manifest{RawExtension: runtime.RawExtension{Raw: raw}}
}

// raw is a manifest as text.
func raw(format string, args ...any) v1alpha1.Manifest {
	return v1alpha1.Manifest{RawExtension: runtime.RawExtension{Raw: fmt.Appendf(nil, format, args...)}}
}

// change changes a Replicator, again if somebody else has meanwhile.
func (w *world) change(name string, how func(*v1alpha1.Replicator)) {
	w.t.Helper()
	r := w.replicator(name)
	before := r.DeepCopy()
	how(r)
	must(w.t, w.Local.Client().Patch(w.t.Context(), r, client.MergeFrom(before)))
}

func (w *world) replicator(name string) *v1alpha1.Replicator {
	w.t.Helper()
	r := &v1alpha1.Replicator{}
	r.Namespace, r.Name = tenant, name
	return get(w.t, w.Local, r)
}

// condition waits until a condition of a Replicator has a reason, and its message has a text.
func (w *world) condition(name, condition, reason, text string) {
	w.t.Helper()
	var last string
	defer func() {
		if w.t.Failed() {
			w.t.Logf("the last condition was %s", last)
		}
	}()
	stage.Eventually(w.t, fmt.Sprintf("%s of %s is %s: %s", condition, name, reason, text), func() bool {
		r := w.replicator(name)
		if r == nil {
			return false
		}
		c := meta.FindStatusCondition(r.Status.Conditions, condition)
		last = fmt.Sprintf("%+v of %+v", c, r.Status)
		return c != nil && c.Reason == reason && strings.Contains(c.Message, text) && r.Status.ObservedGeneration == r.Generation
	})
}

func (w *world) synced(name string) {
	w.t.Helper()
	w.condition(name, v1alpha1.ConditionSynced, "Done", "")
}

// slicesHave reports whether the slices of the tenant have a dependent of a kind in a cluster as it is to be.
func (w *world) slicesHave(cluster, kind, name string) bool {
	w.t.Helper()
	list := &slicesv1alpha1.DependentSliceList{}
	must(w.t, w.Local.Client().List(w.t.Context(), list, client.InNamespace(tenant)))
	for _, slice := range list.Items {
		for _, c := range slice.Clusters {
			for _, d := range c.Objects {
				if c.Name == cluster && strings.HasPrefix(d.Kind, kind+".") && d.Name == name && d.Error == "" {
					return true
				}
			}
		}
	}
	return false
}

func create(t *testing.T, cp *mctest.ControlPlane, objs ...client.Object) {
	t.Helper()
	for _, obj := range objs {
		must(t, cp.Client().Create(t.Context(), obj))
	}
}

func remove(t *testing.T, cp *mctest.ControlPlane, obj client.Object) {
	t.Helper()
	must(t, cp.Client().Delete(t.Context(), obj))
}

// get returns an object as it is now, nil if it is not there.
func get[T client.Object](t *testing.T, cp *mctest.ControlPlane, named T) (now T) {
	t.Helper()
	now = named.DeepCopyObject().(T) //nolint:forcetypeassert // a copy has the type of the original
	err := cp.Client().Get(t.Context(), client.ObjectKeyFromObject(named), now)
	if apierrors.IsNotFound(err) {
		var none T
		return none
	}
	must(t, err)
	return now
}

// becomes waits until an object is there and is as wanted.
func becomes[T client.Object](t *testing.T, cp *mctest.ControlPlane, named T, what string, is func(T) bool) {
	t.Helper()
	stage.Soon(t, fmt.Sprintf("%T %s of %s %s", named, named.GetName(), cp.Name, what), func() bool {
		now := get(t, cp, named)
		return !isNil(now) && is(now)
	})
}

func isThere[T client.Object](t *testing.T, cp *mctest.ControlPlane, named T) {
	t.Helper()
	becomes(t, cp, named, "is there", func(T) bool { return true })
}

func isGone[T client.Object](t *testing.T, cp *mctest.ControlPlane, named T) {
	t.Helper()
	stage.Soon(t, fmt.Sprintf("%T %s of %s is gone", named, named.GetName(), cp.Name), func() bool { return isNil(get(t, cp, named)) })
}

func isNil[T client.Object](obj T) bool {
	var none T
	return any(obj) == any(none)
}

func configMap(name string, data ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}, Data: map[string]string{}}
	for pair := range slices.Chunk(data, 2) {
		cm.Data[pair[0]] = pair[1]
	}
	return cm
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tells reports whether a slice of a Replicator has an error about an object.
func (w *world) tells(replicator, object string) bool {
	w.t.Helper()
	list := &slicesv1alpha1.DependentSliceList{}
	must(w.t, w.Local.Client().List(w.t.Context(), list, client.InNamespace(tenant)))
	for _, slice := range list.Items {
		for _, c := range slice.Clusters {
			for _, o := range c.Objects {
				if slice.Owner.Name == replicator && o.Name == object && o.Error != "" {
					return true
				}
			}
		}
	}
	return false
}
