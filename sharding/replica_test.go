package sharding

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

func TestOneReplicaOwnsAllMembers(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	begun := time.Now()
	a := s.start("a")
	s.becomesShared(a)
	a.stop()
	if left := s.leases(); len(left) != 1 || left[0].Name != "test.table" {
		t.Errorf("left are %d Leases, want the table alone: %v", len(left), left)
	}
	table, err := protocol.Decode(s.table().Annotations[annotationBuckets])
	if err != nil {
		t.Fatal(err)
	}
	// One that replaces a table which was deleted has to be newer than that, of which a replica that has just begun knows nothing.
	if least := begun.UnixMilli(); table.Gen < least || slices.Min(table.Epoch) < least {
		t.Errorf("the table is of generation %d, and its epochs begin at %d, want both after %d", table.Gen, slices.Min(table.Epoch), least)
	}
}

func TestThreeReplicasShareMembersWithoutOverlap(t *testing.T) {
	t.Parallel()
	s := newScene(t, 60)
	a, b, c := s.start("a"), s.start("b"), s.start("c")
	s.becomesShared(a, b, c)
	begun := time.Now()
	b.stop()
	t.Logf("b left within %s", time.Since(begun))
	s.becomesShared(a, c)
	d := s.start("d")
	s.becomesShared(a, c, d)
	stage.Eventually(t, "nothing moves any more", func() bool {
		status := a.replica.Status()
		return len(status.Moves) == 0 && status.MaxOverMean <= 1.1 && status.MembersWithoutOwner == 0
	})
}

func TestWhatAKilledReplicaOwnedIsTakenOverAfterTheLease(t *testing.T) {
	t.Parallel()
	s := newScene(t, 30)
	a, b, c := s.start("a"), s.start("b"), s.start("c")
	s.becomesShared(a, b, c)
	begun := time.Now()
	a.kill()
	stage.Within(t, s.lease+2*time.Second, "the others own all members", func() bool {
		return len(b.holds())+len(c.holds()) == 30
	})
	t.Logf("taken over %s after the kill, with a lease of %s", time.Since(begun), s.lease)
}

// A replica is asked to end at the moment at which it creates its session, and never hears that this has worked. Members would be
// given to it.
func TestAReplicaThatEndsWhileItBeginsLeavesNoSession(t *testing.T) {
	t.Parallel()
	s := newScene(t, 10)
	s.lease = 10 * leaseOfTests // so that there is time to delete it, on a busy machine too
	a := s.start("a")
	s.becomesShared(a)
	b := s.prepare("b")
	b.faults.set(func(req *http.Request) fault {
		if req.Method != http.MethodPost {
			return pass
		}
		b.cancel()
		return lose
	})
	b.run()
	<-b.ended
	if left := s.leases(); len(left) != 2 {
		t.Errorf("%d Leases are left, want the table and that of the other replica: %v", len(left), left)
	}
}
