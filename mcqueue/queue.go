// Package mcqueue contains the work queue of controllers that run against many clusters.
//
// It is controller-runtime's priority queue in all that a controller sees of it, and fair across clusters: they take
// turns, so a change waits for one turn of each busy cluster, however deep their backlogs are. Within a cluster the
// higher priority goes first, and among equals what came first, or flows take turns, see [Options]. No cluster has more
// than its share of the workers, and the requests of one that is paused wait without holding up anything.
package mcqueue

import (
	"math"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Options configure a [Queue]. The zero value is usable.
type Options[request mcreconcile.ClusterAware[request]] struct {
	// RateLimiter says how long requests wait that are added rate-limited. Default: five milliseconds after the first
	// failure, doubling up to 1000 seconds.
	RateLimiter workqueue.TypedRateLimiter[request]

	// InFlightPerCluster is how many requests of one cluster may be in flight, or in one cluster, see Target. Default: no limit.
	InFlightPerCluster int

	// Workers is how many requests may be in flight that count. Those do not count for which [Queue.Yield] was called, and
	// of those that take longer than a second the ones beyond three quarters of the workers; at least a quarter, and at
	// least one, is for clusters without such a request. Default: no limit.
	Workers int

	// Spare is how many requests may be in flight beyond Workers, since they do not count. There must be as many
	// goroutines that take requests as Workers and Spare together. When half of Spare is in use, a cluster with a request
	// that has yielded gets no other. Default: none.
	Spare int

	// BackgroundShare is the share of the picks, above 0 and up to 1, that is guaranteed to the background: the requests
	// with a priority below zero, such as those of initial lists and resyncs. It holds while there are any; 1 lets all of them
	// go first. Default: 0.125, one pick in eight. That is also taken for whatever is no such share.
	BackgroundShare float64

	// Flow returns which flow a request is of, such as whose it is. Within a cluster, requests of equal priority that are of
	// different flows take turns: one of a flow that has had nothing to do waits for at most one of each other flow, however deep
	// the backlogs are. Within a flow, what became ready first goes first, but a request that is in flight meanwhile comes last
	// when it is done. It is called under the queue's lock, looks at the request alone, and returns the same each time. Default:
	// all are of one flow.
	Flow func(request) string

	// Target returns the cluster in which a request is worked on, where that may be another one than the request's own. Then
	// InFlightPerCluster is about targets, and so are Workers and Spare where they speak of clusters. Each pair of cluster and target
	// has its turn. Priorities count within a pair, and so do flows. Pauses, purges, weights and metrics are about the requests'
	// own clusters all the same. Target is called under the queue's lock, looks at the request alone, and returns the same
	// each time. Default: the request's own cluster.
	Target func(request) mcreconcile.ClusterName

	// MaxClusterSeries is how many clusters have metrics of their own; those that come when so many have share the series
	// of cluster "(other)" for as long as the queue knows them. Default: 1000. A negative number means that none has.
	MaxClusterSeries int
}

const (
	minRetryDelay          = 5 * time.Millisecond
	maxRetryDelay          = 1000 * time.Second
	defaultBackgroundShare = 0.125
	defaultClusterSeries   = 1000
)

func (o Options[request]) withDefaults() Options[request] {
	if o.RateLimiter == nil {
		o.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[request](minRetryDelay, maxRetryDelay)
	}
	o.Spare = max(o.Spare, 0)
	if !(o.BackgroundShare > 0 && o.BackgroundShare <= 1) { // NaN too
		o.BackgroundShare = defaultBackgroundShare
	}
	if o.MaxClusterSeries == 0 {
		o.MaxClusterSeries = defaultClusterSeries
	}
	return o
}

// Queue is a work queue for requests that carry their cluster. It is safe for concurrent use.
type Queue[request mcreconcile.ClusterAware[request]] struct {
	opts    Options[request]
	metrics *metrics
	begin   time.Time // order counts time from here

	mu       sync.Mutex // guards what follows; nothing is awaited under it
	order    *order[request]
	workers  workers // that wait for something to hand out, or the end; unlock wakes them
	stopped  bool
	alarm    *time.Timer                                      // makes delayed requests ready
	alarmAt  time.Duration                                    // when it rings, zero for never
	retrying map[mcreconcile.ClusterName]map[request]struct{} // what the rate limiter counts failures of
}

var _ priorityqueue.PriorityQueue[mcreconcile.Request] = (*Queue[mcreconcile.Request])(nil)

// New returns a queue whose metrics have the name of its controller; with an empty name it has none. ShutDown ends it.
func New[request mcreconcile.ClusterAware[request]](controller string, opts Options[request]) *Queue[request] {
	opts = opts.withDefaults()
	q := &Queue[request]{
		opts:     opts,
		begin:    time.Now(),
		order:    newOrder[request](opts.InFlightPerCluster, opts.BackgroundShare),
		retrying: map[mcreconcile.ClusterName]map[request]struct{}{},
	}
	q.order.flows, q.order.targets = newFlows(opts.Flow), newTargets(opts.Target)
	q.order.series.most = opts.MaxClusterSeries
	q.order.flights.workers, q.order.flights.spare = opts.Workers, opts.Spare
	q.metrics = newMetrics(controller, q)
	return q
}

// unlock unlocks the queue, and then wakes the workers that were chosen. One that is woken before would find the queue
// locked, and wait once more.
func (q *Queue[request]) unlock() {
	woken := q.workers.chosen()
	q.mu.Unlock()
	woken.tell()
}

// now is the time as order counts it.
func (q *Queue[request]) now() time.Duration { return time.Since(q.begin) }

// Add queues a request with priority 0.
func (q *Queue[request]) Add(req request) {
	q.AddWithOpts(priorityqueue.AddOpts{}, req)
}

// AddAfter queues a request that becomes ready after the given time.
func (q *Queue[request]) AddAfter(req request, after time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: after}, req)
}

