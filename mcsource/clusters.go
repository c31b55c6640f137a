package mcsource

import (
	"context"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Clusters lets a controller act on the fleet itself: requests are enqueued for every member that there is, and whenever
// one was reported, engaged, removed, began to leave, or changed its state, reason or labels. Changes in quick succession are told
// once.
//
// requests is given what holds then. The state of a member that is gone is empty. It is not called concurrently.
func Clusters(f *fleet.Fleet, requests func(ctx context.Context, status fleet.Status) []mcreconcile.Request) source.TypedSource[mcreconcile.Request] {
	return TypedClusters(f, requests)
}

// TypedClusters is [Clusters] for other types of requests.
func TypedClusters[request comparable](
	f *fleet.Fleet, requests func(ctx context.Context, status fleet.Status) []request,
) source.TypedSource[request] {
	return &clusters[request]{fleet: f, requests: requests, begun: make(chan struct{})}
}

type clusters[request comparable] struct {
	fleet    *fleet.Fleet
	requests func(context.Context, fleet.Status) []request
	begun    chan struct{} // closed when it has started

	mu   sync.Mutex // guards what follows, and is held while requests runs
	tell []func(status fleet.Status)
}

var _ Replayer = (*clusters[mcreconcile.Request])(nil)

// Start implements source.TypedSource. controller-runtime waits for no goroutine of a source: this one ends with ctx.
func (c *clusters[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	tell := func(status fleet.Status) { c.enqueue(ctx, status, queue) }
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tell = append(c.tell, tell); len(c.tell) == 1 {
		close(c.begun)
	}
	go func() {
		for change := range c.fleet.Changes(ctx) {
			c.mu.Lock()
			tell(change.Status)
			c.mu.Unlock()
		}
	}()
	return nil
}

// Replay implements [Replayer]. What there is of a member is its status.
func (c *clusters[request]) Replay(ctx context.Context, e *fleet.Engagement) error {
	select {
	case <-c.begun:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	status, known := c.fleet.Status(e.Name())
	if !known {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tell := range c.tell {
		tell(status)
	}
	return nil
}

// enqueue asks for requests. A panic is logged and ends the process, as that of a handler of a watch does.
func (c *clusters[request]) enqueue(ctx context.Context, status fleet.Status, queue workqueue.TypedRateLimitingInterface[request]) {
	defer utilruntime.HandleCrashWithContext(ctx)
	for _, req := range c.requests(ctx, status) {
		queue.Add(req)
	}
}

func (c *clusters[request]) String() string { return "members of the fleet" }
