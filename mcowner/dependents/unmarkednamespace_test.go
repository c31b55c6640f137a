package dependents_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestASharedNamespaceThatLostItsMarkStays, and what others have put into it: it does not say any more that it was created for
// dependents, and nobody is asked whether it is empty.
func TestASharedNamespaceThatLostItsMarkStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, ns := w.Members[0], w.ns+"-new"
	p := w.run(w.inNamespaces())
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
	w.change(w.Local, "b", func(cm *corev1.ConfigMap) { cm.Annotations["look"] = "again" })
	eventually(t, "the program is at rest", p.isAtRest)
	if said := w.createdBy(one, ns); said != "" {
		t.Errorf("it says again that it was created by %s", said)
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

// TestAMarkOfANamespaceTakesNoPermit when somebody takes it, or puts it back: what is desired is rolled out, and work goes on in a rollout
// that is halted.
func TestAMarkOfANamespaceTakesNoPermit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, other, ns := w.Members[0], w.Members[1], w.ns+"-new"
	created := map[string]string{mcowner.CreatedByAnnotation: fleetName}
	w.create(one, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Annotations: created}})
	r := w.desiringNamespaces()
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		if owner.Data["refused"] == string(target.Cluster) {
			all[0].SetLabels(map[string]string{"by": "no label!"})
		}
		return all, err
	}
	r.Rollout = dependents.Rollout{HaltAfter: 1}
	told := listen(r)
	w.run(r)
	owner := w.owner("a", one.Name, other.Name)
	owner.Data["value"] = ns
	w.create(w.Local, owner)
	for _, cp := range w.Members {
		eventually(t, "it has the namespace", func() bool { return w.namespace(cp, ns) != nil && w.namespace(cp, ns).Labels["by"] == "a" })
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["refused"] = other.Name })
	eventually(t, "the rollout is halted", func() bool { return strings.Contains(w.failedIn(), other.Name) })
	mark := func(change func(map[string]string)) {
		there := w.namespace(one, ns)
		before := there.DeepCopy()
		change(there.Annotations)
		if err := one.Client().Patch(t.Context(), there, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	stays := func() bool { return w.namespace(one, ns).Annotations[dependents.DeletionPolicyAnnotation] != "" }
	mark(func(said map[string]string) { delete(said, mcowner.CreatedByAnnotation) })
	eventually(t, "it says that it stays", stays)
	mark(func(said map[string]string) { maps.Copy(said, created) })
	eventually(t, "it says that it was created", func() bool { return !stays() })
	if waiting, _ := told.halted(); waiting > 0 {
		t.Errorf("%d clusters wait", waiting)
	}
}
