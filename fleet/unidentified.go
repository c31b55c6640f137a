package fleet

import (
	"context"
	"time"
)

// identityAgain is after how many intervals of silence a member of unknown identity is asked again which cluster it is: by
// default once a minute.
const identityAgain = 6

// learnIdentity asks which cluster answers, again and again, while that is unknown. The right to get it may be granted, and with
// HTTP/2 it may be days until there is a new connection. What is learned is noticed like any other change of identity: the
// member is engaged anew.
func (m *member) learnIdentity(e *Engagement) {
	health := m.fleet.opts.Health
	for {
		timer := time.NewTimer(jittered(identityAgain * health.ProbeInterval))
		select {
		case <-timer.C:
		case <-e.ctx.Done():
			timer.Stop()
			return
		}
		if m.unreachable() != nil {
			continue // it is asked before it is Ready again
		}
		attempt, cancel := context.WithTimeout(e.ctx, health.ProbeTimeout)
		_ = e.wire.verify(attempt) // an error is told by whoever needs the member
		cancel()
	}
}
