package dependents_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// TestASharedNamespaceThatLostItsMarkStays, and what others have put into it: it does not say any more that it was created for
// dependents, and nobody is asked whether it is empty.
func TestASharedNamespaceThatLostItsMarkStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, ns := w.Members[0], w.ns+"-new"
	w.run(w.inNamespaces())
	w.create(w.Local, w.ownerIn("a", ns))
	w.create(w.Local, w.ownerIn("b", ns))
	for _, owner := range []string{"a", "b"} {
		eventually(t, owner+" has its dependent", func() bool { return w.isThere(one, &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf(owner))}) })
	}
	w.create(one, &corev1.Secret{ObjectMeta: metaOf(ns, "db")})
	there := w.namespace(one, ns)
	before := there.DeepCopy()
	delete(there.Annotations, mcowner.CreatedByAnnotation)
	if err := one.Client().Patch(t.Context(), there, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
	eventually(t, "the namespace is not the first owner's any more", func() bool { return w.ownersOf(one, ns) == 1 })
	w.remove(w.Local, "b")
	w.isGone(w.Local, "b")
	if now := w.namespace(one, ns); now == nil || now.UID != before.UID {
		t.Fatal("the namespace is being deleted, with the Secret of others in it")
	}
	if left := w.namespace(one, ns).Labels[mcowner.FleetLabel]; left != "" {
		t.Errorf("the namespace that stays still has the label of the fleet %q", left)
	}
}
