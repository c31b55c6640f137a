package fleet

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// health finds out whether an engaged member can be reached. Traffic that works proves it. A request that fails, or
// silence, leads to probes, and several of those in a row with the same answer to a change of state.
//
// It has no goroutine but while it probes: most members are silent most of the time.
type health struct {
	opts   HealthOptions
	link   link
	report func(State, error)
	denied func() // the server does not accept the credentials, or its certificate is not trusted

	checks sync.WaitGroup

	mu       sync.Mutex      // guards what follows
	ctx      context.Context //nolint:containedctx // how long to watch, nil before
	due      *time.Timer     // of the next check
	checking bool            // one check at a time
	probed   time.Time       // the end of the last probe
	state    State
	sign     time.Time     // the last sign of life, zero when a request failed since
	answered time.Time     // the last answer to a request
	redialed bool          // since the member is Unreachable
	inRow    int           // probes in a row that speak against state
	restored chan struct{} // closed and made anew when the member is Ready again
}

// link is the way to the member.
type link interface {
	// probe asks the API server whether it is ready.
	probe(ctx context.Context) error
	// verify asks whether it is still the member's cluster that answers.
	verify(ctx context.Context) error
	// redial closes the connections, so that the next probe makes a new one.
	redial()
	// heard returns when bytes last arrived.
	heard() time.Time
}

func newHealth(opts HealthOptions, link link, report func(State, error), denied func()) *health {
	return &health{
		opts: opts, link: link, report: report, denied: denied,
		state: Ready, sign: time.Now(), answered: time.Now(), restored: make(chan struct{}),
	}
}

// watch probes when it must, until ctx is done. The returned function waits for the probe that is under way then.
func (h *health) watch(ctx context.Context) (wait func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ctx = ctx
	h.due = time.AfterFunc(h.opts.ProbeInterval, h.check)
	return func() {
		h.mu.Lock()
		h.due.Stop()
		h.mu.Unlock()
		h.checks.Wait()
	}
}

// check probes if there is a reason, and says when there may be the next.
func (h *health) check() {
	ctx, ok := h.begin()
	if !ok {
		return
	}
	defer h.checks.Done()
	pause := h.untilProbe(time.Now())
	if pause <= 0 {
		attempt, cancel := context.WithTimeout(ctx, h.opts.ProbeTimeout)
		err := h.ask(attempt)
		cancel()
		if ctx.Err() == nil {
			pause = h.judge(time.Now(), err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checking = false
	if h.doubtfulLocked() { // a request failed just after the probe was answered
		pause = h.untilNextLocked()
	}
	if ctx.Err() == nil {
		h.due.Reset(pause)
	}
}

// ask probes. What makes an Unreachable member Ready again must be the member's cluster.
func (h *health) ask(ctx context.Context) error {
	if err := h.link.probe(ctx); err != nil {
		return err
	}
	h.mu.Lock()
	away := h.state == Unreachable
	h.mu.Unlock()
	if !away {
		return nil
	}
	return h.link.verify(ctx)
}

// untilNextLocked returns how long a probe must wait for which there is a reason.
func (h *health) untilNextLocked() time.Duration {
	return max(0, h.opts.RetryInterval-time.Since(h.probed))
}

func (h *health) begin() (ctx context.Context, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.checking || h.ctx.Err() != nil {
		return nil, false
	}
	h.checking = true
	h.checks.Add(1)
	return h.ctx, true
}

// doubtfulLocked reports whether a request failed, and no probe has tried to find out why. While probes are under way at
// the shorter interval, requests that fail by the dozen must not hasten them.
func (h *health) doubtfulLocked() bool {
	return h.sign.IsZero() && h.state == Ready && h.inRow == 0
}

// untilProbe says how long there is no need to ask. Silence shorter than the interval needs no probe, unless a request
// failed after the last that worked.
func (h *health) untilProbe(now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == Unreachable || h.inRow > 0 || h.sign.IsZero() {
		return 0
	}
	return min(h.opts.ProbeInterval-now.Sub(h.sign), eventsSuffice*h.opts.ProbeInterval-now.Sub(h.answered))
}

// eventsSuffice is for how many intervals the events of watches take the place of an answer. They show that the server
// can reach us, and not that we can reach it.
const eventsSuffice = 6

// judge counts a probe and returns the pause until the next.
func (h *health) judge(now time.Time, err error) (pause time.Duration) {
	if apierrors.IsUnauthorized(err) || isCertificateError(err) {
		h.denied()
	}
	state, changed := h.count(now, err)
	if changed || state == Unreachable && err != nil {
		h.report(state, err)
	}
	if state == Unreachable && isTimeout(err) && h.mayRedial(now) {
		// The connection may have died without a word, and new ones may work: those of a server that has failed over,
		// or behind a gateway that has forgotten it. HTTP/2's own pings would take 45 seconds to find out.
		h.link.redial()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == Ready && h.inRow == 0 {
		return h.opts.ProbeInterval
	}
	return h.opts.RetryInterval
}

// mayRedial reports whether the connections shall be closed, which happens once in an outage. A server that is slow still
// sends something, such as a long list, which would never be complete if it were cut again and again.
func (h *health) mayRedial(now time.Time) bool {
	if now.Sub(h.link.heard()) < h.opts.ProbeTimeout {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	first := !h.redialed
	h.redialed = true
	return first
}

// lost notes that what answers is another cluster. No probes are needed to believe that.
func (h *health) lost(why error) {
	h.mu.Lock()
	h.state, h.inRow, h.sign = Unreachable, 0, time.Time{}
	if h.due != nil && !h.checking && h.ctx.Err() == nil {
		h.due.Reset(h.opts.RetryInterval)
	}
	h.mu.Unlock()
	h.report(Unreachable, why)
}

// count applies the thresholds: a state changes when as many probes in a row speak against it.
func (h *health) count(now time.Time, err error) (state State, changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probed = now
	if err == nil {
		h.sign, h.answered = now, now
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
		h.state, h.redialed = Ready, false
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
	h.sign = time.Now()
	h.answered = h.sign
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
	if h.state == Ready && h.inRow == 0 && !h.sign.IsZero() {
		h.sign = time.Now()
	}
}

// failed notes that a request was not answered, or that its credentials were refused: a probe shall tell.
func (h *health) failed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sign = time.Time{}
	if h.due != nil && !h.checking && h.doubtfulLocked() && h.ctx.Err() == nil {
		h.due.Reset(h.untilNextLocked())
	}
}

// isRestored returns a channel that is closed when the member becomes Ready again.
func (h *health) isRestored() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.restored
}
