package dependents

import (
	"context"
	"errors"
	"slices"

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
			c.ledger.visited(siteOf(at), c.access.IsElsewhere)
		}
		var err error
		result, err = c.place(mcreconcile.WithCluster(ctx, w.in, at.Cluster), o, w, at)
		return err
	})
	o.visited(w.in, err != nil && (begun || !errors.Is(err, fleet.ErrGone))) // nothing waits for what is gone
	if err != nil && c.ledger.get(w.owner) != o {
		return reconcile.Result{}, nil // it was let go meanwhile, and endVisits is over
	}
	if begun || err == nil {
		return result, err
	}
	if errors.Is(err, fleet.ErrNotOwned) && !errors.Is(err, remote.ErrNoVisit) && c.access.IsOthers(w.in) {
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

// unwanted reports whether another replica's owner is to have nothing in a cluster, and whether what it has there is to stay. What may be planned
// for it otherwise, or nobody can plan now, is left to that replica.
func (c *engine) unwanted(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName) (is, keep bool, err error) {
	err = c.access.Visit(ctx, owner.Cluster, func(ctx context.Context, home remote.Session) error {
		ctx = mcreconcile.WithCluster(ctx, home.Name(), home.Cluster)
		obj, err := c.getOwner(ctx, home, owner.Request(), false)
		if err != nil || obj.GetUID() != owner.UID || !obj.GetDeletionTimestamp().IsZero() {
			return err
		}
		policy, senseless := c.cfg.policyOf(ctx, obj)
		p := &plan{home: home, owner: obj, policy: policy}
		stays := c.access.Within(c.cfg.ownersIn, home.Name()) && !c.isLeaving(home.Name())
		if err := c.fill(ctx, newOwnerState(owner.Request(), owner.UID), p, stays, senseless); err != nil {
			return err
		}
		_, wanted := slices.BinarySearch(p.targets, in)
		leftAsItIs := c.isLeaving(in) && c.cfg.onMemberLeaving != LeaveDeleted // what no record has is not released
		asItIs := leftAsItIs || !c.access.Within(c.cfg.dependentsIn, in) || p.givenUp()[in]
		is, keep = p.mode == serving && !wanted && !asItIs, policy.Keep
		return nil
	})
	return is, keep, err
}

// endVisits ends the waits of visits, as their owner is let go, or gone: tried again, they find that nothing is known of it. They are requests of
// the owner's cluster, which may leave the fleet.
func (c *engine) endVisits(o *ownerState) {
	for _, name := range o.toVisit() {
		c.works.addLow(c.placing(o.req, name))
	}
}

// inTenure forgets what is known of a cluster's owners from the time before this replica owned it last.
func (c *engine) inTenure(ctx context.Context, origin mcreconcile.ClusterName) {
	if c.access.IsShared() {
		c.ledger.inTenure(origin, mcreconcile.Epoch(ctx))
	}
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
