// Package pulse tells when a reconcile does nothing but wait for clusters that do not answer.
package pulse

import (
	"context"
	"sync"
	"time"
)

// SilentAfter is how long nothing may come of the clusters that a reconcile waits for until they are silent.
const SilentAfter = 10 * time.Millisecond

// Seat is what a reconcile takes up while it works. Its methods are called by turns, never at the same time, and not after
// [Pulse.End]. They must be fast.
type Seat interface {
	// Yield says that the reconcile waits for a silent cluster, and for no other than its own if it is that one.
	Yield(to string)
	// Reclaim says that it waits no longer, or has asked again.
	Reclaim()
}

// Pulse is the context of one reconcile, and follows what it waits for. Whatever asks a cluster, or waits for it in another
// way, says so by Wait and Heard. The reconcile yields its seat when it waits for at least one cluster, and for SilentAfter
// has neither begun to wait nor heard anything. What it does beside waiting, in another goroutine, is not seen.
//
// It is safe for concurrent use once Begin was called. A nil pointer does nothing.
type Pulse struct {
	context.Context //nolint:containedctx // it is a context
	own             string
	seat            Seat

	mu      sync.Mutex // guards what follows, and is held while the seat is called
	waiting int
	forOwn  int         // of these, for the reconcile's own cluster
	other   string      // that it began to wait for last, if it was not its own
	beat    time.Time   // when it began to wait, or heard something, last
	timer   *time.Timer // nil before it first waits
	armed   bool
	yielded bool
	over    bool
}

type pulseKey struct{}

// Begin makes the pulse the context of a reconcile of a cluster. End ends it. A pulse begins once.
func (p *Pulse) Begin(ctx context.Context, own string, seat Seat) {
	p.Context, p.own, p.seat = ctx, own, seat
}

// From returns the pulse of the reconcile that a context belongs to, or nil.
func From(ctx context.Context) *Pulse {
	p, _ := ctx.Value(pulseKey{}).(*Pulse)
	return p
}

// Value implements context.Context.
func (p *Pulse) Value(key any) any {
	if key == (pulseKey{}) {
		return p
	}
	return p.Context.Value(key)
}

// Wait says that the reconcile waits for a cluster from now on. It may do so several times at once.
func (p *Pulse) Wait(to string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting++
	if to == p.own {
		p.forOwn++
	} else {
		p.other = to
	}
	p.beatLocked()
}

// Heard ends one Wait for a cluster.
func (p *Pulse) Heard(from string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
	if from == p.own {
		p.forOwn--
	}
	p.beatLocked()
}

// End says that the reconcile has ended. The seat is not called any more.
func (p *Pulse) End() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
}

func (p *Pulse) beatLocked() {
	if p.over {
		return
	}
	p.beat = time.Now()
	if p.yielded {
		p.yielded = false
		p.seat.Reclaim()
	}
	if p.waiting > 0 && !p.armed {
		p.armLocked(SilentAfter)
	}
}

// armLocked sets the timer. It is not set anew at each beat: when it rings, it may be too early.
func (p *Pulse) armLocked(after time.Duration) {
	p.armed = true
	if p.timer == nil {
		p.timer = time.AfterFunc(after, p.ring)
		return
	}
	p.timer.Reset(after)
}

func (p *Pulse) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = false
	if p.over || p.waiting == 0 {
		return
	}
	if quiet := time.Since(p.beat); quiet < SilentAfter {
		p.armLocked(SilentAfter - quiet)
		return
	}
	p.yielded = true
	if p.forOwn > 0 {
		p.seat.Yield(p.own)
	} else {
		p.seat.Yield(p.other)
	}
}
