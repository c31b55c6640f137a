package sharding

import (
	"context"
	"time"
)

// clock tells the time in two ways. Neither can be trusted alone: a monotonic clock may stand still while a machine sleeps, and
// the wall clock may be set.
type clock interface {
	now() instant
	// real returns how long the timers of the runtime must run until the clock has gone on by d.
	real(d time.Duration) time.Duration
}

// instant is a moment as one clock tells it.
type instant struct {
	mono time.Duration // since some moment
	wall time.Time     // without the reading of a monotonic clock
}

// since returns how long ago an instant was, at least: by the monotonic clock. It never goes back.
func (i instant) since(then instant) time.Duration { return i.mono - then.mono }

// atMostSince returns how long ago an instant may have been: by the clock that says more.
func (i instant) atMostSince(then instant) time.Duration {
	return max(i.mono-then.mono, i.wall.Sub(then.wall))
}

// systemClock is the machine's.
type systemClock struct{ begin time.Time }

func (c systemClock) now() instant {
	now := time.Now()
	return instant{mono: now.Sub(c.begin), wall: now.Round(0)}
}

func (systemClock) real(d time.Duration) time.Duration { return d }

// timer fires when the clock has gone on by d.
func timer(c clock, d time.Duration) *time.Timer { return time.NewTimer(c.real(max(0, d))) }

// within returns a context that ends when the clock has gone on by d.
func within(ctx context.Context, c clock, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.real(d))
}
