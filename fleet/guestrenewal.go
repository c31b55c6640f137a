package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/fleet-runtime/fleet-runtime/internal/retry"
)

// renewGuestsLocked has the guests that are connected take over a new description, if it has new credentials alone, and ends the others.
func (m *member) renewGuestsLocked() {
	m.fleet.retryGuestLocked(m.name)
	for g := range m.guests {
		if g.news == nil || m.described.Err != nil {
			g.cancel(fmt.Errorf("%w: %w", ErrDisengaged, errReplaced))
			continue
		}
		g.interrupt()
		wake(g.news)
	}
}

// keepGuest keeps a guest, which was connected as described, with the credentials that its member has. While those do not work, it goes on
// with the ones of before. It ends if they may lead elsewhere.
func (m *member) keepGuest(g *Guest, w *wire, described Member) {
	m.fleet.mu.Lock()
	g.news, g.interrupt = make(chan struct{}, 1), func() {}
	m.fleet.mu.Unlock()
	go func() {
		pause, pauses, reason := readFilesEvery, retry.Pauses(m.fleet.opts.MaxRetryPeriod), ""
		for retry.PauseFor(g.ctx, pause, g.news) {
			now, err := m.renewGuest(g, w, described)
			switch {
			case err == nil:
				described, pause, pauses = now, readFilesEvery, retry.Pauses(m.fleet.opts.MaxRetryPeriod)
			case errors.Is(err, errNotInPlace):
				g.cancel(fmt.Errorf("%w: %w: %w", ErrDisengaged, errReplaced, err))
			default:
				pause = m.fleet.outage.pause(pauses.Step())
				if reason != classify(err) {
					m.logger().Info("A guest cannot take over new credentials; trying again", "reason", classify(err), "error", message(err))
				}
			}
			reason = classify(err)
		}
	}()
}

// renewGuest gives a guest new credentials, if there are any, and returns as what it is connected then. Its watches go on from where they were.
func (m *member) renewGuest(g *Guest, w *wire, before Member) (Member, error) {
	attempt, interrupt := context.WithTimeout(g.ctx, m.fleet.opts.ConnectTimeout)
	defer interrupt()
	m.fleet.mu.Lock()
	described, edition := m.described, m.edition
	g.interrupt = interrupt
	m.fleet.mu.Unlock()
	if sameAccess(before, described) && !m.areOthers(w.current.Load().files, before) {
		return before, nil
	}
	described, err := described.Loaded()
	if err != nil {
		return before, err
	}
	isAnother := described.Identity != "" && described.Identity != g.identity
	if isAnother || described.Config == nil || !sameAddress(before.Config, described.Config) {
		return before, errNotInPlace
	}
	cfg, next, err := m.prove(attempt, &before, described, g.identity)
	switch {
	case errors.Is(attempt.Err(), context.Canceled) && err != nil: // the guest ends, or there is another description
		return before, nil
	case err != nil:
		return before, err
	}
	old := w.replace(next)
	if old == nil { // the guest has ended meanwhile
		next.finish()
		return before, nil
	}
	m.fleet.mu.Lock()
	g.edition = edition
	m.fleet.mu.Unlock()
	g.config.Store(cfg)
	m.logger().V(1).Info("A guest took over new credentials")
	go old.retire(g.ctx)
	return described, nil
}
