package mcbuilder

import (
	"sync"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// waiting holds requests whose reconciler needs other clusters, until one of these is ready or gone. They take up no
// worker and are in no queue.
type waiting[request mcreconcile.ClusterAware[request]] struct {
	// served is set while somebody queues what waits.
	served atomic.Bool
	// some is set if anything waits, so that a reconcile needs no lock to find out that its request does not.
	some atomic.Bool

	mu       sync.Mutex // guards what follows
	requests map[fleet.ClusterName]map[request]struct{}
	clusters map[request][]fleet.ClusterName
}

// add lets a request wait for clusters.
func (w *waiting[request]) add(req request, names []fleet.ClusterName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.requests == nil {
		w.requests, w.clusters = map[fleet.ClusterName]map[request]struct{}{}, map[request][]fleet.ClusterName{}
	}
	for _, name := range names {
		if w.requests[name] == nil {
			w.requests[name] = map[request]struct{}{}
		}
		w.requests[name][req] = struct{}{}
	}
	w.clusters[req] = names
	w.some.Store(true)
}

// forget ends the wait of a request: it is being reconciled.
func (w *waiting[request]) forget(req request) {
	if !w.some.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgetLocked(req)
}

func (w *waiting[request]) forgetLocked(req request) {
	for _, name := range w.clusters[req] {
		delete(w.requests[name], req)
		if len(w.requests[name]) == 0 {
			delete(w.requests, name)
		}
	}
	delete(w.clusters, req)
	w.some.Store(len(w.clusters) > 0)
}

// queue queues what waits for a cluster, behind what is new.
func (w *waiting[request]) queue(name fleet.ClusterName, q *mcqueue.Queue[request]) {
	w.mu.Lock()
	ready := make([]request, 0, len(w.requests[name]))
	for req := range w.requests[name] {
		ready = append(ready, req)
		w.forgetLocked(req)
	}
	w.mu.Unlock()
	q.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, ready...)
}

// purge forgets the requests of a cluster that has left.
func (w *waiting[request]) purge(own fleet.ClusterName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for req := range w.clusters {
		if req.Cluster() == own {
			w.forgetLocked(req)
		}
	}
}
