package mcsource

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// Fleet returns the one source of a controller for events of many clusters: it runs each for every engaged member that
// the selector matches. A nil selector matches all. A member is attached whenever it is engaged or its labels begin to
// match, also long before or after the controller starts, and detached when that ends.
//
// Start returns at once, and a controller does not wait for members to sync. No member holds up another: the source of each is
// made and started in a goroutine of its own. If that fails, it is logged once and tried again, after pauses that begin at half a
// second and double up to 10 seconds, until it works or the engagement ends.
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

// Start implements source.TypedSource. controller-runtime waits for no goroutine of a source: this one ends with ctx, and the
// engagements' drains wait for all that it attaches.
func (s *fleetSource[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	go s.follow(ctx, queue)
	return nil
}

func (s *fleetSource[request]) String() string { return fmt.Sprintf("fleet of %v", s.each) }

// attached is an engagement for which a source runs.
type attached struct {
	engagement *fleet.Engagement
	stop       context.CancelFunc
}

// follow attaches and detaches as members change. What is attached is its own, so it needs no lock.
func (s *fleetSource[request]) follow(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) {
	members := map[fleet.ClusterName]attached{}
	for change := range s.fleet.Changes(ctx) {
		name, engagement := change.Status.Name, change.Engagement
		if !s.selector.Matches(labels.Set(change.Status.Labels)) {
			engagement = nil
		}
		before, was := members[name]
		if was && before.engagement == engagement {
			continue
		}
		if was {
			before.stop()
			delete(members, name)
		}
		if engagement == nil {
			continue
		}
		// If the engagement is over already, the next change says what follows.
		if stop, err := attach(ctx, s, engagement, s.each, queue); err == nil {
			members[name] = attached{engagement, stop}
		}
	}
}
