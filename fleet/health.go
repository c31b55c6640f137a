package fleet

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// health finds out whether an engaged member can be reached. Traffic that works proves it. A request that fails, or
// silence, leads to probes, and several of those in a row with the same answer to a change of state.
type health struct {
	opts   HealthOptions
	probe  func(context.Context) error
	report func(State, error)
	denied func()        // the server does not accept the credentials
	redial func()        // closes the connections, so that the next probe makes a new one
	doubt  chan struct{} // has a token when a request failed

	mu       sync.Mutex // guards what follows
	state    State
	heard    time.Time     // zero when a request failed since
	answered time.Time     // the last answer to a request
	inRow    int           // probes in a row that speak against state
	restored chan struct{} // closed and made anew when the member is Ready again
}

func newHealth(opts HealthOptions, probe func(context.Context) error, report func(State, error), denied, redial func()) *health {
	return &health{
		opts: opts, probe: probe, report: report, denied: denied, redial: redial, doubt: make(chan struct{}, 1),
		state: Ready, heard: time.Now(), answered: time.Now(), restored: make(chan struct{}),
	}
}

// watch probes when it must, until ctx is done.
func (h *health) watch(ctx context.Context) {
	timer := time.NewTimer(h.opts.ProbeInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.doubt:
			if h.probing() {
				continue // the next probe is due soon; requests that fail by the dozen must not hasten it
			}
		case <-timer.C:
		}
		pause := h.untilProbe(time.Now())
		if pause <= 0 {
			attempt, cancel := context.WithTimeout(ctx, h.opts.ProbeTimeout)
			err := h.probe(attempt)
			cancel()
			if ctx.Err() != nil {
				return
			}
			pause = h.judge(time.Now(), err)
		}
		timer.Reset(pause)
	}
}

// probing reports whether probes are under way at the shorter interval.
func (h *health) probing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state == Unreachable || h.inRow > 0
}

// untilProbe says how long there is no need to ask. Silence shorter than the interval needs no probe, unless a request
// failed after the last that worked.
func (h *health) untilProbe(now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == Unreachable || h.inRow > 0 || h.heard.IsZero() {
		return 0
	}
	return min(h.opts.ProbeInterval-now.Sub(h.heard), eventsSuffice*h.opts.ProbeInterval-now.Sub(h.answered))
}

// eventsSuffice is for how many intervals the events of watches take the place of an answer. They show that the server
// can reach us, and not that we can reach it.
const eventsSuffice = 6

// judge counts a probe and returns the pause until the next.
func (h *health) judge(now time.Time, err error) (pause time.Duration) {
	if apierrors.IsUnauthorized(err) {
		h.denied()
	}
	state, changed := h.count(now, err)
	if changed || state == Unreachable && err != nil {
		h.report(state, err)
	}
	if state == Unreachable && isTimeout(err) {
		// The connection may have died without a word, and new ones may work: those of a server that has failed over,
		// or behind a gateway that has forgotten it. HTTP/2's own pings would take 45 seconds to find out.
		h.redial()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == Ready && h.inRow == 0 {
		return h.opts.ProbeInterval
	}
	return h.opts.RetryInterval
}

// count applies the thresholds: a state changes when as many probes in a row speak against it.
func (h *health) count(now time.Time, err error) (state State, changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.heard, h.answered = now, now
	}
	if (err == nil) == (h.state == Ready) {
		h.inRow = 0
		return h.state, false
	}
	h.inRow++
	switch {
	case h.state == Ready && h.inRow >= h.opts.FailureThreshold:
		h.state = Unreachable
	case h.state == Unreachable && h.inRow >= h.opts.SuccessThreshold:
		h.state = Ready
		close(h.restored)
		h.restored = make(chan struct{})
	default:
		return h.state, false
	}
	h.inRow = 0
	return h.state, true
}

// worked notes that a request was answered.
func (h *health) worked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard = time.Now()
	h.answered = h.heard
	if h.state == Ready {
		h.inRow = 0
	}
}

// heardEvent notes that a watch brought something. It saves the probe of a silent interval, but answers no doubt: what
// was sent to the server long ago may still flow back when nothing reaches it any more, or when it no longer accepts the
// credentials.
func (h *health) heardEvent() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == Ready && h.inRow == 0 && !h.heard.IsZero() {
		h.heard = time.Now()
	}
}

// failed notes that a request was not answered, or that its credentials were refused: a probe shall tell.
func (h *health) failed() {
	h.mu.Lock()
	h.heard = time.Time{}
	h.mu.Unlock()
	wake(h.doubt)
}

// isRestored returns a channel that is closed when the member becomes Ready again.
func (h *health) isRestored() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.restored
}
