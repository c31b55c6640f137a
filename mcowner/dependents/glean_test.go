package dependents

import (
	"slices"
	"testing"

	"k8s.io/client-go/util/workqueue"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestAMemberThatCannotBeVisitedNowIsLookedIntoWhenItCan: a look for what an owner left goes on with the next one meanwhile.
func TestAMemberThatCannotBeVisitedNowIsLookedIntoWhenItCan(t *testing.T) {
	t.Parallel()
	a := newAccounting(t, config{}, &plan{})
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[work]())
	defer queue.ShutDown()
	if err := a.engine.works.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	const away mcreconcile.ClusterName = "away" // which is not in the fleet
	if err := a.engine.glean(t.Context(), work{a.o.req, away, glean}); err != nil {
		t.Fatal(err)
	}
	all := make([]work, queue.Len())
	for i := range all {
		all[i], _ = queue.Get()
	}
	if !slices.Contains(all, a.engine.placing(a.o.req, away)) {
		t.Errorf("what is to be done is %v", all)
	}
}
