package mchandler

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// lifted hands events to a controller-runtime handler, with a queue that stamps the cluster.
type lifted[object any] struct {
	handler handler.TypedEventHandler[object, reconcile.Request]
	cluster mcreconcile.ClusterName
}

type queueOf[request comparable] = workqueue.TypedRateLimitingInterface[request]

// Create implements handler.TypedEventHandler.
func (l *lifted[object]) Create(ctx context.Context, evt event.TypedCreateEvent[object], q queueOf[mcreconcile.Request]) {
	l.handler.Create(ctx, evt, stamping(q, l.cluster))
}

// Update implements handler.TypedEventHandler.
func (l *lifted[object]) Update(ctx context.Context, evt event.TypedUpdateEvent[object], q queueOf[mcreconcile.Request]) {
	l.handler.Update(ctx, evt, stamping(q, l.cluster))
}

// Delete implements handler.TypedEventHandler.
func (l *lifted[object]) Delete(ctx context.Context, evt event.TypedDeleteEvent[object], q queueOf[mcreconcile.Request]) {
	l.handler.Delete(ctx, evt, stamping(q, l.cluster))
}

// Generic implements handler.TypedEventHandler.
func (l *lifted[object]) Generic(ctx context.Context, evt event.TypedGenericEvent[object], q queueOf[mcreconcile.Request]) {
	l.handler.Generic(ctx, evt, stamping(q, l.cluster))
}

// stamping returns q as a queue of controller-runtime's requests. It is a priority queue if q is one: handlers look for
// that to set priorities.
func stamping(q queueOf[mcreconcile.Request], name mcreconcile.ClusterName) queueOf[reconcile.Request] {
	stamped := stampingQueue{TypedRateLimitingInterface: q, cluster: name}
	if priority, ok := q.(priorityqueue.PriorityQueue[mcreconcile.Request]); ok {
		return stampingPriorityQueue{stampingQueue: stamped, queue: priority}
	}
	return stamped
}

// stampingQueue stamps the cluster on what is added. Len, ShutDown and ShuttingDown are those of the queue beneath.
type stampingQueue struct {
	workqueue.TypedRateLimitingInterface[mcreconcile.Request]
	cluster mcreconcile.ClusterName
}

func (s stampingQueue) stamp(req reconcile.Request) mcreconcile.Request {
	return mcreconcile.Request{Request: req, ClusterName: s.cluster}
}

func (s stampingQueue) Add(req reconcile.Request) { s.TypedRateLimitingInterface.Add(s.stamp(req)) }

func (s stampingQueue) AddAfter(req reconcile.Request, after time.Duration) {
	s.TypedRateLimitingInterface.AddAfter(s.stamp(req), after)
}

func (s stampingQueue) AddRateLimited(req reconcile.Request) {
	s.TypedRateLimitingInterface.AddRateLimited(s.stamp(req))
}

func (s stampingQueue) Forget(req reconcile.Request) {
	s.TypedRateLimitingInterface.Forget(s.stamp(req))
}

func (s stampingQueue) NumRequeues(req reconcile.Request) int {
	return s.TypedRateLimitingInterface.NumRequeues(s.stamp(req))
}

func (s stampingQueue) Done(req reconcile.Request) { s.TypedRateLimitingInterface.Done(s.stamp(req)) }

// Get is there to complete the interface. Taking from the queue is the controller's part: a handler that does it steals
// requests of other clusters too, and loses which ones.
func (s stampingQueue) Get() (reconcile.Request, bool) {
	req, shutdown := s.TypedRateLimitingInterface.Get()
	return req.Request, shutdown
}

type stampingPriorityQueue struct {
	stampingQueue
	queue priorityqueue.PriorityQueue[mcreconcile.Request]
}

func (s stampingPriorityQueue) AddWithOpts(opts priorityqueue.AddOpts, reqs ...reconcile.Request) {
	stamped := make([]mcreconcile.Request, len(reqs))
	for i, req := range reqs {
		stamped[i] = s.stamp(req)
	}
	s.queue.AddWithOpts(opts, stamped...)
}

func (s stampingPriorityQueue) GetWithPriority() (reconcile.Request, int, bool) {
	req, priority, shutdown := s.queue.GetWithPriority()
	return req.Request, priority, shutdown
}

var _ priorityqueue.PriorityQueue[reconcile.Request] = stampingPriorityQueue{}
