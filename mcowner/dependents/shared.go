package dependents

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// What follows is for several replicas that share the members. The replica that works on an owner's cluster does all that is done
// for the owner, in whatever cluster: a visit is a request of the owner's cluster. It ends when that is handed over, and writes
// nothing once the replica cannot prove that it owns the owner's cluster. The other replicas do nothing about the owner.

// placing returns the work on an owner's part in a cluster.
func (c *engine) placing(owner mcreconcile.Request, in mcreconcile.ClusterName) work {
	if c.access.IsShared() {
		return work{owner, in, visit}
	}
	return work{owner, in, place}
}

// visit does place in the cluster in which it is to be done: on its engagement, if it is this replica's too, or as a guest.
func (c *engine) visit(ctx context.Context, w work) (result reconcile.Result, err error) {
	c.inTenure(ctx, w.owner.ClusterName)
	o := c.ledger.get(w.owner)
	if o == nil {
		c.askFor(w)
		return reconcile.Result{}, nil
	}
	begun := false
	err = c.access.Visit(ctx, w.in, func(ctx context.Context, at remote.Session) error {
		begun = true
		if at.Guest != nil {
			c.ledger.present(siteOf(at))
		}
		var err error
		result, err = c.place(mcreconcile.WithCluster(ctx, w.in, at.Cluster), o, w, at)
		return err
	})
	o.visited(w.in, err != nil)
	if err != nil && c.ledger.get(w.owner) != o {
		return reconcile.Result{}, nil // it was let go meanwhile, and endVisits is over
	}
	if begun || err == nil {
		return result, err
	}
	if errors.Is(err, fleet.ErrNotOwned) && !remote.IsNoVisit(err) && c.access.IsOthers(w.in) {
		return reconcile.Result{}, nil // it is just being handed over: it is visited when that is done
	}
	if ctx.Err() == nil {
		c.cannot(o, w, err)
	}
	if errors.Is(err, mcmanager.ErrNoIdentity) { // the result says so
		return reconcile.Result{RequeueAfter: mostPause}, nil
	}
	return result, err
}

// endVisits ends the waits of visits, as their owner is let go, or gone: tried again, they find that nothing is known of it. They are requests of
// the owner's cluster, which may leave the fleet.
func (c *engine) endVisits(o *ownerState) {
	for _, name := range o.toVisit() {
		c.works.addLow(c.placing(o.req, name))
	}
}

// isTakenBack reports whether an owner was let go while it had dependents, and is the controller's again. Where replicas share the members,
// another one may sweep what it left, and could tell nobody.
func (c *engine) isTakenBack(owner client.Object) bool {
	return c.access.IsShared() && !c.keys.Holds(owner) && c.keys.Read(owner).GivenUp
}

// toGlean returns the clusters in which an owner may have left something, ordered.
func (c *engine) toGlean() []mcreconcile.ClusterName {
	return union(c.access.Names(c.cfg.dependentsIn), nil)
}

// gleanIn has the first of these clusters gleaned. The others come after it: there may be thousands, for thousands of owners.
func (c *engine) gleanIn(owner mcreconcile.Request, names []mcreconcile.ClusterName) {
	if len(names) > 0 {
		c.works.addLow(work{owner, names[0], glean})
	}
}

// glean looks whether an owner has left something in a cluster, and goes on with the next one. Where the owner has something by its record
// is looked at anyway, and a cluster that cannot be visited now is visited when it can.
func (c *engine) glean(ctx context.Context, w work) error {
	if o := c.ledger.get(w.owner); o != nil && !o.concerns(w.in) {
		result, err := c.visit(ctx, work{w.owner, w.in, visit})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			c.works.addLow(c.placing(w.owner, w.in))
		case result.RequeueAfter > 0: // it could not be found out
			c.works.addAfter(c.placing(w.owner, w.in), result.RequeueAfter)
		}
	}
	names := c.toGlean()
	at, found := slices.BinarySearch(names, w.in)
	if found {
		at++
	}
	c.gleanIn(w.owner, names[at:])
	return nil
}

// inTenure forgets what is known of a cluster's owners from the time before this replica owned it last.
func (c *engine) inTenure(ctx context.Context, origin mcreconcile.ClusterName) {
	if c.access.IsShared() {
		c.ledger.inTenure(origin, mcreconcile.Epoch(ctx))
	}
}

