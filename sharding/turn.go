package sharding

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
)

const (
	// batch is how long acknowledgements wait for others.
	batch = 250 * time.Millisecond
	// breath is the least time between two turns, so that a burst of news is one.
	breath = 20 * time.Millisecond
	// stalledAfter is how long several revisions may live side by side until what they own is balanced.
	stalledAfter = 10 * time.Minute
)

// turn is one look of a replica at what it has to write, and the writing. What it knows is a copy, so that nothing is locked while
// it asks the API server. If something changes meanwhile, the write is refused.
type turn struct {
	*Replica
	s     *session
	l     *progress
	now   instant
	lease *coordinationv1.Lease // the table as it was read
	was   *protocol.Table
	// watched is whether what is known of sessions is as new as the table.
	watched bool
	next    *protocol.Table // nil while nothing is to be written
	peers   map[string]*peer
	rank    int // -1 if the session has not joined
	again   time.Duration
	steps   []protocol.Step // of the plan, that are in next
	given   int             // buckets that are acknowledged in next
	took    []time.Duration // how long it took to drain each of them
	input   uint64          // what the plan is made of
	// declines is whether the session ends without having joined.
	declines bool
}

// turn looks once at what is to be done, and does it. It returns when to look again, unless there is news before.
func (r *Replica) turn(ctx context.Context, s *session, l *progress) time.Duration {
	look := min(r.measure(s), r.compare(s))
	again, err := r.tryTurn(ctx, s, l)
	again = min(again, look)
	r.stuck(err)
	if err != nil {
		again = min(again, r.times.step)
	}
	return max(again, breath)
}

func (r *Replica) tryTurn(ctx context.Context, s *session, l *progress) (time.Duration, error) {
	if err := r.knowTable(ctx, s); err != nil || s.over() != nil {
		return r.times.step, err
	}
	t, err := r.beginTurn(s, l)
	if err != nil {
		return r.times.lease, err
	}
	if err := t.join(); err != nil {
		return t.again, err
	}
	t.acknowledge()
	err = t.decide(ctx)
	t.leave()
	if err := errors.Join(err, t.write(ctx)); err != nil || s.over() != nil {
		return t.again, err
	}
	t.collect(ctx)
	return t.again, nil
}

// decide adds to the table what is not about this replica alone.
func (t *turn) decide(ctx context.Context) error {
	if t.rank < 0 || t.s.draining.Load() {
		return nil
	}
	err := t.buryDead(ctx)
	t.joinOthers()
	t.plan()
	return err
}

func (r *Replica) beginTurn(s *session, l *progress) (*turn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &turn{
		Replica: r, s: s, l: l, now: r.clock.now(), again: r.times.lease,
		lease: r.table.lease, was: r.table.content, watched: r.watchedTable == r.table.lease.ResourceVersion,
		peers: maps.Clone(r.peers), input: r.inputs,
	}
	if r.table.problem != nil {
		return nil, errProblem(r.opts.tableName(), r.table.problem)
	}
	t.rank = t.was.Rank(s.name, func(session string) bool {
		p := t.peers[session]
		return t.lives(session, p) && !p.draining()
	})
	return t, nil
}

// lives reports whether a session seems to live.
func (t *turn) lives(session string, p *peer) bool { return t.livesAt(t.now, session, p) }

// look makes the turn be repeated after a while.
func (t *turn) look(after time.Duration) { t.again = min(t.again, max(after, breath)) }

// change returns the table to change.
func (t *turn) change() *protocol.Table {
	if t.next == nil {
		t.next = t.was.Next()
	}
	return t.next
}

func (t *turn) current() *protocol.Table {
	if t.next != nil {
		return t.next
	}
	return t.was
}

// join puts the session into the table, unless the replica that plans may do it: many that join at once would write one against
// the other.
func (t *turn) join() error {
	left := t.times.step - t.now.since(t.l.begun)
	switch {
	case t.was.Has(t.s.name):
		t.hasJoined()
	case t.l.joined:
		t.s.lose(fmt.Errorf("the session %s was lost: it was removed from the table", t.s.name))
		return t.s.over()
	case left > 0 && t.hasPlanner():
		t.look(left)
	case !t.s.draining.Load():
		m := protocol.Member{Session: t.s.name, Revision: t.opts.Revision, Capacity: t.opts.Capacity}
		if err := t.change().Join(m); err != nil {
			return fmt.Errorf("joining the other replicas: %w", err)
		}
	}
	return nil
}

