package fleet

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleet-runtime/fleet-runtime/internal/retry"
)

// connectOrRotate engages the member as described: by new credentials for the engagement that there is, if that is all
// that changed, or else by a new engagement.
func (m *member) connectOrRotate(ctx context.Context, described Member) error {
	described, err := described.Loaded()
	if err != nil {
		if !m.begin(described, func() {}) {
			return errOutdated
		}
		return m.failed(described, err)
	}
	if e := m.rotatable(described); e != nil {
		if err := m.rotate(ctx, described, e); !errors.Is(err, errNotInPlace) {
			return err
		}
	}
	return m.connect(ctx, described)
}

// connect makes an engagement of the description and puts it in the place of the one before. That one goes on if
// connecting does not work.
func (m *member) connect(ctx context.Context, described Member) (err error) {
	attempt, interrupt := context.WithCancel(ctx)
	defer interrupt()
	if !m.begin(described, interrupt) {
		return errOutdated
	}
	observed := m.observe(StepConnect, nil)
	defer func() { observed(err) }()
	m.useServer(described)
	before := m.predecessor()
	before.keepLost()
	e, err := m.engage(attempt, ctx, described, before)
	if err != nil {
		before.dropLost()
		return m.failed(described, err)
	}
	e.syncBeside(attempt, before)
	if err := m.handOver(ctx, described, before, e); err != nil {
		before.dropLost()
		e.end(errReplaced)
		return errors.Join(err, e.drain(context.WithoutCancel(ctx))) // nobody has seen it, so nothing runs for it
	}
	e.informers.Open(e.ctx)
	return nil
}

// engage waits for its turn among those that connect, and connects an engagement with its field indexes. attempt bounds
// that; the engagement lives until it is ended, or life is.
func (m *member) engage(attempt, life context.Context, described Member, before *Engagement) (*Engagement, error) {
	leave, err := m.paced(attempt)
	if err != nil {
		return nil, err
	}
	defer leave()
	attempt, expire := context.WithTimeout(attempt, m.fleet.opts.ConnectTimeout)
	defer expire()
	e := newEngagement(retry.WithLongest(logr.NewContext(life, m.logger()), m.fleet.opts.MaxRetryPeriod), m.name)
	e.kinds.configure(m, e)
	e.gate, e.epoch, e.spent = m.currentGate()
	err = m.open(attempt, e, described, before)
	if err != nil {
		e.end(err)
		return nil, errors.Join(err, e.drain(context.WithoutCancel(life)))
	}
	return e, nil
}

// paced waits for its turn among those that connect. An attempt that is not the first needs none: pauses keep these apart, and
// servers that never answer are not to stand in the way of others for long.
func (m *member) paced(ctx context.Context) (leave func(), err error) {
	m.fleet.mu.Lock()
	first := m.attempts == 1
	m.fleet.mu.Unlock()
	if !first {
		return func() {}, nil
	}
	leave, err = m.fleet.pace.enter(ctx)
	if err != nil { // nothing was tried
		m.fleet.mu.Lock()
		m.attempts--
		m.fleet.mu.Unlock()
	}
	return leave, err
}

// useServer keeps the metrics of the server that is dialed for as long as the member is described by it, whether it is
// ever engaged or not.
func (m *member) useServer(described Member) {
	if described.Config == nil {
		return
	}
	cfg, err := m.usable(described)
	if err != nil {
		return // connecting says so
	}
	before := m.forgetServer
	m.forgetServer = m.fleet.clientSeries.Begin(cfg)
	before()
}

// begin notes an attempt, unless the description is outdated.
func (m *member) begin(described Member, interrupt context.CancelFunc) bool {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if m.isOutdatedLocked(described) {
		return false
	}
	m.interrupt = interrupt
	m.attempts++
	m.server = described.server()
	if m.engagement == nil {
		m.setStateLocked(Connecting, m.reason, m.message)
	}
	return true
}

// isOutdatedLocked reports whether a description is not the one to connect by, or none is.
func (m *member) isOutdatedLocked(described Member) bool {
	return m.endsLocked() || m.isHeldDrainedLocked() || !sameAccess(described, m.described)
}

// failed notes why an attempt did not work. It returns errOutdated if that is of no interest any more.
func (m *member) failed(described Member, err error) error {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.interrupt = func() {}
	if m.isOutdatedLocked(described) {
		return errOutdated
	}
	if apierrors.IsUnauthorized(err) {
		m.tellLocked(m.denied)
	}
	return m.failedLocked(err)
}

func (m *member) failedLocked(err error) error {
	if m.explainLocked(classify(err), message(err)) || m.attempts == 1 {
		m.logger().Info("Cannot connect; trying again", "reason", classify(err), "error", message(err))
	}
	return err
}