// followLocal has all owners in the local cluster planned when this replica begins to work on it: every replica hears of them, and
// those that have not changed since are in no queue.
func (m members) followLocal(last memberSeen, change fleet.Change) memberSeen {
	now := memberSeen{engagement: change.Engagement, state: change.Status.State, epoch: change.Status.Epoch}
	switch {
	case now.state == fleet.NotOwned:
		m.ledger.endTenure(mcreconcile.LocalCluster, last.epoch)
	case now.engagement != nil && now.engagement != last.engagement:
		m.seekIn(mcreconcile.LocalCluster)
		if m.access.Within(m.cfg.ownersIn, mcreconcile.LocalCluster) {
			m.works.addLow(work{task: review})
		}
	}
	if now.epoch == 0 {
		now.epoch = last.epoch
	}
	return now
}

// review has all owners in the local cluster planned that its cache has.
func (c *engine) review(ctx context.Context, at remote.Session) error {
	ctx, cancel := c.access.Bound(ctx)
	defer cancel()
	list, err := c.owner.NewList(c.access.Manager.GetScheme())
	if err != nil {
		return err
	}
	if err := at.Cluster.GetCache().List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("reading the owners in %s: %w", at, err)
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		if obj, ok := item.(client.Object); ok {
			c.owners.addLow(mcreconcile.Request{ClusterName: at.Name(), Request: reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)}})
		}
		return nil
	})
}

// Replay implements mcsource.Replayer: a member that leaves waits for what visits do there.
func (m members) Replay(_ context.Context, e *fleet.Engagement) error {
	if m.access.IsShared() {
		m.works.add(work{in: e.Name(), task: hold})
	}
	return nil
}

// errOwnersElsewhere keeps a member that leaves: it waits for what is tried again after an error, and for nothing else.
var errOwnersElsewhere = errors.New("owners in other clusters have not done yet what they are to do as the cluster leaves the fleet")

// holdUp keeps a member that leaves as long as owners have not done what they are to do there: those of this replica have it in their
// records, those of others dependents that are not to stay.
func (c *engine) holdUp(ctx context.Context, in mcreconcile.ClusterName) error {
	if !mcreconcile.Leaving(ctx) {
		return nil
	}
	for _, o := range c.ledger.all() {
		if v, ok := o.in(in); ok && len(v.sites)+len(v.dropped) > 0 {
			return errOwnersElsewhere
		}
	}
	if c.cfg.onMemberLeaving.propagation() == "" {
		return nil
	}
	at, err := c.access.Current(ctx)
	if err != nil {
		return err
	}
	has, err := c.hasDependents(ctx, at)
	if err == nil && has {
		err = errOwnersElsewhere
	}
	return err
}

var errFound = errors.New("there is one")

// hasDependents reports whether there are dependents of the controller in a cluster, by its API server, that are not being deleted, and
// for which some replica may do something.
func (c *engine) hasDependents(ctx context.Context, at remote.Session) (bool, error) {
	kinds, err := remote.KindsOf(slices.Concat(c.collector.Kinds, c.moreKindsFound()), c.access.Manager.GetScheme())
	if err != nil {
		return false, err
	}
	scan := remote.Scan{Namespaces: c.cfg.namespaces}
	for _, k := range kinds {
		err := scan.Each(ctx, c.access, at, k, remote.OfFleet(c.cfg.fleet), func(obj *metav1.PartialObjectMetadata) error {
			references, err := k.References(obj, at.ID)
			served := func(r mcowner.Reference) bool { return c.isServed(ctx, r) }
			if err == nil && obj.DeletionTimestamp.IsZero() && slices.ContainsFunc(references, served) {
				return errFound
			}
			return nil // what cannot be read is nobody's
		})
		if err != nil {
			return errors.Is(err, errFound), ignore(err, errFound)
		}
	}
	return false, nil
}

// isServed reports whether some replica may find out whether an owner is there, and do something about its dependents: if it is of the
// controller's kind, and its cluster is in the fleet, or may come yet, or is said to be no more. Whoever may write an object may name any other.
func (c *engine) isServed(ctx context.Context, owner mcowner.Reference) bool {
	if owner.Fleet != c.cfg.fleet || owner.Manager != c.cfg.name || owner.GroupKind() != c.owner.GroupKind() {
		return false
	}
	if c.collector.IsDecommissioned(owner) {
		return true
	}
	if remote.IsMissing(c.access.WhyNot(owner.Cluster)) && c.reportedIn(owner.Cluster) == 0 {
		return false
	}
	now, err := c.access.IDOf(ctx, owner.Cluster)
	return err != nil || !mcowner.Differ(now.UID, owner.ClusterUID)
}

func ignore(err, that error) error {
	if errors.Is(err, that) {
		return nil
	}
	return err
}

// everywhere is a runnable that runs on all replicas, where they share the members, and not on the leader alone.
type everywhere struct{ manager.RunnableFunc }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }

func (c *engine) onReplicas(run manager.RunnableFunc) manager.Runnable {
	if c.access.IsShared() {
		return everywhere{run}
	}
	return run
}
