package mcsource

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Fleet returns the one source of a controller for events of many clusters: it runs each for every engaged member that
// the selector matches. A nil selector matches all. A member is attached whenever it is engaged or its labels begin to
// match, also long before or after the controller starts, and detached when that ends.
//
// Start returns at once and no member holds up another, so a controller does not wait for members to sync.
func Fleet[request comparable](f *fleet.Fleet, each TypedSource[request], selector labels.Selector) source.TypedSource[request] {
	if selector == nil {
		selector = labels.Everything()
	}
	return &fleetSource[request]{fleet: f, each: each, selector: selector}
}

type fleetSource[request comparable] struct {
	fleet    *fleet.Fleet
	each     TypedSource[request]
	selector labels.Selector
}

// Start implements source.TypedSource. The goroutine ends with ctx; the engagements' drains wait for what it attached.
func (s *fleetSource[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	go s.follow(ctx, queue)
	return nil
}

func (s *fleetSource[request]) String() string { return fmt.Sprintf("fleet of %v", s.each) }

// attachment is a source that runs for an engagement.
type attachment struct {
	engagement *fleet.Engagement
	stop       context.CancelFunc
}

// follow attaches and detaches as members change. The attachments are its own, so they need no lock. They end with ctx.
func (s *fleetSource[request]) follow(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) {
	attached := map[fleet.ClusterName]attachment{}
	for change := range s.fleet.Changes(ctx) {
		name, engagement := change.Status.Name, change.Engagement
		if !s.selector.Matches(labels.Set(change.Status.Labels)) {
			engagement = nil
		}
		before, was := attached[name]
		if was && before.engagement == engagement {
			continue
		}
		if was {
			before.stop()
			delete(attached, name)
		}
		if engagement == nil {
			continue
		}
		stop, err := s.attach(ctx, engagement, queue)
		if err != nil {
			s.log(ctx, name).Error(err, "Cannot start the source", "source", s.each)
			continue
		}
		attached[name] = attachment{engagement: engagement, stop: stop}
	}
}

// attach starts the member's source on a context that ends with the engagement, or when the controller stops.
func (s *fleetSource[request]) attach(
	ctx context.Context, e *fleet.Engagement, queue workqueue.TypedRateLimitingInterface[request],
) (context.CancelFunc, error) {
	member, err := s.each.ForCluster(e.Name(), e.Cluster())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(log.IntoContext(ctx, s.log(ctx, e.Name())))
	life, leave, err := e.Join(ctx, s)
	if err != nil {
		return cancel, nil //nolint:nilerr // the engagement is over already: the next change says what follows
	}
	life = mcreconcile.WithCluster(life, e.Context(), e.Name(), e.Cluster())
	if err := member.Start(life, queue); err != nil {
		leave()
		cancel()
		return nil, err
	}
	context.AfterFunc(life, func() {
		defer cancel()
		defer leave()
		if w, ok := member.(waiter); ok {
			w.Wait()
		}
	})
	return cancel, nil
}

func (s *fleetSource[request]) log(ctx context.Context, name fleet.ClusterName) logr.Logger {
	return log.FromContext(ctx).WithValues("cluster", name)
}
