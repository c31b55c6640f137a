package mcsource

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
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
// engaged are dropped. The sender owns the channel; closing it ends the source.
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

// Start implements source.TypedSource. The goroutine ends with ctx, or when the channel is closed.
func (c *channel[object, request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case evt, open := <-c.events:
				if !open {
					return
				}
				c.handle(ctx, evt, queue)
			}
		}
	}()
	return nil
}

func (c *channel[object, request]) handle(ctx context.Context, evt ClusterEvent[object], queue workqueue.TypedRateLimitingInterface[request]) {
	engagement := c.fleet.Now(evt.ClusterName).Engagement
	if engagement == nil {
		log.FromContext(ctx).V(1).Info("Dropped an event of a cluster that is not engaged", "cluster", evt.ClusterName)
		return
	}
	life, leave, err := engagement.Join(ctx, c)
	if err != nil {
		return
	}
	defer leave()
	life = mcreconcile.WithCluster(life, engagement.Context(), evt.ClusterName, engagement.Cluster())
	c.handler(evt.ClusterName, engagement.Cluster()).Generic(life, evt.TypedGenericEvent, queue)
}

func (c *channel[object, request]) String() string { return "channel" }
