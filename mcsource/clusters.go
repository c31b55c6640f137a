package mcsource

import (
	"context"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Clusters lets a controller act on the fleet itself: requests are enqueued for every member that there is, and whenever
// one was reported, engaged, removed, or changed its state, reason or labels. Changes in quick succession are told once.
//
// requests is given what holds then. The state of a member that is gone is empty. It is not called concurrently.
func Clusters(f *fleet.Fleet, requests func(ctx context.Context, status fleet.Status) []mcreconcile.Request) source.TypedSource[mcreconcile.Request] {
	return TypedClusters(f, requests)
}

// TypedClusters is [Clusters] for other types of requests.
func TypedClusters[request comparable](
	f *fleet.Fleet, requests func(ctx context.Context, status fleet.Status) []request,
) source.TypedSource[request] {
	return &clusters[request]{fleet: f, requests: requests}
}

type clusters[request comparable] struct {
	fleet    *fleet.Fleet
	requests func(context.Context, fleet.Status) []request
}

// Start implements source.TypedSource. controller-runtime waits for no goroutine of a source: this one ends with ctx.
func (c *clusters[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	go func() {
		for change := range c.fleet.Changes(ctx) {
			c.tell(ctx, change.Status, queue)
		}
	}()
	return nil
}

// tell asks for requests. A panic is logged and ends the process, as that of a handler of a watch does.
func (c *clusters[request]) tell(ctx context.Context, status fleet.Status, queue workqueue.TypedRateLimitingInterface[request]) {
	defer utilruntime.HandleCrashWithContext(ctx)
	for _, req := range c.requests(ctx, status) {
		queue.Add(req)
	}
}

func (c *clusters[request]) String() string { return "members of the fleet" }
