package dependents_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// mirror is a reconciler that copies owners of the first member to all that they name, under their own name, and takes what is there over.
func (w *world) mirror() *dependents.Reconciler[*corev1.ConfigMap] {
	r := w.spread()
	r.OwnersIn = mcowner.Clusters{Members: labels.SelectorFromSet(labels.Set{"name": w.Members[0].Name})}
	r.Policy.Conflict = dependents.AdoptUnowned
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		if target.Home && owner.Data["mirrored"] == "elsewhere" {
			return nil, nil
		}
		return []client.Object{&corev1.ConfigMap{ObjectMeta: metaOf(owner.Namespace, owner.Name), Data: owner.Data}}, nil
	}
	return r
}

// ownsItself creates an owner in the first member that says that it is its own.
func (w *world) ownsItself(owner *corev1.ConfigMap) *corev1.ConfigMap {
	w.t.Helper()
	one := w.Members[0]
	w.create(one, owner)
	in := mcowner.ClusterID{Name: "member-1", UID: w.kubeSystem(one)}
	itself, err := mcowner.ReferenceTo(fleetName, in, owner, scheme.Scheme)
	if err != nil {
		w.t.Fatal(err)
	}
	itself.Manager = controller
	w.change(one, owner.Name, func(cm *corev1.ConfigMap) {
		if err := mcowner.SetControllerReference(itself, cm, in); err != nil {
			w.t.Fatal(err)
		}
	})
	return owner
}

// isItsOwn reports whether an object refers to itself, as its own cluster tells or the fleet.
func isItsOwn(cm *corev1.ConfigMap) bool {
	return cm.Labels[mcowner.FleetLabel] != "" || len(cm.OwnerReferences) > 0
}

// TestAnOwnerDoesNotAdoptItself: a copy that is to have its own place is a conflict, and the other copies are made.
func TestAnOwnerDoesNotAdoptItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	w.run(w.mirror())
	owner := w.owner("a", one.Name, two.Name)
	w.create(one, owner)
	eventually(t, "the other member has a copy", func() bool { return w.get(two, "a") != nil })
	w.told(one, "a", dependents.EventConflict, "it is the owner itself")
	if cm := w.mustGet(one, "a"); isItsOwn(cm) {
		t.Errorf("it has become its own dependent: %+v", cm.ObjectMeta)
	}
}

// TestAnOwnerThatIsItsOwnIsNotDeletedForThat: an earlier version has let it adopt itself, and its cluster is no target any more, or the owner is
// deleted, and does not wait for itself.
func TestAnOwnerThatIsItsOwnIsNotDeletedForThat(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	w.run(w.mirror())
	noTarget := w.ownsItself(w.owner("no-target", one.Name, two.Name))
	notDesired := w.ownsItself(w.owner("not-desired", one.Name, two.Name))
	elsewhere := w.ownsItself(w.owner("elsewhere", one.Name, two.Name))
	deleted := w.owner("deleted", one.Name, two.Name)
	deleted.Annotations[dependents.DeletionPolicyAnnotation] = string(metav1.DeletePropagationForeground)
	w.ownsItself(deleted)
	for _, owner := range []string{"no-target", "not-desired", "elsewhere", "deleted"} {
		eventually(t, "the other member has a copy of "+owner, func() bool { return w.get(two, owner) != nil })
		eventually(t, owner+" may have something in both", func() bool {
			in := placedIn(w.mustGet(one, owner))
			return strings.Contains(in, one.Name) && strings.Contains(in, two.Name)
		})
	}
	w.change(one, "no-target", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = two.Name })
	w.change(one, "not-desired", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
	w.change(one, "elsewhere", func(cm *corev1.ConfigMap) { cm.Data["mirrored"] = "elsewhere" })
	for _, owner := range []*corev1.ConfigMap{noTarget, notDesired, elsewhere} {
		eventually(t, owner.Name+" is its own no more", func() bool { cm := w.get(one, owner.Name); return cm == nil || !isItsOwn(cm) })
		w.unharmed(one, owner)
	}
	if w.get(two, "no-target") == nil {
		t.Error("its other copy is gone")
	}
	w.remove(one, "deleted")
	eventually(t, "its other copy goes", func() bool { return w.mustGet(two, "deleted").DeletionTimestamp != nil })
	w.letGo(two, "deleted", metav1.FinalizerDeleteDependents) // as the garbage collector does
	w.isGone(two, "deleted")
	w.isGone(one, "deleted")
}