// AddRateLimited queues a request that becomes ready when the rate limiter says so.
func (q *Queue[request]) AddRateLimited(req request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, req)
}

// AddWithOpts queues requests. One that is queued already keeps its place, the higher priority and the earlier time.
// One that is in flight is handed out again after Done.
func (q *Queue[request]) AddWithOpts(opts priorityqueue.AddOpts, reqs ...request) {
	priority := 0
	if opts.Priority != nil {
		priority = *opts.Priority
	}
	q.mu.Lock()
	defer q.unlock()
	if q.stopped {
		return
	}
	now := q.now()
	for _, req := range reqs {
		q.addLocked(req, priority, now, later(now, q.delayLocked(opts, req)))
		if opts.RateLimited {
			q.order.fail(req)
		}
	}
}

// later adds a delay to a time. What lies beyond the last time that there is becomes that one.
func later(now, delay time.Duration) time.Duration {
	return now + min(delay, math.MaxInt64-now)
}

// delayLocked returns how long a request has to wait.
func (q *Queue[request]) delayLocked(opts priorityqueue.AddOpts, req request) time.Duration {
	after := max(opts.After, 0)
	if opts.RateLimited {
		limited := q.opts.RateLimiter.When(req)
		if after == 0 {
			after = limited
		}
		after = min(after, limited)
		ofCluster := q.retrying[req.Cluster()]
		if ofCluster == nil {
			ofCluster = map[request]struct{}{}
			q.retrying[req.Cluster()] = ofCluster
		}
		ofCluster[req] = struct{}{}
	}
	if after > 0 {
		q.metrics.retried()
	}
	return max(after, 0)
}

func (q *Queue[request]) addLocked(req request, priority int, now, readyAt time.Duration) {
	did, before := q.order.add(req, priority, now, readyAt)
	switch did {
	case becameReady:
		q.metrics.added(max(priority, before))
		q.wakeLocked()
	case becameDelayed:
		q.ringLocked(now)
	case nothingNew:
		if priority > before {
			q.metrics.raised(before, priority)
		}
	}
}

