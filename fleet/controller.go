package fleet

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcqueue"
)

// Controller is the part that one controller has in a fleet. Package mcbuilder takes it for what it builds, so only a
// controller that is built by hand needs it: each of its reconciles begins with [Controller.Begin], and its queue is shown
// by [Controller.ShowQueue]. It is safe for concurrent use.
type Controller struct {
	fleet *Fleet
	name  string
}

// Controller returns the part of the controller of that name, which is a label of metrics.
func (f *Fleet) Controller(name string) *Controller { return &Controller{fleet: f, name: name} }

// Begin begins a reconcile on the engagement of a member. It is [Fleet.Engagement] and [Engagement.Join], with their
// errors. A member that is paused is not ready. Where
// several replicas share the members, the reconcile also ends when this one cannot prove any more that it owns the member, which is
// a [StateError], and what it sends to change anything, in whatever cluster, is refused then.
// The reconcile runs on the returned context. It ends with end, which is given what the reconciler has returned, for the
// metrics of the member. What has a method Idle() time.Duration says by it for how much of its time it held no worker, which
// counts for nothing where members are shared by what they cost.
func (c *Controller) Begin(ctx context.Context, name ClusterName, what fmt.Stringer) (
	joined context.Context, e *Engagement, end func(reconcile.Result, error), err error,
) {
	if e, err = c.fleet.engagementToReconcile(name); err != nil {
		return nil, nil, nil, err
	}
	joined, leave, err := e.reconcile(ctx, what)
	if err != nil {
		return nil, nil, nil, err
	}
	begun := e.clock()
	return joined, e, func(result reconcile.Result, err error) {
		e.tally.reconciled(c.name, outcomeOf(result, err))
		e.spend(begun, what)
		leave()
	}, nil
}

// engagementToReconcile is Engagement for a reconcile, which none of a member that is paused may begin.
func (f *Fleet) engagementToReconcile(name ClusterName) (*Engagement, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.memberLocked(name)
	if m == nil || m.state != Ready || m.isPausedLocked() {
		return nil, f.notReadyLocked(name)
	}
	return m.engagement, nil
}

// clock returns the time of the engagement, if somebody wants to know what reconciles cost.
func (e *Engagement) clock() time.Duration {
	if e.spent == nil {
		return 0
	}
	return time.Since(e.began)
}

// spend tells what a reconcile has cost that began then.
func (e *Engagement) spend(begun time.Duration, what fmt.Stringer) {
	if e.spent == nil {
		return
	}
	took := e.clock() - begun
	if waits, ok := what.(interface{ Idle() time.Duration }); ok {
		took -= waits.Idle()
	}
	e.spent(max(0, took))
}

// Changes is [Fleet.Changes] for the controller's queue. Where several replicas share the members, and share what the controller
// reconciles in the local cluster, it also yields the local cluster, under its name.
func (c *Controller) Changes(ctx context.Context) iter.Seq[Change] { return c.fleet.changes(ctx, true) }

// Queue is what a fleet shows of a controller's queue, such as that of a mcqueue.Queue.
type Queue interface {
	// Stats returns the figures of one member, and does not wait for anything.
	Stats(name ClusterName) mcqueue.Stats
	// Running returns the requests of one member that are being reconciled, and does not wait for anything.
	Running(name ClusterName) []mcqueue.Running
}

// ShowQueue makes [Fleet.Queues] show the controller's queue, until hide is called.
func (c *Controller) ShowQueue(queue Queue) (hide func()) {
	f := c.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.queues == nil {
		f.queues = map[string]*shownQueue{}
	}
	shown := &shownQueue{queue}
	f.queues[c.name] = shown
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.queues[c.name] == shown {
			delete(f.queues, c.name)
		}
	}
}

// shownQueue tells queues of the same controller apart.
type shownQueue struct{ Queue }

// Running returns the requests of a member that are being reconciled, by the names of the controllers that do so.
func (f *Fleet) Running(name ClusterName) map[string][]mcqueue.Running {
	return askQueues(f, func(q Queue) []mcqueue.Running { return q.Running(name) })
}

// Queues returns the figures of a member in the queues of the controllers that run, by the controllers' names.
func (f *Fleet) Queues(name ClusterName) map[string]mcqueue.Stats {
	return askQueues(f, func(q Queue) mcqueue.Stats { return q.Stats(name) })
}

func askQueues[answer any](f *Fleet, ask func(Queue) answer) map[string]answer {
	f.mu.Lock()
	queues := maps.Clone(f.queues)
	f.mu.Unlock()
	// Without the lock, which a queue may take while it holds its own.
	all := make(map[string]answer, len(queues))
	for controller, queue := range queues {
		all[controller] = ask(queue)
	}
	return all
}
