package fleet

import (
	"context"
	"math/rand/v2"
	"time"
)

// round is what is known of the probes that are under way. Their answers count for no other round: another question is
// asked by then.
type round struct {
	n        int
	underWay int
	first    time.Time     // when the first of them began
	last     time.Time     // when the last one began
	pause    time.Duration // from then until the next, of an Unreachable member
}

// next begins another round.
func (r *round) next() { r.n, r.underWay = r.n+1, 0 }

// drawIntervalLocked draws the next interval, so that members which were asked together are not asked together again.
func (h *health) drawIntervalLocked() {
	h.interval = h.opts.ProbeInterval - rand.N(h.opts.ProbeInterval/10+1) //nolint:gosec // it hides nothing
}

// eventsSuffice is for how many intervals the events of watches take the place of an answer. They show that the server
// can reach us, and not that we can reach it.
const eventsSuffice = 6

// nextLocked returns when there is a reason for the next probe, zero if that is not known before those under way have ended.
func (h *health) nextLocked() time.Time {
	inDoubt := h.doubt || h.inRow > 0 || h.round.underWay > 0
	switch {
	case h.state == Unreachable && h.round.underWay > 0, h.round.underWay >= h.opts.FailureThreshold:
		return time.Time{}
	case h.state == Unreachable:
		return h.round.last.Add(h.round.pause)
	case inDoubt: // requests that fail by the dozen do not hasten the probes
		return h.round.last.Add(h.opts.RetryInterval)
	}
	next := h.sign.Add(h.interval)
	if at := h.answered.Add((eventsSuffice-1)*h.opts.ProbeInterval + h.interval); at.Before(next) {
		next = at
	}
	if at := h.doubtfulLocked(); !at.IsZero() && at.Before(next) {
		next = at
	}
	return next
}

// doubtfulLocked returns when a request that is under way casts doubt on the member, zero if there is none.
func (h *health) doubtfulLocked() time.Time {
	return h.exchanges.doubtful(h.lastAnswerLocked(), h.opts.RetryInterval/2, h.opts.ProbeInterval)
}

// lastAnswerLocked is when a request was answered, or a part of an answer arrived.
func (h *health) lastAnswerLocked() time.Time {
	if arrived := h.exchanges.arrived(eventsSuffice * h.opts.ProbeInterval); arrived.After(h.answered) {
		return arrived
	}
	return h.answered
}

// planLocked is plan.
func (h *health) planLocked() {
	if h.timer == nil || h.ctx.Err() != nil {
		return
	}
	if next := h.nextLocked(); !next.IsZero() && !next.Equal(h.due) {
		h.dueLocked(next)
	}
}

// hastenLocked is planLocked for what can only bring the next probe forward. The timer may fire too early: most
// of the time it would be set in vain.
func (h *health) hastenLocked(next time.Time) {
	if h.timer != nil && next.Before(h.due) && h.ctx.Err() == nil {
		h.dueLocked(next)
	}
}

// dueLocked sets the timer, or checks at once. A timer without a delay would do the same. But two such timers of a bubble of
// testing/synctest run on their callers' threads, and kill the race detector (go.dev/issue/78156). As the timer's, the check does nothing
// once ctx is done.
func (h *health) dueLocked(next time.Time) {
	h.due = next
	if left := time.Until(next); left > 0 {
		h.timer.Reset(left)
		return
	}
	h.timer.Stop()
	go h.check()
}

// check probes if there is a reason.
func (h *health) check() {
	h.mu.Lock()
	h.due = time.Time{}
	next := h.nextLocked()
	if h.ctx.Err() != nil || next.IsZero() || time.Now().Before(next) {
		h.planLocked()
		h.mu.Unlock()
		return
	}
	p := h.beginLocked()
	h.mu.Unlock()
	defer h.checks.Done()
	attempt, cancel := context.WithTimeout(p.ctx, p.timeout)
	defer cancel()
	err := h.ask(attempt, p.away)
	if p.ctx.Err() == nil {
		h.judge(p.round, err, attempt.Err() != nil)
	}
}

// probing is one probe.
type probing struct {
	ctx     context.Context //nolint:containedctx // it is handed from one line to the next
	round   int
	timeout time.Duration
	away    bool // the member is Unreachable
}

// beginLocked notes a probe. The next one does not wait for it, unless the member is Unreachable. Then the probe may take
// several turns: it costs nothing while it waits, and a server that is back answers it at once.
func (h *health) beginLocked() probing {
	h.checks.Add(1)
	now := time.Now()
	r := &h.round
	if r.underWay == 0 {
		r.first = now
	}
	r.underWay++
	r.last = now
	p := probing{ctx: h.ctx, round: r.n, timeout: h.opts.ProbeTimeout, away: h.state == Unreachable}
	if p.away {
		r.pause = h.pause(jittered(h.opts.RetryInterval))
		p.timeout = max(p.timeout, patience*r.pause)
	}
	h.planLocked()
	return p
}

// ask probes. What makes an Unreachable member Ready again must be the member's cluster.
func (h *health) ask(ctx context.Context, away bool) error {
	if err := h.link.probe(ctx); err != nil || !away {
		return err
	}
	return h.link.verify(ctx)
}

// plan sets the timer to the next probe.
func (h *health) plan() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.planLocked()
}
