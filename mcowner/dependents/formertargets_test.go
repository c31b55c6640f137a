package dependents

import (
	"slices"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestNothingIsKnownOfARolloutInClustersThatAreNoTargetsAnyMore: clusters of names that are used once come and go.
func TestNothingIsKnownOfARolloutInClustersThatAreNoTargetsAnyMore(t *testing.T) {
	t.Parallel()
	targets := func(names ...mcreconcile.ClusterName) *plan {
		return &plan{rollout: Rollout{HaltAfter: 2}, targets: names}
	}
	for name, came := range map[string]error{
		"as desired": nil, "refused": errRefused, "not read": &unsynced{errUnanswered}, "away": fleet.ErrNotReady,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccounting(t, config{}, targets("stays", "went"))
			for _, in := range []mcreconcile.ClusterName{"stays", "went"} {
				v, _ := a.o.begin(in)
				a.o.report(in, v, report{Result: Result{Err: came}})
				a.o.end(v)
				a.late(in) // neither can be reported yet
			}
			now := targets("stays")
			now.owner, now.ref = a.o.plan.owner, a.o.plan.ref
			a.o.replan(now, testKeys)
			a.engine.takeBack(a.o)
			if got := a.o.progress.LookedAt(); slices.Contains(got, "went") || !slices.Contains(got, "stays") {
				t.Errorf("this is known of: %v", got)
			}
		})
	}
}
