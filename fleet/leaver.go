package fleet

import (
	"context"
	"slices"
)

// Leaver is what a controller does for members that leave. Its methods are called for several members at once.
type Leaver interface {
	// Replay brings every object of a member that the controller watches to its handlers once more, and returns when they
	// have had it: at once if it watches none, and not before the controller has started. It is called once for each engagement
	// of a member that leaves, and again after a pause if it has returned an error. ctx ends with the engagement.
	Replay(ctx context.Context, e *Engagement) error

	// AwaitDone returns when the controller has at some moment no request of the member that is not done, or with an error
	// when ctx ends.
	AwaitDone(ctx context.Context, name ClusterName) error

	// Undone says how many requests of the member are not done, with the names of some. It does not wait for anything.
	Undone(name ClusterName) (requests int, some []string)
}

// leaver is the Leaver of one controller.
type leaver struct {
	Leaver

	controller string
}

// OnLeave makes members that leave wait for the controller, from now on. It is called once.
func (c *Controller) OnLeave(l Leaver) {
	f := c.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leavers = append(f.leavers, &leaver{l, c.name})
}

// toAsk returns the member's engagement, nil if there is none, and the controllers.
func (m *member) toAsk() (*Engagement, []*leaver) {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	e := m.engagement
	if e != nil && e.ctx.Err() != nil {
		e = nil
	}
	return e, slices.Clone(m.fleet.leavers)
}
