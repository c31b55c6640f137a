package mcbuilder

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
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

// isMet reports whether a request that waits may run, by what holds for the cluster. It is told if that is gone, or a member that another
// replica works on now: it may be a guest there. The local cluster has no guests.
func (n need) isMet(status fleet.Status) bool {
	switch {
	case status.State == "":
		return true
	case n.kind.Empty():
		return status.State == fleet.Ready || status.State == fleet.NotOwned && n.cluster != mcreconcile.LocalCluster
	}
	return !slices.ContainsFunc(status.NotSynced, func(s fleet.NotSynced) bool { return schema.GroupKind(s.Kind) == n.kind })
}

// waiting holds requests whose reconciler needs other clusters, or kinds that are not synced, until one of these is ready,
// gone, or another replica's. They take up no worker. Those that wait for clusters are in no queue.
type waiting[request mcreconcile.ClusterAware[request]] struct {
	// served is set while somebody queues what waits.
	served atomic.Bool
	// unparked is set if the queue is of another kind, which parks nothing. It is set before the controller starts.
	unparked bool
	// some is set if anything waits, so that a reconcile needs no lock to find out that its request does not.
	some atomic.Bool

	mu       sync.Mutex // guards what follows
	requests map[fleet.ClusterName]map[request]struct{}
	needs    map[request][]need                    // empty for one that only time brings back
	over     map[fleet.ClusterName][]chan struct{} // by their own cluster, closed when none of it waits any more
	pauses   map[request]*wait.Backoff             // of those that have waited several times in a row for a kind
}

// add lets a request wait for what it needs, or, without any needs, for the time at which it is tried again.
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

// pause returns how long a request waits for a kind. Each pause in a row is longer than the one before.
func (w *waiting[request]) pause(req request) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pauses == nil {
		w.pauses = map[request]*wait.Backoff{}
	}
	if w.pauses[req] == nil {
		w.pauses[req] = &wait.Backoff{Duration: later, Factor: 2, Jitter: 0.2, Cap: latest * 5 / 6, Steps: math.MaxInt}
	}
	return w.pauses[req].Step()
}

// settle forgets the pauses of a request that was reconciled and does not wait.
func (w *waiting[request]) settle(req request) {
	if !w.some.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, waits := w.needs[req]; !waits {
		delete(w.pauses, req)
		w.some.Store(len(w.needs)+len(w.pauses) > 0)
	}
}

// forgetLocked keeps the pauses, as the request may wait again.
func (w *waiting[request]) forgetLocked(req request) {
	for _, n := range w.needs[req] {
		delete(w.requests[n.cluster], req)
		if len(w.requests[n.cluster]) == 0 {
			delete(w.requests, n.cluster)
		}
	}
	delete(w.needs, req)
	w.some.Store(len(w.needs)+len(w.pauses) > 0)
	w.tellLocked(req.Cluster())
}

// queue queues what waits for a cluster and need not any more, behind what is new if the queue knows priorities.
func (w *waiting[request]) queue(status fleet.Status, q workqueue.TypedRateLimitingInterface[request]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ready := make([]request, 0, len(w.requests[status.Name]))
	for req := range w.requests[status.Name] {
		if slices.ContainsFunc(w.needs[req], func(n need) bool { return n.cluster == status.Name && n.isMet(status) }) {
			ready = append(ready, req)
			delete(w.pauses, req)
			w.forgetLocked(req)
		}
	}
	// Under the lock, so that it is never in neither place.
	if q, ok := q.(priorityqueue.PriorityQueue[request]); ok {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, ready...)
		return
	}
	for _, req := range ready {
		q.Add(req)
	}
}

// purge forgets the requests of a cluster that has left.
func (w *waiting[request]) purge(own fleet.ClusterName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for req := range w.needs {
		if req.Cluster() == own {
			delete(w.pauses, req)
			w.forgetLocked(req)
		}
	}
	w.tellLocked(own)
}

// release queues the requests of a cluster, whatever they wait for.
func (w *waiting[request]) release(own fleet.ClusterName, q *mcqueue.Queue[request]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []request
	for req := range w.needs {
		if req.Cluster() == own {
			found = append(found, req)
			w.forgetLocked(req)
		}
	}
	// Under the lock, so that it is never in neither place.
	q.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, found...)
}

// none returns a channel that is closed when no request of a cluster waits.
func (w *waiting[request]) none(own fleet.ClusterName) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	over := make(chan struct{})
	if w.over == nil {
		w.over = map[fleet.ClusterName][]chan struct{}{}
	}
	w.over[own] = append(w.over[own], over)
	w.tellLocked(own)
	return over
}

// tellLocked tells those who wait for it that no request of a cluster waits, if that is so.
func (w *waiting[request]) tellLocked(own fleet.ClusterName) {
	if len(w.over[own]) == 0 {
		return
	}
	for req := range w.needs {
		if req.Cluster() == own {
			return
		}
	}
	for _, over := range w.over[own] {
		close(over)
	}
	delete(w.over, own)
}

// undone counts the requests of a cluster that wait, or are in the queue and not done, and returns some. What goes from the one
// place to the other is counted.
func (w *waiting[request]) undone(own fleet.ClusterName, q *mcqueue.Queue[request], most int) (n int, some []request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, some = q.Unsettled(own, most)
	for req := range w.needs {
		if req.Cluster() != own {
			continue
		}
		n++
		if len(some) < most {
			some = append(some, req)
		}
	}
	return n, some
}
