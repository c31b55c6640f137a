package sharding

import (
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// skewed is a clock that goes at another rate, and whose wall time can be set.
type skewed struct {
	rate  float64
	begin time.Time

	mu   sync.Mutex // guards what follows
	set  time.Duration
	mono *time.Duration // where the monotonic clock stands still, nil if it goes
}

func newSkewed(rate float64) *skewed { return &skewed{rate: rate, begin: time.Now()} }

func (c *skewed) now() instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := time.Duration(float64(time.Since(c.begin)) * c.rate)
	at := instant{mono: gone, wall: c.begin.Round(0).Add(gone + c.set)}
	if c.mono != nil {
		at.mono = *c.mono
	}
	return at
}

func (c *skewed) real(d time.Duration) time.Duration { return time.Duration(float64(d) / c.rate) }

// jump sets the wall clock forward, or back.
func (c *skewed) jump(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set += by
}

// stop makes the monotonic clock stand still from now on.
func (c *skewed) stop() {
	at := c.now().mono
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mono = &at
}

// manual is a clock that a test moves.
type manual struct{ at instant }

func (c *manual) now() instant                     { return c.at }
func (*manual) real(d time.Duration) time.Duration { return d }

func (c *manual) pass(mono, wall time.Duration) {
	c.at.mono += mono
	c.at.wall = c.at.wall.Add(wall)
}

func TestASessionIsOverByEitherClock(t *testing.T) {
	t.Parallel()
	times := timesOf(15 * time.Second)
	for name, tc := range map[string]struct {
		mono, wall time.Duration
		want       time.Duration
	}{
		"NothingPassed":            {0, 0, 8 * time.Second},
		"BothPassed":               {3 * time.Second, 3 * time.Second, 5 * time.Second},
		"MonotonicStoodStill":      {0, time.Minute, -52 * time.Second},
		"WallWasSetBack":           {3 * time.Second, -time.Hour, 5 * time.Second},
		"WallWasSetBackForTooLong": {9 * time.Second, -time.Hour, -time.Second},
		"WallWasSetForward":        {time.Second, time.Hour, 8*time.Second - time.Hour},
		"JustOver":                 {8 * time.Second, 8 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &manual{at: instant{wall: time.Now().Round(0)}}
			s := &session{clock: c, times: times, log: logr.Discard(), told: func() {}, sentAt: map[int64]instant{1: c.now()}}
			if !s.worked(1) {
				t.Fatal("a renewal that was sent does not count")
			}
			c.pass(tc.mono, tc.wall)
			if got := s.remaining(); got != tc.want {
				t.Errorf("valid for %s, want %s", got, tc.want)
			}
		})
	}
}

// Clocks may go at 0.7 and 1.3 of the true rate: what a session believes to be valid ends before anybody else fences it.
func TestASessionEndsBeforeOthersFenceItWhereverClocksGoBetween07And13(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{time.Second, 3 * time.Second, 15 * time.Second, 137 * time.Second, longestLease} {
		times := timesOf(lease)
		slow := time.Duration(float64(times.valid) / 0.7) // true time until the slowest clock says that it is over
		fast := time.Duration(float64(times.lease) / 1.3) // true time until the fastest says that it was silent
		if slow >= fast {
			t.Errorf("lease %s: a session may work for %s, and be fenced after %s", lease, slow, fast)
		}
		if times.renew+times.try > times.valid {
			t.Errorf("lease %s: one renewal that fails suspends a replica", lease)
		}
	}
}

func TestSilenceIsCountedByTheMonotonicClockAlone(t *testing.T) {
	t.Parallel()
	then := instant{mono: time.Second, wall: time.Now().Round(0)}
	now := instant{mono: 2 * time.Second, wall: then.wall.Add(time.Hour)}
	if got := now.since(then); got != time.Second {
		t.Errorf("silent for %s, want a second: the wall clock was set", got)
	}
}
