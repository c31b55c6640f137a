package dependents

import (
	"slices"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestAClusterThatIsNoTargetAnyMoreHaltsNoRollout, also if it cannot be looked at since it has failed.
func TestAClusterThatIsNoTargetAnyMoreHaltsNoRollout(t *testing.T) {
	t.Parallel()
	p := (*progress)(nil).next(Rollout{HaltAfter: 1}, hash{})
	p.held["bad"] = true
	p.note("bad", failed)
	if err := p.ask("good", 2); !p.isHalted() || err == nil {
		t.Fatal("a cluster that has failed halts nothing")
	}
	if !slices.Contains(p.involved(), "bad") {
		t.Error("nobody looks whether the one that has failed is a target")
	}
	p.left("bad")
	if p.isHalted() {
		t.Errorf("a cluster that is no target any more halts the rollout: %v", p.ask("good", 1))
	}
}

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
			if got := a.o.progress.lookedAt(); slices.Contains(got, "went") || !slices.Contains(got, "stays") {
				t.Errorf("this is known of: %v", got)
			}
		})
	}
}
