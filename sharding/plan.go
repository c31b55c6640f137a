package sharding

import (
	"slices"
	"time"

	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
)

// settling knows whether replicas or members have just come. More may follow then.
type settling struct {
	after       time.Duration
	first, last instant
	begun       bool
}

func (s *settling) came(now instant) {
	if !s.begun || now.since(s.last) >= s.after {
		s.first = now
	}
	s.last, s.begun = now, true
}

// planned notes that what came is planned.
func (s *settling) planned() { s.begun = false }

// left returns how long nothing is to move for the sake of balance.
func (s *settling) left(now instant) time.Duration {
	if !s.begun {
		return 0
	}
	return min(s.after-now.since(s.last), settleAtMost*s.after-now.since(s.first))
}

// plan adds to the table what the plan says, if it is this replica's turn.
func (t *turn) plan() {
	in, ok := t.planInput()
	if !ok {
		return
	}
	t.cancelLate()
	in.Keep, in.Most = t.l.keeps(t.now), t.most(in.Replicas)
	planned, steps := protocol.Plan(t.current(), in)
	t.l.allowance.Planned(planned, in, steps)
	if len(steps) > 0 {
		planned.Gen = t.change().Gen
		t.next, t.steps = planned, steps
	}
}

// planInput returns what a plan is made of. The answer is false if it is another replica's turn, or if nothing has changed since
// the last one.
func (t *turn) planInput() (protocol.Input, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if left := time.Duration(t.rank)*t.times.step - t.now.since(t.planFrom); left > 0 {
		t.look(left)
		return protocol.Input{}, false
	}
	if left := t.l.reviewAt - t.now.mono; t.planned == t.input && t.next == nil && left > 0 {
		t.look(left)
		return protocol.Input{}, false
	}
	if left := t.strangers(); left > 0 {
		t.look(left)
		return protocol.Input{}, false
	}
	t.planned = t.input
	in := protocol.Input{Stalled: t.isStalled()}
	in.Weight, _ = t.weightsLocked()
	for _, m := range t.current().Sessions {
		if p := t.peers[m.Session]; m.Session == t.s.name || t.lives(m.Session, p) {
			in.Replicas = append(in.Replicas, protocol.Replica{Session: m.Session, Draining: p != nil && p.draining()})
		}
	}
	in.Settling = t.isSettlingLocked()
	return in, true
}

// isSettlingLocked reports whether what is owned stays where it is. Of a table of which nobody owns anything, the first replica waits for
// others a moment only: those that start together come within that, and one that is alone is not to be without members for long.
func (t *turn) isSettlingLocked() bool {
	if joined(t.was, t.current()) { // in this very write
		t.settling.came(t.now)
	}
	left := t.settling.left(t.now)
	owned := slices.ContainsFunc(t.was.Owner, func(owner string) bool { return owner != "" })
	if !owned {
		left = min(left, t.times.step-t.now.since(t.settling.first))
	}
	t.l.reviewAt = t.now.mono + t.times.lease
	if left <= 0 {
		t.settling.planned()
		return false
	}
	t.l.reviewAt = min(t.l.reviewAt, t.now.mono+left)
	t.look(left)
	return true
}

// strangers returns how long to wait, at least, for sessions that went by a table which was deleted: they may still work.
func (t *turn) strangers() (wait time.Duration) {
	for session, p := range t.peers {
		if p.lease == nil || p.lease.Annotations[annotationTable] == string(t.lease.UID) {
			continue
		}
		if verdict, left := p.judge(session, t.now, t.times.lease, 0); verdict != protocol.Bury {
			wait = max(wait, t.times.step, left) // one that is fenced is news
		}
	}
	return wait
}

// isStalled reports whether several revisions have lived side by side for so long that it is no rolling update.
func (t *turn) isStalled() bool {
	mixed := slices.ContainsFunc(t.was.Sessions, func(m protocol.Member) bool { return m.Revision != t.was.Sessions[0].Revision })
	switch {
	case !mixed:
		t.l.mixedSince = instant{}
	case t.l.mixedSince == (instant{}):
		t.l.mixedSince = t.now
	}
	return mixed && t.now.since(t.l.mixedSince) > stalledAfter
}

// cancelLate lets owners keep what they have not given up for too long, and notes that it stays there for as long again.
func (t *turn) cancelLate() {
	t.mu.Lock()
	moves := t.table.moves
	t.mu.Unlock()
	late := map[string]int{}
	for b, since := range moves {
		owner := t.current().Owner[b]
		p := t.peers[owner]
		if p == nil || p.draining() || owner == t.s.name && t.s.draining.Load() {
			continue
		}
		if left := t.opts.HandOverTimeout - t.now.since(since); left > 0 {
			t.look(left)
			t.l.reviewAt = min(t.l.reviewAt, t.now.mono+left)
			continue
		}
		if t.change().Cancel(b) == nil {
			t.l.keep(b, t.now.mono+t.opts.HandOverTimeout)
			late[owner]++
		}
	}
	for owner, buckets := range late {
		t.log.Info("A replica has not given up what is to move, and keeps it for now", "replica", owner, "buckets", buckets,
			"after", t.opts.HandOverTimeout)
		t.event.late(t.lease, owner, buckets, t.opts.HandOverTimeout)
	}
}
