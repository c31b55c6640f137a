package members

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

// mirror writes the Members. Its requests are names of these.
type mirror struct {
	fleet    *fleet.Fleet
	elected  <-chan struct{}
	specs    specs
	writer   client.Client
	opts     Options
	log      logr.Logger
	shown    shown
	versions versions
	begun    chan struct{}                       // closed by begin
	queue    priorityqueue.PriorityQueue[string] // set by begin
}

// begin brings requests for all that changes, until ctx ends.
func (m *mirror) begin(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) error {
	m.queue = queue.(priorityqueue.PriorityQueue[string]) //nolint:forcetypeassert // as the options say
	close(m.begun)
	return m.specs.follow(ctx, m.specChanged)
}

// follower brings a mirror what the fleet does. The manager waits for it.
type follower struct{ *mirror }

// NeedLeaderElection implements manager.LeaderElectionRunnable: each replica follows.
func (follower) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It ends with ctx, after all that it has begun.
func (f follower) Start(ctx context.Context) error {
	select {
	case <-f.begun:
	case <-ctx.Done():
		return nil
	}
	var election sync.WaitGroup
	defer election.Wait()
	if !f.fleet.Shared() {
		election.Go(func() { f.awaitElection(ctx) })
	}
	f.follow(ctx)
	return nil
}

// awaitElection ends with ctx.
func (m *mirror) awaitElection(ctx context.Context) {
	select {
	case <-m.elected:
		m.keep(ctx, true)
	case <-ctx.Done():
	}
}

// follow brings a request for each member that changes. It ends with ctx.
func (m *mirror) follow(ctx context.Context) {
	for change := range m.fleet.Controller(controllerName).Changes(ctx) {
		cluster := change.Status.Name
		if cluster == mcreconcile.LocalCluster {
			m.keep(ctx, change.Status.State == fleet.Ready)
			continue
		}
		object := v1alpha1.ObjectName(string(cluster))
		m.shown.joined(object, cluster, change.Status.State != "")
		m.queue.Add(object)
	}
}

// keep begins or ends that this replica looks after the Members that are no other's. One replica does: the leader, or, where
// several share the members, the one that has the local cluster.
func (m *mirror) keep(ctx context.Context, keeps bool) {
	if !m.shown.keep(keeps) {
		return
	}
	list := &v1alpha1.MemberList{}
	if err := m.specs.List(ctx, list); err != nil {
		return // ctx has ended
	}
	for i := range list.Items {
		m.add(list.Items[i].Name)
	}
	for _, object := range m.shown.all() {
		m.queue.Add(object)
	}
}

// add brings a request for a Member. Those that are no member's come last, however many there are.
func (m *mirror) add(object string) {
	if _, is := m.shown.clusterOf(object); is {
		m.queue.Add(object)
		return
	}
	m.queue.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, object)
}

func (m *mirror) specChanged(before, now *v1alpha1.Member) {
	either := cmp.Or(now, before)
	if either == nil {
		return
	}
	m.shown.seen(either.Name, now)
	if bearsItsName(either) && (before == nil || now == nil || holdOf(before) != holdOf(now)) {
		m.fleet.HoldChanged(fleet.ClusterName(either.Spec.ClusterName))
	}
	m.add(either.Name)
}

// again is how long after a failure a Member is tried again.
const again = 5 * time.Second

// Reconcile implements reconcile.TypedReconciler.
func (m *mirror) Reconcile(ctx context.Context, object string) (reconcile.Result, error) {
	after, err := m.look(ctx, object)
	if ctx.Err() != nil {
		return reconcile.Result{}, nil //nolint:nilerr // it ends
	}
	if reason := fleet.ReasonOf(err); m.shown.failing(reason) {
		if err != nil {
			m.log.Info("Cannot write Members; trying again", "member", object, "reason", reason, "error", err.Error())
		} else {
			m.log.Info("Members are written again")
		}
	}
	if err != nil {
		after = again
	}
	result := reconcile.Result{RequeueAfter: after}
	if _, is := m.shown.clusterOf(object); !is {
		result.Priority = new(handler.LowPriority)
	}
	return result, nil
}

// look does what is to be done for a Member, and returns when to look again, zero for never.
func (m *mirror) look(ctx context.Context, object string) (after time.Duration, err error) {
	known, err := m.specs.get(ctx, object)
	if err != nil {
		return 0, err
	}
	cluster, is := m.shown.clusterOf(object)
	status, isStill := m.fleet.Status(cluster)
	switch {
	case is && isStill && m.writes(status):
		return m.show(ctx, object, known, status)
	case !is && known != nil && m.shown.keeps():
		return m.disown(ctx, known)
	case !is && known == nil:
		m.versions.forget(object)
		return m.shown.forget(object), nil
	}
	return 0, nil
}

// writes reports whether it is this replica that writes the Member: the one that works on the member.
func (m *mirror) writes(status fleet.Status) bool {
	switch {
	case !m.fleet.Shared():
		return m.shown.keeps()
	case status.State == fleet.NotOwned: // replicas of other pools do not say what they own
		return status.Owner == "" && m.shown.keeps() && status.Labels[sharding.LabelPool] == ""
	}
	return status.State != fleet.Suspended
}
