package dependents_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestWhatIsInNobodysWayAnyMoreBringsNoWork: an owner has had a conflict about an object, and desires none of that name now.
func TestWhatIsInNobodysWayAnyMoreBringsNoWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	var looks atomic.Int32 // at the owner a
	r := w.spread()
	results := reportsOf(t, r)
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		if owner.Name == "a" {
			looks.Add(1)
		}
		var all []client.Object
		for name := range strings.FieldsSeq(owner.Data["value"]) {
			all = append(all, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}})
		}
		return all, nil
	}
	w.run(r)
	desiring := func(owner string, names string) *corev1.ConfigMap {
		cm := w.owner(owner, one.Name)
		cm.Data["value"] = names
		return cm
	}
	w.create(one, w.owner("foreign"))
	w.create(w.Local, desiring("a", "foreign copy-of-a"))
	w.create(w.Local, desiring("b", "copy-of-b"))
	results.is("a", dependents.Conflict)
	touch := func() { w.change(one, "foreign", func(cm *corev1.ConfigMap) { cm.Data["value"] += "1" }) }
	// What is done for the owner b after the change of the foreign object is done after what is done for the owner a.
	looked := func() bool {
		before, copied := looks.Load(), w.mustGet(one, "copy-of-b").UID
		touch()
		w.remove(one, "copy-of-b")
		eventually(t, "the copy of b is there again", func() bool {
			cm := w.get(one, "copy-of-b")
			return cm != nil && cm.UID != copied
		})
		return looks.Load() > before
	}
	eventually(t, "b has a copy", func() bool { return w.get(one, "copy-of-b") != nil })
	eventually(t, "a change of what is in the way brings work", looked)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "copy-of-a" })
	results.is("a", dependents.Applied, dependents.Unchanged)
	for range 3 { // what was under way may end meanwhile
		if !looked() {
			return
		}
	}
	t.Error("a change of what is in nobody's way brings work")
}
