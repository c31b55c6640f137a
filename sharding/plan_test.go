package sharding

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
)

func TestWhatComesSettlesForAsLongAsItSaysAndNoLonger(t *testing.T) {
	t.Parallel()
	const after = 5 * time.Second
	at := func(d time.Duration) instant { return instant{mono: time.Hour + d} }
	s := settling{after: after}
	if left := s.left(at(0)); left != 0 {
		t.Errorf("%s are left although nothing has come", left)
	}
	s.came(at(0))
	if left := s.left(at(time.Second)); left != 4*time.Second {
		t.Errorf("%s are left after a second, want 4", left)
	}
	for d := time.Second; d < 40*time.Second; d += time.Second { // one after the other
		s.came(at(d))
		if want := min(after, settleAtMost*after-d); s.left(at(d)) != want {
			t.Errorf("%s are left after %s, want %s", s.left(at(d)), d, want)
		}
	}
	s.planned()
	if left := s.left(at(40 * time.Second)); left != 0 {
		t.Errorf("%s are left although all is planned", left)
	}
	s.came(at(60 * time.Second))
	if left := s.left(at(60 * time.Second)); left != after {
		t.Errorf("%s are left of what came much later, want %s", left, after)
	}
	s.came(at(80 * time.Second))
	if left := s.left(at(80 * time.Second)); left != after {
		t.Errorf("%s are left of what came after a pause, want %s", left, after)
	}
}

// turnOf returns a turn of a replica that is in a table with another one, of which nothing was heard.
func turnOf(t *testing.T, c *manual, change func(*protocol.Table)) *turn {
	t.Helper()
	r, table := seated(t, c)
	next := table.Next()
	change(next)
	r.take(next)
	r.table.lease = &coordinationv1.Lease{}
	c.pass(time.Minute, time.Minute) // so that all has settled
	r.session.sentAt[2] = c.now()
	r.session.worked(2)
	turn, err := r.beginTurn(r.session, &progress{Replica: r, begun: c.now()})
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// free makes a bucket that of nobody.
func free(b int) func(*protocol.Table) {
	return func(table *protocol.Table) { table.Owner[b] = "" }
}

func TestAPlanIsANewGenerationAndGivesNothingToTheSilent(t *testing.T) {
	t.Parallel()
	turn := turnOf(t, &manual{at: instant{mono: time.Hour, wall: time.Now().Round(0)}}, free(1))
	turn.plan()
	if turn.next == nil || turn.next.Gen != turn.was.Gen+1 || turn.next.Owner[1] != turn.s.name {
		t.Fatalf("the plan is %+v, want a new generation in which the bucket is this replica's", turn.next)
	}
	if len(turn.steps) != 1 {
		t.Errorf("the steps are %+v, want one", turn.steps)
	}
}

// TestNothingMovesInTheWriteThatLetsAReplicaJoin: others may join right after it.
func TestNothingMovesInTheWriteThatLetsAReplicaJoin(t *testing.T) {
	t.Parallel()
	turn := turnOf(t, &manual{at: instant{mono: time.Hour, wall: time.Now().Round(0)}}, func(*protocol.Table) {})
	if in, _ := turn.planInput(); in.Settling {
		t.Fatal("nothing has joined, and it settles")
	}
	if err := turn.change().Join(protocol.Member{Session: "new", Revision: turn.opts.Revision, Capacity: 1}); err != nil {
		t.Fatal(err)
	}
	if in, ok := turn.planInput(); !ok || !in.Settling {
		t.Errorf("the plan of the table with the new replica settles: %v, it is made: %v; want both", in.Settling, ok)
	}
}

func TestAReplicaPlansAgainOnlyIfSomethingHasChanged(t *testing.T) {
	t.Parallel()
	c := &manual{at: instant{mono: time.Hour, wall: time.Now().Round(0)}}
	turn := turnOf(t, c, func(*protocol.Table) {})
	if _, ok := turn.planInput(); !ok {
		t.Error("the first plan is not made")
	}
	if _, ok := turn.planInput(); ok {
		t.Error("a plan is made although nothing has changed")
	}
	turn.change()
	if _, ok := turn.planInput(); !ok {
		t.Error("no plan is made for a table that has just changed")
	}
	turn.next = nil
	c.pass(turn.times.lease, turn.times.lease)
	turn.now = c.now()
	if _, ok := turn.planInput(); !ok {
		t.Error("no plan is made for so long that what nobody tells may have changed")
	}
}

func TestSeveralRevisionsAreBalancedOnceTheyHaveStayedForLong(t *testing.T) {
	t.Parallel()
	turn := turnOf(t, &manual{at: instant{mono: time.Hour, wall: time.Now().Round(0)}}, func(table *protocol.Table) { table.Sessions[1].Revision = "new" })
	if turn.isStalled() {
		t.Error("a rolling update that has just begun is stalled")
	}
	turn.now.mono += stalledAfter
	if turn.isStalled() {
		t.Error("a rolling update is stalled too early")
	}
	turn.now.mono++
	if !turn.isStalled() {
		t.Error("a rolling update is not stalled although it has stayed for long")
	}
	turn.was.Sessions[1].Revision = ""
	if turn.isStalled() {
		t.Error("one revision is a rolling update")
	}
	turn.was.Sessions[1].Revision = "newer"
	if turn.isStalled() {
		t.Error("the next rolling update is stalled at once")
	}
}

// A replica that is to end, and whose API server does not answer, waits a little, and says that nobody was told.
func TestAReplicaThatIsToEndGivesTheTableAWhile(t *testing.T) {
	t.Parallel()
	c := &manual{at: instant{mono: time.Hour, wall: time.Now().Round(0)}}
	turn := turnOf(t, c, func(*protocol.Table) {})
	l, s := turn.l, turn.s
	l.joined = true
	tenure := turn.Own("m", keyed(keyIn(0))).Tenure
	l.begin(s)
	if tenure.Over() == nil || !s.draining.Load() || len(s.hurry) != 1 {
		t.Error("a tenure goes on, or the others are not told soon")
	}
	for _, tc := range []struct {
		release bool
		pass    time.Duration
		left    bool
	}{{false, time.Minute, false}, {true, 0, false}, {false, turn.times.renew, false}, {false, 1, true}} {
		if tc.release {
			tenure.Release()
		}
		c.pass(tc.pass, tc.pass)
		if l.look(s); l.left != tc.left || l.told {
			t.Errorf("after %+v it has left: %t, and told it: %t", tc, l.left, l.told)
		}
	}
	gone := turn.was.Next()
	if err := gone.Bury(s.name); err != nil {
		t.Fatal(err)
	}
	turn.take(gone)
	if l.look(s); !l.told {
		t.Error("a session that is in no table any more is not known to have left")
	}
}
