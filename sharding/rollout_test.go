package sharding

import (
	"fmt"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// A replica of the new revision comes, then one of the old leaves, as a Deployment does it with maxSurge 1.
func TestARollingUpdateMovesEachMemberAboutOnce(t *testing.T) {
	t.Parallel()
	const members, replicas = 60, 3
	s := newScene(t, members)
	revision := func(of string) func(*Options) { return func(o *Options) { o.Revision = of } }
	before, after := make([]*actor, 0, replicas), make([]*actor, 0, replicas)
	for i := range replicas {
		before = append(before, s.start(fmt.Sprint("old-", i), revision("1")))
	}
	s.becomesShared(before...)
	settled := func(among *actor) func() bool {
		return func() bool {
			status := among.replica.Status()
			return len(status.Moves) == 0 && status.MembersWithoutOwner == 0 && status.MaxOverMean <= 1.1 && len(s.owners()) == members
		}
	}
	stage.Eventually(t, "nothing moves", settled(before[0]))
	moved := s.ledger.takings()
	for i, old := range before {
		fresh := s.start(fmt.Sprint("new-", i), revision("2"))
		stage.Eventually(t, "a new replica has joined", fresh.isIn(Active))
		old.stop()
		after = append(after, fresh)
	}
	stage.Eventually(t, "nothing moves any more", settled(after[0]))
	each := float64(s.ledger.takings()-moved) / members
	t.Logf("each member has moved %.2f times", each)
	if each > 1.5 {
		t.Errorf("each member has moved %.2f times, want about once", each)
	}
	s.becomesShared(after...)
}
