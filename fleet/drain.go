package fleet

import (
	"context"
	"time"
)

// drainPatience is how long an engagement may take to drain before that is logged.
const drainPatience = 10 * time.Second

// awaitDrain waits until nothing runs any more for an engagement that was ended. If that takes long, it logs once what
// runs: it does not heed its context, and holds the member.
func (m *member) awaitDrain(ctx context.Context, e *Engagement) {
	defer m.observeDrain(e)(nil)
	patience, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	if e.drain(patience) == nil {
		return
	}
	m.logger().Info("Draining takes long: something does not heed its context", "running", e.busy(), "after", drainPatience.String())
	_ = e.drain(ctx)
}
