package mcbuilder

import (
	"fmt"
	"sync/atomic"
	"time"

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
	left       time.Time // when it yielded last; guarded by the pulse, as it calls Yield and Reclaim by turns
	idle       atomic.Int64
}

// String names it for a person who wonders what keeps a member from being drained.
func (r *running[request]) String() string {
	return fmt.Sprintf("the reconcile of %v by controller %s", r.request, r.controller)
}

// Yield implements pulse.Seat.
func (r *running[request]) Yield(to string) {
	r.left = time.Now()
	r.queue.Yield(r.request, mcreconcile.ClusterName(to))
}

// Reclaim implements pulse.Seat.
func (r *running[request]) Reclaim() {
	r.idle.Add(int64(time.Since(r.left)))
	r.queue.Reclaim(r.request)
}

// Idle returns for how long it held no worker. The fleet takes that off what the reconcile has cost.
func (r *running[request]) Idle() time.Duration { return time.Duration(r.idle.Load()) }
