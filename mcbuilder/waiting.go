package mcbuilder

import (
	"sync"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// waiting holds requests whose reconciler needs another cluster, until that one is ready. They take up no worker and are
// in no queue.
type waiting[request mcreconcile.ClusterAware[request]] struct {
	// served is set while somebody queues what waits.
	served atomic.Bool

	mu       sync.Mutex // guards what follows
	requests map[fleet.ClusterName]map[request]*int
}

// add has a request wait for a cluster. Once that is ready, it is queued with the priority, if that is not nil.
func (w *waiting[request]) add(name fleet.ClusterName, req request, priority *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.requests == nil {
		w.requests = map[fleet.ClusterName]map[request]*int{}
	}
	if w.requests[name] == nil {
		w.requests[name] = map[request]*int{}
	}
	w.requests[name][req] = priority
}

// queue queues what waits for a cluster.
func (w *waiting[request]) queue(name fleet.ClusterName, q *mcqueue.Queue[request]) {
	w.mu.Lock()
	ready := w.requests[name]
	delete(w.requests, name)
	w.mu.Unlock()
	for req, priority := range ready {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: priority}, req)
	}
}

// purge forgets the requests of a cluster that has left.
func (w *waiting[request]) purge(own fleet.ClusterName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, requests := range w.requests {
		for req := range requests {
			if req.Cluster() == own {
				delete(requests, req)
			}
		}
		if len(requests) == 0 {
			delete(w.requests, name)
		}
	}
}