// hasPlanner reports whether a live replica is in the table.
func (t *turn) hasPlanner() bool {
	return slices.ContainsFunc(t.was.Sessions, func(m protocol.Member) bool {
		p := t.peers[m.Session]
		return t.lives(m.Session, p) && !p.draining()
	})
}

// hasJoined tells that the session is in the table.
func (t *turn) hasJoined() {
	if t.l.joined {
		return
	}
	t.l.joined = true
	t.event.joined(t.lease, t.s.name)
	t.log.Info("This replica shares the members now", "session", t.s.name, "replicas", len(t.was.Sessions))
}

// joinOthers puts sessions into the table that wait for that. The first replica does it, once the watch has shown it this table: so it
// knows of each session that said before that it is to end, see leave.
func (t *turn) joinOthers() {
	if t.rank != 0 || !t.watched {
		return
	}
	for session, p := range t.peers {
		if !t.lives(session, p) || p.draining() || p.lease.Annotations[annotationTable] != string(t.lease.UID) || t.was.Has(session) {
			continue
		}
		capacity, err := strconv.Atoi(p.lease.Annotations[annotationCapacity])
		if err == nil {
			err = t.change().Join(protocol.Member{Session: session, Revision: p.lease.Annotations[annotationRevision], Capacity: capacity})
		}
		if err != nil {
			t.log.V(1).Info("Cannot let a replica join", "session", session, "error", oneline.Text(err.Error(), maxError))
		}
	}
}

// acknowledge gives up the buckets for which nothing runs any more, several at once.
func (t *turn) acknowledge() {
	ready, pending := t.drained()
	if len(ready) == 0 {
		t.l.readySince = instant{}
		return
	}
	if t.l.readySince == (instant{}) {
		t.l.readySince = t.now
	}
	if age := t.now.since(t.l.readySince); pending > 0 && age < batch {
		t.look(batch - age)
		return
	}
	t.l.readySince = instant{}
	for _, b := range ready {
		if _, err := t.change().Acknowledge(b, t.s.name); err == nil {
			t.given++
		}
	}
}

// tookLocked notes how long it took to drain buckets that are about to be given up.
func (t *turn) tookLocked(ready []int) {
	for _, b := range ready {
		t.took = append(t.took, t.now.since(t.buckets[b].ended))
	}
}

// drained returns the buckets that are to be given up and can be, and how many cannot yet.
func (t *turn) drained() (ready []int, pending int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.table.content != t.was {
		return nil, 1 // it is another by now: the next turn sees it
	}
	for _, b := range t.was.Due(t.s.name, t.s.draining.Load()) {
		switch {
		case t.buckets[b].tenures == 0, t.patienceEndsLocked(&t.buckets[b]):
			ready = append(ready, b)
		default:
			pending++
		}
	}
	t.tookLocked(ready)
	return ready, pending
}

// patienceEndsLocked reports whether what runs for a bucket has had its time, and as long as anything that was sent before may still
// change something.
func (t *turn) patienceEndsLocked(b *bucket) bool {
	patience := t.opts.DrainTimeout
	if patience <= 0 && t.s.draining.Load() {
		patience = t.opts.HandOverTimeout // nothing else would end it
	}
	if patience <= 0 {
		return false
	}
	left := max(patience, t.times.valid) - t.now.since(b.ended)
	if left > 0 {
		t.look(left)
	}
	return left <= 0
}

// get reads a Lease from the API server's storage.
func (r *Replica) get(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	return ask(ctx, r.hub.writing, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return r.hub.writing.Get(ctx, name, metav1.GetOptions{})
	})
}

// leave takes the session out of the table, if it is about to end and owns nothing any more. One that was never in it writes the table
// once others can read that it is to end: what lets it join, and was decided before, fails then.
func (t *turn) leave() {
	if !t.s.draining.Load() {
		return
	}
	switch own := t.peers[t.s.name]; {
	case !t.l.joined && !t.was.Has(t.s.name):
		if t.declines = own != nil && own.draining(); t.declines {
			t.change()
		}
	case t.current().Has(t.s.name) && len(t.current().Due(t.s.name, true)) == 0:
		_ = t.change().Leave(t.s.name)
	}
}

func (r *Replica) tableNow() *protocol.Table {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.table.content
}
