package fleet

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// health finds out whether an engaged member can be reached. Traffic that works proves it. A request that fails or has no
// answer, or silence, leads to probes, and several of those in a row with the same answer to a change of state.
//
// It has one timer, and no goroutine but while it probes: most members are silent most of the time.
type health struct {
	opts   HealthOptions
	link   link
	report func(State, error)
	denied func() // the server does not accept the credentials, or its certificate is not trusted
	// pause returns how long an Unreachable member is left alone between two probes, and no less than what it is given.
	pause func(least time.Duration) time.Duration

	checks sync.WaitGroup

	mu        sync.Mutex      // guards what follows
	ctx       context.Context //nolint:containedctx // how long to watch, nil before
	timer     *time.Timer     // of the next check
	due       time.Time       // when it fires
	exchanges exchanges
	state     State
	sign      time.Time     // the last sign of life
	answered  time.Time     // the last answer to a request
	interval  time.Duration // of silence until the next probe
	doubt     bool          // a request has failed since it last answered one
	redialed  bool          // since the member was silent
	inRow     int           // probes in a row that speak against state
	restored  chan struct{} // closed and made anew when the member is Ready again
	round     round
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
		opts: opts, link: link, report: report, denied: denied, pause: func(least time.Duration) time.Duration { return least },
		state: Ready, sign: time.Now(), answered: time.Now(), interval: opts.ProbeInterval, restored: make(chan struct{}),
	}
}

// watch probes when it must, until ctx is done. The returned function waits for the probes that are under way then.
func (h *health) watch(ctx context.Context) (wait func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ctx = ctx
	// Members that were connected together are not asked together.
	h.interval = h.opts.ProbeInterval/2 + rand.N(h.opts.ProbeInterval/2+1) //nolint:gosec // it hides nothing
	h.due = h.nextLocked()
	h.timer = time.AfterFunc(time.Until(h.due), h.check)
	return func() {
		h.mu.Lock()
		h.timer.Stop()
		h.mu.Unlock()
		h.checks.Wait()
	}
}

// judge counts a probe. Silence is one that has not ended in time.
func (h *health) judge(round int, err error, silence bool) {
	if apierrors.IsUnauthorized(err) || isCertificateError(err) {
		h.denied()
	}
	if h.count(round, err, silence) {
		h.link.redial()
		h.plan()
	}
}

// count counts a probe, and plans the next one unless the connections shall be closed before that: it must not begin on one
// of them.
func (h *health) count(round int, err error, silence bool) (redial bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if round != h.round.n {
		return false
	}
	redial = h.countLocked(err, silence)
	if !redial {
		h.planLocked()
	}
	return redial
}

// countLocked counts a probe of this round, and reports what comes of it. It returns whether the connections shall be
// closed.
func (h *health) countLocked(err error, silence bool) (redial bool) {
	probes := 1
	switch {
	case err == nil:
	case h.state == Ready && silence && h.lastAnswerLocked().After(h.round.first):
		err = nil // a server that is slow has sent a part of what was asked before
	case h.state == Ready && silence:
		probes = h.round.underWay // those that began later have had no answer either
	}
	h.round.underWay--
	if err == nil || probes > 1 || h.state == Unreachable {
		h.round.next()
	}
	changed := h.turnLocked(err, probes)
	switch {
	case h.state == Ready:
		h.drawIntervalLocked()
	case changed:
		h.round.pause = h.pause(jittered(h.opts.RetryInterval))
	case err == nil: // the second that works shall follow soon
		h.round.pause = h.opts.RetryInterval
	}
	if changed || h.state == Unreachable && err != nil {
		h.report(h.state, err)
	}
	return h.state == Unreachable && isTimeout(err) && h.mayRedialLocked()
}

// turnLocked applies the thresholds: a state changes when as many probes in a row speak against it.
func (h *health) turnLocked(err error, probes int) (changed bool) {
	if err == nil {
		h.sign, h.answered, h.doubt, h.redialed = time.Now(), time.Now(), false, false
	}
	if (err == nil) == (h.state == Ready) {
		h.inRow = 0
		return false
	}
	h.inRow += probes
	switch {
	case h.state == Ready && h.inRow >= h.opts.FailureThreshold:
		h.state = Unreachable
	case h.state == Unreachable && h.inRow >= h.opts.SuccessThreshold:
		h.state = Ready
		close(h.restored)
		h.restored = make(chan struct{})
	default:
		return false
	}
	h.inRow = 0
	h.round.next()
	return true
}

// mayRedialLocked reports whether the connections shall be closed, which happens once in an outage. They may have died
// without a word, and new ones may work: those of a server that has failed over, or behind a gateway that has forgotten it.
// HTTP/2's own pings would take 45 seconds to find out. A server that is slow still sends something, such as a long list,
// which would never be complete if it were cut again and again.
func (h *health) mayRedialLocked() bool {
	if h.redialed || time.Since(h.link.heard()) < h.opts.ProbeTimeout {
		return false
	}
	h.redialed = true
	return true
}

// lost notes that what answers is another cluster. No probes are needed to believe that.
func (h *health) lost(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state, h.inRow = Unreachable, 0
	h.round.next()
	h.round.last, h.round.pause = time.Now(), h.pause(jittered(h.opts.RetryInterval))
	h.planLocked()
	h.report(Unreachable, why)
}

// askNow lets a member that is Unreachable not wait for its turn to be asked: there is news of how to reach it.
func (h *health) askNow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == Unreachable {
		h.round.next()
		h.round.pause = 0
		h.planLocked()
	}
}

// sent notes that a request is sent, until ended is called for it.
func (h *health) sent() *exchange {
	x := &exchange{begun: time.Now()}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.exchanges.add(x)
	if h.state == Ready {
		h.hastenLocked(x.begun.Add(h.opts.RetryInterval / 2))
	}
	return x
}

// ended notes the end of a request, whatever that was.
func (h *health) ended(x *exchange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.exchanges.remove(x)
}

// worked notes that a request was answered.
func (h *health) worked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sign = time.Now()
	h.answered, h.doubt = h.sign, false
	if h.state == Ready && (h.inRow > 0 || h.round.underWay > 0) {
		h.inRow = 0
		h.round.next()
		h.planLocked()
	}
}

// heardEvent notes that a watch brought something. It saves the probe of a silent interval, but answers no doubt: what
// was sent to the server long ago may still flow back when nothing reaches it any more, or when it no longer accepts the
// credentials.
func (h *health) heardEvent() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sign = time.Now()
}

// failed notes that a request was not answered, or that its credentials were refused: a probe shall tell.
func (h *health) failed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubt = true
	h.planLocked()
}

// isRestored returns a channel that is closed when the member becomes Ready again.
func (h *health) isRestored() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.restored
}

// awaitReady returns once the member is Ready, or ctx is done.
func (h *health) awaitReady(ctx context.Context) {
	for {
		h.mu.Lock()
		ready, restored := h.state == Ready, h.restored
		h.mu.Unlock()
		if ready {
			return
		}
		select {
		case <-restored:
		case <-ctx.Done():
			return
		}
	}
}
