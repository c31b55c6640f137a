package dependents_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestTwoInstallationsOfOneNameAdoptNothingFromEachOther: both would take the object from each other for ever. It stays with the
// first, and the other is told what to do.
func TestTwoInstallationsOfOneNameAdoptNothingFromEachOther(t *testing.T) {
	t.Parallel()
	first := newWorld(t, 2)
	one := first.Members[0]
	second := *first
	second.Fleet = &mctest.Fleet{Local: first.Members[1], Members: first.Members[:1]}
	first.Fleet = &mctest.Fleet{Local: first.Local, Members: first.Members[:1]}
	run := func(w *world, owner string) *process {
		r := w.spread()
		r.Policy.Conflict = dependents.Adopt
		r.Desired = func(_ context.Context, o *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
			return []client.Object{&corev1.ConfigMap{ObjectMeta: metaOf(o.Namespace, "shared"), Data: map[string]string{"of": o.Name}}}, nil
		}
		w.create(w.Local, w.owner(owner, one.Name))
		return w.run(r)
	}
	ofFirst := run(first, "of-first")
	eventually(t, "the first has it", func() bool { return first.get(one, "shared") != nil })
	before := first.mustGet(one, "shared")
	ofSecond := run(&second, "of-second")
	second.told(second.Local, "of-second", dependents.EventConflict, "give one another")
	eventually(t, "both are at rest", func() bool { return ofFirst.isAtRest() && ofSecond.isAtRest() })
	if now := first.mustGet(one, "shared"); now.ResourceVersion != before.ResourceVersion {
		t.Errorf("what the first installation has was written to: %v", now)
	}
	first.remove(first.Local, "of-first")
	eventually(t, "the second has it once the first has left it", func() bool {
		now := second.get(one, "shared")
		return now != nil && now.Data["of"] == "of-second"
	})
}
