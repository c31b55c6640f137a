package mcsource

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// ClusterEvent is an event that came from outside, such as a webhook, about an object of a cluster.
type ClusterEvent[object any] struct {
	event.TypedGenericEvent[object]

	// ClusterName is the member that the object is in.
	ClusterName mcreconcile.ClusterName
}

// Channel hands events that the program itself sends to the handler of their cluster. Events of members that are not
// engaged are dropped. The sender owns the channel; after it is closed, what was sent is still handled.
//
// The events of one member are handled in order, one at a time, and no member waits for the handler of another. While a handler
// does not return, up to 1024 events of its member wait. The sender is not held up: those that come after are dropped, which is
// logged once, and once more with their number when none waits. So a handler should not wait long; one that only enqueues does not.
// The handler's context ends with the engagement. What waits then is handled if another engagement of the same cluster takes its
// place, and dropped otherwise.
func Channel[object any](
	f *fleet.Fleet, events <-chan ClusterEvent[object], h mchandler.TypedHandlerFunc[object, mcreconcile.Request],
) source.TypedSource[mcreconcile.Request] {
	return TypedChannel(f, events, h)
}

// TypedChannel is [Channel] for other types of requests.
func TypedChannel[object any, request comparable](
	f *fleet.Fleet, events <-chan ClusterEvent[object], h mchandler.TypedHandlerFunc[object, request],
) source.TypedSource[request] {
	return &channel[object, request]{fleet: f, events: events, handler: h}
}

type channel[object any, request comparable] struct {
	fleet   *fleet.Fleet
	events  <-chan ClusterEvent[object]
	handler mchandler.TypedHandlerFunc[object, request]
}

// Start implements source.TypedSource. controller-runtime waits for no goroutine of a source: both end with ctx, and the one that
// receives when the channel is closed, too. The engagements' drains wait for handlers that run.
func (c *channel[object, request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	l := c.lanes(ctx, queue)
	go l.follow()
	go c.receive(ctx, l)
	return nil
}

func (c *channel[object, request]) lanes(
	ctx context.Context, queue workqueue.TypedRateLimitingInterface[request],
) *lanes[object, request] {
	return &lanes[object, request]{ctx: ctx, source: c, queue: queue, of: map[fleet.ClusterName]*lane[object, request]{}}
}

func (c *channel[object, request]) receive(ctx context.Context, l *lanes[object, request]) {
	for {
		select {
		case <-ctx.Done():
			return
		case evt, open := <-c.events:
			if !open {
				return
			}
			l.add(evt)
		}
	}
}

func (c *channel[object, request]) String() string { return "channel" }
