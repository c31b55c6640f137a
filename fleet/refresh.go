package fleet

import (
	"context"
	"errors"
	"time"
)

// refresh asks the provider for other credentials than those that the server no longer accepts. What the provider has
// comes as any news, with Set. It is called by run alone.
func (m *member) refresh(ctx context.Context) {
	if !m.refreshed.IsZero() && time.Since(m.refreshed) < m.fleet.opts.MaxRetryPeriod {
		return
	}
	attempt, interrupt := context.WithTimeout(ctx, m.fleet.opts.ConnectTimeout)
	defer interrupt()
	m.fleet.mu.Lock()
	provider := m.fleet.refresher
	if provider == nil || m.endsLocked() {
		m.fleet.mu.Unlock()
		return
	}
	m.interrupt = interrupt
	m.fleet.mu.Unlock()

	err := provider.Refresh(attempt, m.name)
	m.refreshed = time.Now()
	m.fleet.mu.Lock()
	m.interrupt = func() {}
	m.fleet.mu.Unlock()
	if err != nil && !errors.Is(attempt.Err(), context.Canceled) { // which news from the provider does too
		m.logger().Info("The provider has no fresh credentials", "error", message(err))
	}
}
