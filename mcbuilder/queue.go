package mcbuilder

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// WithQueue sets the options of the controller's queue. Where they leave it open, and there is a provider, at most half
// of the workers, but at least one, reconcile requests of one cluster at once; as many reconciles count as the controller's
// options say; and beside them there are 32 spare goroutines for each worker, at most 512, for reconciles that wait for
// silent clusters or are slow. With one worker, or a negative number of spare ones, there are none: then no more reconciles
// run at once than there are workers, whatever they wait for.
//
// A rate limiter is taken from the controller's options. WithOptions can set a queue of another kind with NewQueue; then
// requests of clusters that cannot be reached wait outside of it, and reconciles that wait for silent clusters hold workers.
func (b *TypedBuilder[request]) WithQueue(options mcqueue.Options[request]) *TypedBuilder[request] {
	b.queue = options
	return b
}

// WithWeights sets how many requests of a member are reconciled before the next member's turn, from 1, as without weights, to
// 100. weight is called, by one goroutine, when the member is reported and whenever it changes: it must not wait for anything.
// What it returns below 1 counts as 1, what is above 100 as 100, and a panic as 1. Nothing is kept of a member that leaves.
//
// A queue that WithOptions has set with NewQueue heeds weights if it is an mcqueue.Queue.
func (b *TypedBuilder[request]) WithWeights(weight func(fleet.Status) int) *TypedBuilder[request] {
	b.weight = weight
	return b
}

// WeightFromLabel returns weights for [TypedBuilder.WithWeights]: that of a member is the number which its label holds, and
// 1 without the label, or if that holds anything else.
func WeightFromLabel(label string) func(fleet.Status) int {
	return func(status fleet.Status) int {
		weight, err := strconv.Atoi(status.Labels[label])
		if err != nil {
			return 1
		}
		return weight
	}
}

const (
	sparePerWorker = 32
	mostSpare      = 512
)

// bounded returns the options of the queue of a controller with a provider and so many workers.
func bounded[request mcreconcile.ClusterAware[request]](options mcqueue.Options[request], workers int) mcqueue.Options[request] {
	if options.Workers <= 0 {
		options.Workers = workers
	}
	if options.InFlightPerCluster == 0 {
		options.InFlightPerCluster = max(1, options.Workers/2)
	}
	if options.Spare == 0 && options.Workers > 1 {
		options.Spare = min(sparePerWorker*options.Workers, mostSpare)
	}
	options.Spare = max(0, options.Spare)
	return options
}

type newQueueFunc[request comparable] func(string, workqueue.TypedRateLimiter[request]) workqueue.TypedRateLimitingInterface[request]

// newQueue returns what makes the controller's queue when the controller starts, and logs how many reconciles count at once: in
// controller-runtime's line the spare goroutines are workers too.
func (r *reconciler[request]) newQueue(options mcqueue.Options[request], log logr.Logger) newQueueFunc[request] {
	return func(controller string, limiter workqueue.TypedRateLimiter[request]) workqueue.TypedRateLimitingInterface[request] {
		options.RateLimiter = limiter
		queue := mcqueue.New(controller, options)
		if options.Spare > 0 {
			log.Info("Of the workers that start now, the spare ones are for reconciles that do not count",
				"workers", options.Workers, "spare", options.Spare)
			r.queue = queue
		}
		return queue
	}
}

// attendance is a source that brings no events. It keeps the queue in step with the fleet: requests of members that
// cannot be reached are parked, and those of members that leave are purged before the member is drained. Requests that
// wait for a member, or for a kind of it, are queued when that is ready, or the member is gone, or another replica's.
type attendance[request mcreconcile.ClusterAware[request]] struct {
	fleet      *fleet.Fleet
	controller string
	waiting    *waiting[request]
	weight     func(fleet.Status) int // nil for one each
	log        logr.Logger
	leaver     *leaver[request]
	started    func(ctx context.Context, queue *mcqueue.Queue[request]) // see reconciler.start
}

