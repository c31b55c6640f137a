package dependents_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// TestAnOwnerGoesWhoseSlicesWereTakenInANamespaceThatGoes: nothing can be created there.
func TestAnOwnerGoesWhoseSlicesWereTakenInANamespaceThatGoes(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 2)
	p := w.run(w.sliced())
	w.create(w.Local, w.owner("a", names(w.Members)...))
	w.areSliced(w.Members...)
	eventually(t, "the program is at rest", p.isAtRest)
	two := w.Members[1]
	<-p.members.Remove(fleet.ClusterName(two.Name))
	if err := w.Local.Client().Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}); err != nil {
		t.Fatal(err)
	}
	w.remove(w.Local, "a")
	w.isGone(w.Members[0], copyOf("a"))
	eventually(t, "the program is at rest", p.isAtRest)
	for _, s := range w.slices() {
		s.Finalizers = nil
		if err := client.IgnoreNotFound(w.Local.Client().Update(t.Context(), &s)); err != nil {
			t.Fatal(err)
		}
		if err := client.IgnoreNotFound(w.Local.Client().Delete(t.Context(), &s)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the slices are gone", func() bool { return len(w.slices()) == 0 })
	if err := p.members.Set(p.member(two)); err != nil {
		t.Fatal(err)
	}
	w.isGone(two, copyOf("a"))
	w.isGone(w.Local, "a")
}
