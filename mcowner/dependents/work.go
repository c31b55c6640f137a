package dependents

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// work is a request of the controller that does what owners ask for: one owner's part in one cluster.
type work struct {
	owner mcreconcile.Request
	in    mcreconcile.ClusterName
	task  task
}

type task int8

const (
	// place makes a cluster as the owner desires it.
	place task = iota
	// account, in the owner's cluster, keeps the owner's record and status.
	account
	// visit is place for an owner whose cluster this replica works on, where several replicas share the members: whoever works on the
	// owner's cluster does it, and it ends with that.
	visit
	// glean is visit for an owner that may have left something in any cluster, in one after the other.
	glean
	// hold, in a member that leaves, waits until owners in other clusters have done what is to be done there.
	hold
	// review has the owners in the local cluster planned that its cache has.
	review
	// seek finds owners of the controller in a cluster that is not one of owners any more.
	seek
	// discard, in the owner's cluster, removes the slices of an owner that is gone.
	discard
)

// Cluster implements mcreconcile.ClusterAware.
func (w work) Cluster() mcreconcile.ClusterName {
	if w.task == visit || w.task == glean {
		return w.owner.ClusterName
	}
	return w.in
}

// WithCluster implements mcreconcile.ClusterAware.
func (w work) WithCluster(name mcreconcile.ClusterName) work {
	if w.task == visit || w.task == glean {
		w.owner.ClusterName = name
	} else {
		w.in = name
	}
	return w
}

// String names it in logs.
func (w work) String() string {
	switch w.task {
	case account:
		return "the account of " + w.owner.String()
	case seek:
		return "the search for owners"
	case discard:
		return "the slices of " + w.owner.String()
	case review:
		return "the review of owners"
	case hold:
		return "the wait until owners elsewhere have nothing left"
	case place, visit, glean:
	}
	return "the dependents of " + w.owner.String()
}

func accountOf(owner mcreconcile.Request) work {
	return work{owner, owner.ClusterName, account}
}

// feed is a source by which a controller is given requests. It takes them before it starts, too.
type feed[request comparable] struct {
	name string

	mu    sync.Mutex // guards what follows
	queue workqueue.TypedRateLimitingInterface[request]
	early []func(workqueue.TypedRateLimitingInterface[request])
}

// Start implements source.TypedSource.
func (f *feed[request]) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = queue
	for _, add := range f.early {
		add(queue)
	}
	f.early = nil
	return nil
}

func (f *feed[request]) String() string { return f.name }

func (f *feed[request]) do(add func(workqueue.TypedRateLimitingInterface[request])) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.queue == nil {
		f.early = append(f.early, add)
		return
	}
	add(f.queue)
}

func (f *feed[request]) add(req request) {
	f.do(func(q workqueue.TypedRateLimitingInterface[request]) { q.Add(req) })
}

// queueNow is add, and returns when the request is in the queue: not before the controller has started.
func (f *feed[request]) queueNow(ctx context.Context, req request) error {
	queued := make(chan struct{})
	f.do(func(q workqueue.TypedRateLimitingInterface[request]) {
		q.Add(req)
		close(queued)
	})
	select {
	case <-queued:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *feed[request]) addAfter(req request, after time.Duration) {
	f.do(func(q workqueue.TypedRateLimitingInterface[request]) { q.AddAfter(req, after) })
}

// addLow adds a request that waits until there is nothing else to do.
func (f *feed[request]) addLow(req request) { f.addLowAfter(req, 0) }

func (f *feed[request]) addLowAfter(req request, after time.Duration) {
	f.do(func(queue workqueue.TypedRateLimitingInterface[request]) {
		if q, ok := queue.(priorityqueue.PriorityQueue[request]); ok {
			q.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority), After: after}, req)
			return
		}
		queue.AddAfter(req, after)
	})
}