// Start implements source.TypedSource. The goroutine ends with ctx.
func (a attendance[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	q, ok := queue.(*mcqueue.Queue[request])
	a.started(ctx, q)
	switch {
	case ok:
		a.waiting.unparked = false
		go a.follow(ctx, q)
	case a.waiting.unparked:
		go a.wake(ctx, queue)
	}
	a.leaver.begin(ctx, q)
	return nil
}

func (a attendance[request]) String() string { return "the queue of controller " + a.controller }

// attended is an engagement whose requests the queue holds. Its drain waits for leave.
type attended struct {
	engagement *fleet.Engagement
	leave      func()
}

func (a attendance[request]) follow(ctx context.Context, q *mcqueue.Queue[request]) {
	defer a.fleet.Controller(a.controller).ShowQueue(q)()
	a.waiting.served.Store(true)
	defer a.waiting.served.Store(false)
	members := map[fleet.ClusterName]attended{}
	for change := range a.fleet.Controller(a.controller).Changes(ctx) {
		name := change.Status.Name
		if name == mcreconcile.LocalCluster {
			a.followLocal(members, change, q)
			continue
		}
		switch change.Status.State {
		case "", fleet.NotOwned:
			a.purge(members, name, q)
			a.waiting.queue(change.Status, q) // they are told that it is gone, or another replica's
		case fleet.Draining:
			a.purge(members, name, q)
		case fleet.Ready:
			a.park(change.Status, q)
			a.weigh(change.Status, q)
			a.waiting.queue(change.Status, q)
		case fleet.Pending, fleet.Connecting, fleet.Unreachable, fleet.Suspended, fleet.Drained:
			q.Pause(name)
			a.weigh(change.Status, q)
		}
		a.attend(members, name, change.Engagement)
	}
	for _, m := range members {
		m.leave()
	}
}

// wake queues what waits for clusters, in a queue of another kind: nobody parks requests in that one.
func (a attendance[request]) wake(ctx context.Context, q workqueue.TypedRateLimitingInterface[request]) {
	a.waiting.served.Store(true)
	defer a.waiting.served.Store(false)
	for change := range a.fleet.Controller(a.controller).Changes(ctx) {
		ends := slices.Contains([]fleet.State{"", fleet.Draining, fleet.NotOwned}, change.Status.State)
		if ends && change.Status.Name != mcreconcile.LocalCluster {
			a.waiting.purge(change.Status.Name)
		}
		a.waiting.queue(change.Status, q)
	}
}

// park lets the requests of a member that is Ready run, unless it is paused.
func (a attendance[request]) park(status fleet.Status, q *mcqueue.Queue[request]) {
	if status.Paused {
		q.Pause(status.Name)
		return
	}
	q.Resume(status.Name)
}

// followLocal parks the requests of the local cluster while another replica reconciles them. Every replica hears of all objects
// there, so that the next one needs no list.
func (a attendance[request]) followLocal(members map[fleet.ClusterName]attended, change fleet.Change, q *mcqueue.Queue[request]) {
	name := change.Status.Name
	if change.Status.State == fleet.Ready {
		q.Resume(name)
		a.waiting.queue(change.Status, q)
	} else {
		q.Pause(name)
	}
	a.attend(members, name, change.Engagement)
}

// weigh tells the queue the weight of a member. The function is a user's, and what it gets a stranger's: it may panic.
func (a attendance[request]) weigh(status fleet.Status, q *mcqueue.Queue[request]) {
	if a.weight == nil {
		return
	}
	weight := 1
	defer func() {
		if problem := recover(); problem != nil {
			a.log.Error(fmt.Errorf("panic: %v", problem), "The function of WithWeights panicked; the member's weight is 1", "cluster", status.Name)
		}
		q.SetWeight(status.Name, weight)
	}()
	weight = a.weight(status)
}

// purge drops the requests of a member that leaves, or is another cluster now. Reconciles that run may still ask to be
// called again, so it is done once more when the last has ended, and the drain waits for that.
//
// No drain waits where the queue has not joined an engagement. Then the member may be back already by now, and what is queued may be
// news of it: that is left to the reconciler, which drops requests of what is no member.
func (a attendance[request]) purge(members map[fleet.ClusterName]attended, name fleet.ClusterName, q *mcqueue.Queue[request]) {
	m, ok := members[name]
	if !ok {
		q.Release(name)
		a.waiting.release(name, q)
		return
	}
	delete(members, name)
	over := q.Purge(name)
	a.waiting.purge(name)
	go func() {
		defer m.leave()
		<-over
		q.Purge(name)
		a.waiting.purge(name)
	}()
}

// attend has the engagement of a member wait for the queue, in place of the one before.
func (a attendance[request]) attend(members map[fleet.ClusterName]attended, name fleet.ClusterName, engagement *fleet.Engagement) {
	before, was := members[name]
	if before.engagement == engagement {
		return
	}
	if was {
		before.leave()
		delete(members, name)
	}
	if engagement == nil {
		return
	}
	if _, leave, err := engagement.Join(context.Background(), a); err == nil {
		members[name] = attended{engagement, leave}
	}
}
