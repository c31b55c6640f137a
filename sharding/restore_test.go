package sharding

import (
	"testing"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// TestALocalClusterThatIsRestoredFromABackupIsSharedAnew while replicas run: in the backup, one is in the table that has ended since, and
// one is not that has joined since. Another starts at once, and knows of nothing but what was restored. Versions of Leases are counted anew.
func TestALocalClusterThatIsRestoredFromABackupIsSharedAnew(t *testing.T) {
	t.Parallel()
	cp := mctest.Start(t, mctest.Options{}).Local // not of the pool: its storage is replaced
	s := newSceneIn(t, cp, 20)
	early, stays := s.start("early"), s.start("stays")
	s.becomesShared(early, stays)
	restore := cp.Backup(t)
	s.becomesShared(early, stays)
	late := s.start("late")
	s.becomesShared(early, stays, late)
	early.stop()
	s.becomesShared(stays, late)
	before := stays.replica.Status().Generation
	restore()
	knowsNothing := s.start("knows-nothing")
	s.becomesShared(stays, late, knowsNothing)
	stage.Eventually(t, "what is left is a table, and the sessions of those that run", func() bool {
		status := stays.replica.Status()
		return len(s.leases()) == 4 && len(status.Replicas) == 3 && len(status.Moves) == 0 && status.MembersWithoutOwner == 0
	})
	if after := stays.replica.Status().Generation; after <= before {
		t.Errorf("the table is at %d, and was at %d before", after, before)
	}
}
