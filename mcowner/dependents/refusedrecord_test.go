package dependents_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestStatusSaysWhatIsSoWhereTheRecordCannotBeStored: nothing is done for the new target, and what fails in the others is told.
func TestStatusSaysWhatIsSoWhereTheRecordCannotBeStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	r := w.spread()
	told := listen(r)
	p := w.run(r)
	w.create(w.Local, w.owner("a", w.Members[0].Name))
	eventually(t, "it is done, and all is written", func() bool {
		return dependents.Summarize(told.of("a")).Done == 1 && p.isAtRest()
	})
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) {
		size := 0
		cm.Annotations["to"] += "," + w.Members[1].Name
		for k, v := range cm.Annotations {
			size += len(k) + len(v)
		}
		cm.Annotations["x"] = strings.Repeat("x", 256<<10-size-1-2) // no room for one more cluster
	})
	w.told(w.Local, "a", dependents.EventFailed, "Too long")
	eventually(t, "the status says that the second one is not done", func() bool {
		s := dependents.Summarize(told.of("a"))
		return s.Targets == 2 && s.Done < 2
	})
}
