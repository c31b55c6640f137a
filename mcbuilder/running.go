package mcbuilder

import (
	"fmt"

	"github.com/fleet-runtime/fleet-runtime/internal/pulse"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// running is a reconcile that runs. All that is needed of it is in one place, since it is made for each.
type running[request mcreconcile.ClusterAware[request]] struct {
	controller string
	request    request
	queue      *mcqueue.Queue[request] // where it yields, see reconciler
	pulse      pulse.Pulse
}

// String names it for a person who wonders what keeps a member from being drained.
func (r *running[request]) String() string {
	return fmt.Sprintf("the reconcile of %v by controller %s", r.request, r.controller)
}

// Yield implements pulse.Seat.
func (r *running[request]) Yield(to string) { r.queue.Yield(r.request, mcreconcile.ClusterName(to)) }

// Reclaim implements pulse.Seat.
func (r *running[request]) Reclaim() { r.queue.Reclaim(r.request) }