// wakeLocked makes a worker look for something to do, if there is something, and one waits. That one does the same for the
// next. While there is something that only time can free, the alarm is set.
func (q *Queue[request]) wakeLocked() {
	if q.workers.idle == nil || q.workers.coming >= q.order.ready {
		return
	}
	if !q.order.hasNext() {
		q.setAlarmLocked()
		return
	}
	if q.workers.coming < q.order.flights.room() {
		q.workers.wakeOne()
	}
}

// ringLocked does what is due, and sets the alarm for what is due next.
func (q *Queue[request]) ringLocked(now time.Duration) {
	q.order.advance(now, func(i *item[request]) { q.metrics.added(i.priority) })
	q.wakeLocked()
	q.setAlarmLocked()
}

// setAlarmLocked sets the alarm for what is due next, if anything is.
func (q *Queue[request]) setAlarmLocked() {
	at, more := q.order.due()
	if !more {
		return
	}
	if at == q.alarmAt {
		return // it is set, and to set it again would cost as much
	}
	q.alarmAt = at
	if q.alarm == nil {
		q.alarm = time.AfterFunc(at-q.now(), q.ring)
		return
	}
	q.alarm.Reset(at - q.now())
}

// ring is called by the alarm.
func (q *Queue[request]) ring() {
	q.mu.Lock()
	defer q.unlock()
	if q.stopped {
		return // it rang while the queue ended
	}
	q.alarmAt = 0
	q.ringLocked(q.now())
}

// Get returns the next request, and waits for one if there is none. shutdown tells that the queue has ended.
func (q *Queue[request]) Get() (req request, shutdown bool) {
	req, _, shutdown = q.GetWithPriority()
	return req, shutdown
}

// GetWithPriority is [Queue.Get], and returns the request's priority too. Done must be called with what it returns.
func (q *Queue[request]) GetWithPriority() (req request, priority int, shutdown bool) {
	q.mu.Lock()
	for !q.stopped {
		now := q.now()
		if i, ok := q.order.take(now); ok {
			q.metrics.handedOut(i.priority)
			q.wakeLocked()
			q.unlock()
			q.metrics.waited(now - i.at)
			return i.request, i.priority, false
		}
		w := q.workers.wait()
		q.wakeLocked() // sets the alarm, now that somebody waits for it
		q.unlock()
		<-w.wake
		q.mu.Lock()
		q.workers.waited(w)
	}
	q.mu.Unlock()
	return req, 0, true
}

// Done says that a request that was handed out is not being worked on any more.
func (q *Queue[request]) Done(req request) {
	q.mu.Lock()
	defer q.unlock()
	q.doneLocked(req)
}

func (q *Queue[request]) doneLocked(req request) {
	since, known := q.order.done(req)
	if !known {
		return
	}
	q.metrics.finished(q.now() - since)
	q.wakeLocked()
}

// InFlight returns with which priority a request in flight was handed out, and for how long it had been ready by then: not
// the delay before, but also the time for which its cluster was paused. It is not known of a request that is not in flight.
func (q *Queue[request]) InFlight(req request) (priority int, waited time.Duration, known bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	one, known := q.order.flights.all[req]
	if !known {
		return 0, 0, false
	}
	return one.priority, one.waited, true
}

// Yield says that a request in flight waits for a cluster, its own or another one, that has not answered so far. The
// request does not count against the workers until Reclaim, nor against the limit of its target, which is its own cluster unless
// [Options] say otherwise, if it waits for another. It does nothing for a request that is not in flight, or has yielded already.
func (q *Queue[request]) Yield(req request, to mcreconcile.ClusterName) {
	q.mu.Lock()
	defer q.unlock()
	q.order.yield(req, to != q.order.targets.name(req))
	q.wakeLocked()
}

