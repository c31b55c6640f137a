package mcbuilder

import (
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// need is what a request waits for.
type need struct {
	cluster fleet.ClusterName
	kind    schema.GroupKind // that must be synced there; empty if the cluster need only be ready
}

// isMet reports whether a request that waits may run, by what holds for the cluster. It is told if that is gone.
func (n need) isMet(status fleet.Status) bool {
	switch {
	case status.State == "":
		return true
	case n.kind.Empty():
		return status.State == fleet.Ready
	}
	return !slices.ContainsFunc(status.NotSynced, func(s fleet.NotSynced) bool { return schema.GroupKind(s.Kind) == n.kind })
}

// waiting holds requests whose reconciler needs other clusters, or kinds that are not synced, until one of these is ready or
// gone. They take up no worker. Those that wait for clusters are in no queue.
type waiting[request mcreconcile.ClusterAware[request]] struct {
	// served is set while somebody queues what waits.
	served atomic.Bool
	// some is set if anything waits, so that a reconcile needs no lock to find out that its request does not.
	some atomic.Bool

	mu       sync.Mutex // guards what follows
	requests map[fleet.ClusterName]map[request]struct{}
	needs    map[request][]need
}

// add lets a request wait for what it needs.
func (w *waiting[request]) add(req request, needs []need) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.requests == nil {
		w.requests, w.needs = map[fleet.ClusterName]map[request]struct{}{}, map[request][]need{}
	}
	for _, n := range needs {
		if w.requests[n.cluster] == nil {
			w.requests[n.cluster] = map[request]struct{}{}
		}
		w.requests[n.cluster][req] = struct{}{}
	}
	w.needs[req] = needs
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
	for _, n := range w.needs[req] {
		delete(w.requests[n.cluster], req)
		if len(w.requests[n.cluster]) == 0 {
			delete(w.requests, n.cluster)
		}
	}
	delete(w.needs, req)
	w.some.Store(len(w.needs) > 0)
}

// queue queues what waits for a cluster and need not any more, behind what is new.
func (w *waiting[request]) queue(status fleet.Status, q *mcqueue.Queue[request]) {
	w.mu.Lock()
	ready := make([]request, 0, len(w.requests[status.Name]))
	for req := range w.requests[status.Name] {
		if slices.ContainsFunc(w.needs[req], func(n need) bool { return n.cluster == status.Name && n.isMet(status) }) {
			ready = append(ready, req)
			w.forgetLocked(req)
		}
	}
	w.mu.Unlock()
	q.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, ready...)
}

// purge forgets the requests of a cluster that has left.
func (w *waiting[request]) purge(own fleet.ClusterName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for req := range w.needs {
		if req.Cluster() == own {
			w.forgetLocked(req)
		}
	}
}
