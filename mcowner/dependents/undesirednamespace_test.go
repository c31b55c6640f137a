package dependents_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// itself on an owner says that it desires its namespace itself.
const itself = "itself"

// withItself returns what is desired, and the namespace itself if the owner says so.
func withItself(owner client.Object, namespace string, all ...client.Object) []client.Object {
	if owner.GetAnnotations()[itself] != "" {
		all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	return all
}

// hasCopy reports whether the copy of an owner is in a namespace.
func (w *world) hasCopy(cp *mctest.ControlPlane, namespace, owner string) bool {
	w.t.Helper()
	return w.isThere(cp, &corev1.ConfigMap{ObjectMeta: metaOf(namespace, copyOf(owner))})
}

// runDesiring runs a program that creates namespaces, some of which owners desire themselves.
func (w *world) runDesiring(namespace string, results *latest) *process {
	w.t.Helper()
	r := w.inNamespaces()
	r.Status = results.note
	r.Kinds = append(r.Kinds, &corev1.Namespace{})
	r.Policy.Conflict = dependents.AdoptUnowned
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		return withItself(owner, namespace, all...), err
	}
	return w.run(r)
}

// desireItself creates an owner that desires its namespace itself, and has a copy there.
func (w *world) desireItself(cp *mctest.ControlPlane, owner, namespace string) {
	w.t.Helper()
	cm := w.ownerIn(owner, namespace)
	cm.Annotations[itself] = "yes"
	w.create(w.Local, cm)
	eventually(w.t, "the copy of "+owner+" is there", func() bool { return w.hasCopy(cp, namespace, owner) })
}

// desireNoMore lets an owner desire only what is in its namespace.
func (w *world) desireNoMore(owner string) {
	w.t.Helper()
	w.change(w.Local, owner, func(cm *corev1.ConfigMap) { delete(cm.Annotations, itself) })
}

// TestANamespaceThatItsOwnerDesiresNoMoreGoesOnlyIfItIsEmpty: the owner has created it as its dependent, and still needs it for what is in it, as do
// other owners. It goes with the last of those that need it.
func TestANamespaceThatItsOwnerDesiresNoMoreGoesOnlyIfItIsEmpty(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, name := w.Members[0], w.ns+"-new"
	p := w.runDesiring(name, &latest{})
	w.desireItself(one, "a", name)
	for _, owner := range []string{"b", "c"} {
		w.create(w.Local, w.ownerIn(owner, name))
		eventually(t, "the copy of "+owner+" is there", func() bool { return w.hasCopy(one, name, owner) })
	}
	w.desireNoMore("a")
	eventually(t, "it was created for who needs it", func() bool { return w.namespace(one, name).Annotations[mcowner.CreatedByAnnotation] == fleetName })
	w.change(w.Local, "b", func(cm *corev1.ConfigMap) { cm.Annotations["look"] = "again" })
	eventually(t, "the next owner that looks shares it", func() bool { return w.ownersOf(one, name) == 2 })
	eventually(t, "the program is at rest", p.isAtRest)
	for _, owner := range []string{"a", "b"} {
		w.remove(w.Local, owner)
		w.isGone(w.Local, owner)
		if w.namespace(one, name) == nil {
			t.Fatalf("it goes with %s, and with what c has in it", owner)
		}
	}
}

// TestANamespaceThatItsOwnerDesiresNoMoreStaysIfItWasThereBefore, also without anything in it.
func TestANamespaceThatItsOwnerDesiresNoMoreStaysIfItWasThereBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, name := w.Members[0], w.ns+"-new"
	w.create(one, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	var results latest
	w.runDesiring(name, &results)
	w.desireItself(one, "a", name)
	eventually(t, "it is told of", func() bool { return len(results.of("a", one).Objects) == 2 })
	w.desireNoMore("a")
	eventually(t, "it is told of no more", func() bool { return len(results.of("a", one).Objects) == 1 })
	if w.namespace(one, name).Annotations[mcowner.CreatedByAnnotation] != "" {
		t.Error("it has the mark of one that goes if it is empty")
	}
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	if w.namespace(one, name) == nil {
		t.Error("it goes with its owner")
	}
}

// TestANamespaceThatItsOwnerDesiresNoMoreIsHiddenFromTheGarbageCollector, which would not look whether it is empty.
func TestANamespaceThatItsOwnerDesiresNoMoreIsHiddenFromTheGarbageCollector(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	name := w.ns + "-new"
	w.run(&dependents.Reconciler[*rbacv1.ClusterRole]{ // owners in a namespace have no native reference on one
		Fleet: fleetName, Name: controller, OwnersIn: mcowner.Clusters{Local: true}, CreateNamespaces: true,
		DependentsIn: mcowner.Clusters{Local: true}, Kinds: []client.Object{&corev1.ConfigMap{}, &corev1.Namespace{}},
		Targets: func(_ context.Context, owner *rbacv1.ClusterRole) ([]mcreconcile.ClusterName, error) {
			if owner.Name != w.ns {
				return nil, nil
			}
			return []mcreconcile.ClusterName{mcreconcile.LocalCluster}, nil
		},
		Desired: func(_ context.Context, owner *rbacv1.ClusterRole, _ dependents.Target) ([]client.Object, error) {
			return withItself(owner, name, &corev1.ConfigMap{ObjectMeta: metaOf(name, copyOf("a"))}), nil
		},
	})
	natives := func() int { return len(w.namespace(w.Local, name).OwnerReferences) }
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.ns, Annotations: map[string]string{itself: "yes"}}}
	w.create(w.Local, role)
	eventually(t, "the copy is there", func() bool { return w.hasCopy(w.Local, name, "a") })
	if natives() != 1 {
		t.Error("what the owner desires itself has no native reference")
	}
	if err := w.Local.Client().Patch(t.Context(), role, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"itself":null}}}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is hidden", func() bool { return natives() == 0 })
}