// Reclaim ends Yield. It does not wait: more requests may count than there are workers, and then no other is handed out
// until they are fewer.
func (q *Queue[request]) Reclaim(req request) {
	q.mu.Lock()
	defer q.unlock()
	q.order.reclaim(req)
	q.wakeLocked()
}

// Forget makes the rate limiter forget the failures of a request.
func (q *Queue[request]) Forget(req request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.opts.RateLimiter.Forget(req)
	ofCluster := q.retrying[req.Cluster()]
	delete(ofCluster, req)
	if ofCluster != nil && len(ofCluster) == 0 {
		delete(q.retrying, req.Cluster())
	}
}

// NumRequeues returns how often the rate limiter has delayed a request since it was forgotten.
func (q *Queue[request]) NumRequeues(req request) int {
	return q.opts.RateLimiter.NumRequeues(req)
}

// Len returns how many requests are ready, including those that are parked, or held back as they are in flight.
func (q *Queue[request]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.order.ready
}

// Pause parks the requests of a cluster, those that there are and those to come: they stay queued with their priorities,
// and equal ones coalesce, but none is handed out before Resume. What is in flight goes on.
func (q *Queue[request]) Pause(name mcreconcile.ClusterName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.order.pause(name)
}

// Resume ends a pause. The metrics of a cluster that was paused, resumed or weighted are kept until it is purged; those of
// any other cluster only while it has requests.
func (q *Queue[request]) Resume(name mcreconcile.ClusterName) {
	q.mu.Lock()
	defer q.unlock()
	q.resumeLocked(name)
}

func (q *Queue[request]) resumeLocked(name mcreconcile.ClusterName) {
	q.order.resume(name)
	for range q.order.clusters[name].depth {
		q.wakeLocked()
	}
}

// maxWeight keeps one cluster from taking up the queue, whatever a stranger's label says.
const maxWeight = 100

// SetWeight sets how many requests of a cluster are handed out before the next cluster's turn, from 1, as for every cluster at
// first, up to 100. What is below or above counts as the nearest of these. It holds until the cluster is purged.
func (q *Queue[request]) SetWeight(name mcreconcile.ClusterName, weight int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.order.weigh(name, min(max(weight, 1), maxWeight))
}

// Purge drops all requests of a cluster that are not in flight, forgets their failures and its weight, and ends a pause. The returned
// channel is closed when nothing of the cluster is in flight any more. Requests that are added later are taken: the
// caller sees to it that none are.
func (q *Queue[request]) Purge(name mcreconcile.ClusterName) (drained <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	dropped := 0
	drained = q.order.purge(name, func(i *item[request]) {
		dropped++
		if i.phase != delayed {
			q.metrics.dropped(i.priority)
		}
	})
	for req := range q.retrying[name] {
		q.opts.RateLimiter.Forget(req)
	}
	delete(q.retrying, name)
	q.metrics.purged(dropped)
	return drained
}

// Release forgets the weight of a cluster, and ends its pause, as Purge does, and drops nothing. It is for a cluster that was not
// worked on, and may be another one under the name by now, whose requests are in the queue already.
func (q *Queue[request]) Release(name mcreconcile.ClusterName) {
	q.mu.Lock()
	defer q.unlock()
	if c, known := q.order.clusters[name]; known {
		q.resumeLocked(name)
		q.order.release(c)
		q.order.retire(c)
	}
}

// ShuttingDown reports whether the queue has ended.
func (q *Queue[request]) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stopped
}

// ShutDown ends the queue: every Get, now and later, returns at once, and nothing is taken any more. Done goes on
// working. It may be called several times.
func (q *Queue[request]) ShutDown() {
	q.mu.Lock()
	q.stopped = true
	if q.alarm != nil {
		q.alarm.Stop()
	}
	q.workers.wakeAll()
	q.unlock()
	q.metrics.stop()
}

// ShutDownWithDrain is [Queue.ShutDown], as it is in controller-runtime's queue.
func (q *Queue[request]) ShutDownWithDrain() { q.ShutDown() }
