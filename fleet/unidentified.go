package fleet

import (
	"context"
	"time"
)

// identityAgain is after how many intervals of silence a member is asked again which cluster it is, where nothing else tells: by
// default once a minute.
const identityAgain = 6

// learnIdentity asks which cluster answers, again and again, while that is unknown. The right to get it may be granted, and with
// HTTP/2 it may be days until there is a new connection. What is learned is noticed like any other change of identity: the
// member is engaged anew.
func (m *member) learnIdentity(e *Engagement) {
	m.askAgain(e, func(ctx context.Context) {
		if m.unreachable() == nil { // else it is asked before it is Ready again
			_ = e.wire.verify(ctx) // an error is told by whoever needs the member
		}
	})
}

// followIdentity asks which cluster it is that the provider made, again and again: no wire proves it. One that does not say it any
// more is still the same, for all that is known.
func (m *member) followIdentity(e *Engagement) {
	m.askAgain(e, func(ctx context.Context) {
		now, err := e.IdentityNow(ctx)
		switch {
		case err != nil:
		case now == "", now == e.identity:
			m.health(e, Ready, nil) // another one may have answered meanwhile
		default:
			m.health(e, Unreachable, &anotherClusterError{known: e.identity, now: now})
		}
	})
}

// askAgain calls ask, with a bounded context, until the engagement ends.
func (m *member) askAgain(e *Engagement, ask func(context.Context)) {
	health := m.fleet.opts.Health
	for {
		timer := time.NewTimer(jittered(identityAgain * health.ProbeInterval))
		select {
		case <-timer.C:
		case <-e.ctx.Done():
			timer.Stop()
			return
		}
		attempt, cancel := context.WithTimeout(e.ctx, health.ProbeTimeout)
		ask(attempt)
		cancel()
	}
}
