package dependents_test

import (
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestAnOwnerWithoutAUserHoldsUpNoMemberThatLeaves: User panics for it.
func TestAnOwnerWithoutAUserHoldsUpNoMemberThatLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.User = func(owner mcreconcile.Request) string {
		if owner.Name == "bad" {
			panic("no user")
		}
		return ""
	}
	p := w.run(r)
	w.create(w.Local, w.owner("good", one.Name))
	w.create(w.Local, w.owner("bad", one.Name))
	w.isCopied(one, "good")
	w.told(w.Local, "bad", dependents.EventFailed, "panic")
	p.leave(one)
}

// TestAnOwnerWithTooManyKindsHoldsUpNoMemberThatLeaves: its record can be neither read nor stored.
func TestAnOwnerWithTooManyKindsHoldsUpNoMemberThatLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	p := w.run(w.spread())
	w.create(w.Local, w.owner("bad", one.Name))
	w.isCopied(one, "bad")
	eventually(t, "the program is at rest", p.isAtRest)
	w.change(w.Local, "bad", func(cm *corev1.ConfigMap) { cm.Annotations[kindsKey] = tooManyKinds() })
	w.told(w.Local, "bad", dependents.EventFailed, "more than 256")
	p.leave(one)
}

// TestAnOwnerInAClusterThatIsAwayHoldsUpNoMemberThatLeaves as it is: nothing is to be done there.
func TestAnOwnerInAClusterThatIsAwayHoldsUpNoMemberThatLeaves(t *testing.T) {
	t.Parallel()
	w := newWorldIn(t, mctest.Start(t, mctest.Options{Clusters: 2}))
	w.probeTimeout = 500 * time.Millisecond
	one, two := w.Members[0], w.Members[1]
	p, _ := w.runFromMember(w.fromMembers(dependents.LeaveAsIs))
	eventually(t, "the program is at rest", p.isAtRest)
	one.Freeze(t)
	p.is(one, fleet.Unreachable)
	p.leave(two)
}

// TestAnOwnerInAMemberThatIsPausedHoldsUpNoMemberThatLeaves as it is: its record is not stored before the pause is over.
func TestAnOwnerInAMemberThatIsPausedHoldsUpNoMemberThatLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.fromMembers(dependents.LeaveAsIs)
	var paused atomic.Bool
	p := w.runWith(func(mgr mcmanager.Manager) error {
		mgr.GetFleet().HoldBy(func(name fleet.ClusterName) fleet.Hold {
			return fleet.Hold{Paused: paused.Load() && name == fleet.ClusterName(one.Name)}
		})
		return r.SetupWithManager(mgr)
	})
	w.create(one, w.owner("a", two.Name))
	before := w.isCopied(two, "a")
	eventually(t, "the program is at rest", p.isAtRest)
	paused.Store(true)
	p.GetFleet().HoldChanged(fleet.ClusterName(one.Name))
	p.leave(two)
	w.unharmed(two, before)
}
