package mcsource

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Fleet returns the one source of a controller for events of many clusters: it runs each for every engaged member that
// the selector matches. A nil selector matches all. A member is attached whenever it is engaged or its labels begin to
// match, also long before or after the controller starts, and detached when that ends. A manager without a provider has no
// members, and the source tells nothing.
//
// Start returns at once, and a controller does not wait for members to sync. No member holds up another: the source of each is
// made and started in a goroutine of its own. If that fails, it is logged, once for each reason in a row, and tried again, after
// pauses that begin at half a second and double up to fleet.Options.MaxRetryPeriod, until it works or the engagement ends. An error
// that wraps reconcile.TerminalError, or that a kind is not in the scheme, is final: the source is not tried again before the next
// engagement.
func Fleet[request comparable](f *fleet.Fleet, each TypedSource[request], selector labels.Selector) source.TypedSource[request] {
	if selector == nil {
		selector = labels.Everything()
	}
	return &fleetSource[request]{fleet: f, each: each, selector: selector, begun: make(chan struct{})}
}

type fleetSource[request comparable] struct {
	fleet    *fleet.Fleet
	each     TypedSource[request]
	selector labels.Selector
	begun    chan struct{} // closed when it has started

	mu   sync.Mutex // guards what follows
	runs []*run[request]
}

var _ Replayer = (*fleetSource[mcreconcile.Request])(nil)

// Start implements source.TypedSource. controller-runtime waits for no goroutine of a source: this one ends with ctx, and the
// engagements' drains wait for all that it attaches.
func (s *fleetSource[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	r := &run[request]{fleetSource: s, ctx: ctx, queue: queue, members: map[fleet.ClusterName]attached{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs = append(s.runs, r); len(s.runs) == 1 {
		close(s.begun)
	}
	go r.follow()
	return nil
}

// Replay implements [Replayer].
func (s *fleetSource[request]) Replay(ctx context.Context, e *fleet.Engagement) error {
	select {
	case <-s.begun:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	runs := slices.Clone(s.runs)
	s.mu.Unlock()
	for _, r := range runs {
		if err := r.replay(ctx, e); err != nil {
			return fmt.Errorf("telling %v once more in cluster %q: %w", s.each, e.Name(), err)
		}
	}
	return nil
}

func (s *fleetSource[request]) String() string { return fmt.Sprintf("fleet of %v", s.each) }

// run is a fleet source that was started for one controller.
type run[request comparable] struct {
	*fleetSource[request]

	ctx   context.Context //nolint:containedctx // the life of the controller
	queue workqueue.TypedRateLimitingInterface[request]

	mu      sync.Mutex // guards what follows
	members map[fleet.ClusterName]attached
}

// attached is an engagement for which a source runs.
type attached struct {
	engagement *fleet.Engagement
	stop       context.CancelFunc
}

// follow attaches and detaches as members change.
func (r *run[request]) follow() {
	for change := range r.fleet.Changes(r.ctx) {
		engagement := change.Engagement
		if !r.selector.Matches(labels.Set(change.Status.Labels)) {
			engagement = nil
		}
		r.attach(change.Status.Name, engagement)
	}
}

// attach runs the source for an engagement, nil for none, in place of the one before.
func (r *run[request]) attach(name fleet.ClusterName, engagement *fleet.Engagement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, was := r.members[name]
	if before.engagement == engagement {
		return
	}
	if was {
		before.stop()
		delete(r.members, name)
	}
	if engagement == nil {
		return
	}
	// If the engagement is over already, the next change says what follows.
	if stop, err := attach(r.ctx, r.fleetSource, engagement, r.each, r.queue, nil); err == nil {
		r.members[name] = attached{engagement, stop}
	}
}

// replay runs the source a second time, and lets that one take the place of the first when its objects were told. So nothing is
// lost in between.
func (r *run[request]) replay(ctx context.Context, e *fleet.Engagement) error {
	if !r.selects(e) {
		return nil
	}
	stop, err := again(ctx, replaying[request]{r.fleet, r.ctx, r.fleetSource, e, r.each, r.queue})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, was := r.members[e.Name()]; before.engagement == e {
		before.stop()
	} else if was || !r.selects(e) {
		stop()
		return nil
	}
	r.members[e.Name()] = attached{e, stop}
	return nil
}

func (r *run[request]) selects(e *fleet.Engagement) bool {
	status, _ := r.fleet.Status(e.Name())
	return r.selector.Matches(labels.Set(status.Labels))
}
