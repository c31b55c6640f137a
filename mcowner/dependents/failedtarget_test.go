package dependents

import (
	"slices"
	"testing"
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
