package dependents

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Replay implements mcsource.Replayer: a member that leaves waits for what owners in other clusters do there.
func (m members) Replay(ctx context.Context, e *fleet.Engagement) error {
	none := func() (*leaveLook, error) { return nil, errNoLook }
	if look, err := m.leaves.Get(remote.Session{Engagement: e}, none); err == nil {
		look.times.Add(1)
	}
	return m.works.queueNow(ctx, work{in: e.Name(), task: hold})
}

// errOwnersElsewhere keeps a member that leaves: it waits for what is tried again after an error, and for nothing else.
var errOwnersElsewhere = errors.New("owners in other clusters have not done yet what they are to do as the cluster leaves the fleet")

// holdUp keeps a member that leaves as long as owners have not done what they are to do there: those of this replica have it in their
// records, those of others, or in clusters that cannot be read now, dependents that are not to stay.
func (c *engine) holdUp(ctx context.Context) error {
	if !mcreconcile.Leaving(ctx) {
		return nil
	}
	at, err := c.access.Current(ctx)
	if errors.Is(err, mcmanager.ErrNoIdentity) {
		return nil // nothing is done there
	}
	if err != nil {
		return err
	}
	known, err := c.planOwners(ctx, at)
	if err != nil {
		return err
	}
	for _, o := range c.ledger.all() {
		v, _ := o.in(at.Name())
		if here, _ := divide(at, v.sites); len(here)+len(v.dropped) > 0 && !c.letsGo(o, v) {
			return errOwnersElsewhere
		}
	}
	if c.cfg.onMemberLeaving.propagation() == "" {
		return nil
	}
	has, err := c.hasDependents(ctx, at, known)
	if err == nil && has {
		err = errOwnersElsewhere
	}
	return err
}

// planOwners asks for plans of owners that may have dependents in a cluster that leaves, and have none yet, as after a start. It returns
// the clusters whose owners are known, and an error until those are planned. A cluster of owners that cannot be read is waited for only
// while it is being connected for the first time, or is yet to answer the first list. An owner that cannot be planned is not waited for.
func (c *engine) planOwners(ctx context.Context, leaving remote.Session) (known map[mcreconcile.ClusterName]bool, err error) {
	ctx, cancel := c.access.Bound(ctx)
	defer cancel()
	known = map[mcreconcile.ClusterName]bool{}
	for _, name := range c.access.Names(c.cfg.ownersIn) {
		home, why := c.homeNow(name)
		if why == nil {
			known[name] = true
			why = c.eachCached(ctx, home, func(owner client.Object) {
				req := requestOf(name, owner)
				switch o := c.ledger.get(req); {
				case o != nil && o.uid == owner.GetUID() && o.isPlanned(), c.ledger.isVain(req), !c.mayBeIn(owner, leaving):
				case c.access.WhyHeld(name) != nil:
					known[name] = false
				default:
					c.owners.addLow(req)
					err = errOwnersElsewhere
				}
			})
			known[name] = known[name] && why == nil
		}
		if isBeingConnected(why) || ctx.Err() != nil {
			err = errOwnersElsewhere
		}
	}
	return known, err
}

// homeNow returns a cluster of owners that is this replica's.
func (c *engine) homeNow(name mcreconcile.ClusterName) (cluster.Cluster, error) {
	if name == mcreconcile.LocalCluster && !c.access.IsOthers(name) {
		return c.access.Manager, nil
	}
	e, err := c.access.Manager.GetFleet().Engagement(name)
	if err != nil {
		return nil, err
	}
	return e.Cluster(), nil
}

// isBeingConnected reports whether an error says that a member is being connected for the first time, or about to be, and nothing has failed so far.
func isBeingConnected(err error) bool {
	state, ok := errors.AsType[*fleet.StateError](err)
	return ok && (state.Status.State == fleet.Pending || state.Status.State == fleet.Connecting) && state.Status.Reason == ""
}

// mayBeIn reports whether an owner may have dependents in a cluster, by what is noted on it.
func (c *engine) mayBeIn(owner client.Object, at remote.Session) bool {
	r := c.keys.Read(owner)
	return r.Slices != nil || r.Nonsense || r.Has(at.Name())
}

var errFound = errors.New("there is one")

// hasDependents reports whether there may be dependents of the controller in a cluster, by its API server, that are not being deleted, and
// for which some replica may do something. Of clusters whose owners are known it is known already what these have there. While it looks at
// kinds for longer than a request may take, there may be some, and the next call goes on with the others. One call at a time is for a cluster.
func (c *engine) hasDependents(ctx context.Context, at remote.Session, known map[mcreconcile.ClusterName]bool) (bool, error) {
	if !c.access.IsShared() && !c.cfg.ownersIn.HasMembers() && known[mcreconcile.LocalCluster] {
		return false, nil // there are no other owners
	}
	kinds, err := c.kindsIn(ctx, at)
	if err != nil {
		return false, err
	}
	served := func(r mcowner.Reference) bool {
		mayBe := c.access.IsShared() || c.access.Within(c.cfg.ownersIn, r.Cluster) // of others, replicas may be letting owners go
		return mayBe && !known[r.Cluster] && c.isServed(ctx, r)
	}
	scan, begun := remote.Scan{Namespaces: c.cfg.namespaces}, time.Now()
	look, _ := c.leaves.Get(at, newLeaveLook) // it makes one if need be
	look.begin()
	for _, k := range kinds {
		switch {
		case look.lacks[k.GroupKind()]:
			continue
		case time.Since(begun) > c.access.Timeout:
			return true, nil
		}
		err := scan.Each(ctx, c.access, at, k, remote.OfFleet(c.cfg.fleet), func(obj *metav1.PartialObjectMetadata) error {
			references, err := k.References(obj, at.ID)
			if err == nil && obj.DeletionTimestamp.IsZero() && slices.ContainsFunc(references, served) {
				return errFound
			}
			return nil // what cannot be read is nobody's
		})
		if errors.Is(err, errFound) || err != nil && !remote.IsRefused(err) {
			clear(look.lacks)
			return errors.Is(err, errFound), ignore(err, errFound)
		}
		look.lacks[k.GroupKind()] = true
	}
	clear(look.lacks)
	return false, nil
}

// leaveLook is what is known of a member that leaves until the look at all kinds is over.
type leaveLook struct {
	times atomic.Int64 // that it has begun to leave: it may stay after all, and leave again
	of    int64        // the time of which this is
	lacks map[schema.GroupKind]bool
}

var errNoLook = errors.New("the member was not looked at yet as it leaves")

func newLeaveLook() (*leaveLook, error) { return &leaveLook{lacks: map[schema.GroupKind]bool{}}, nil }

// begin forgets what was found when the member was about to leave before.
func (l *leaveLook) begin() {
	if times := l.times.Load(); times != l.of {
		l.of = times
		clear(l.lacks)
	}
}

// kindsIn returns the kinds of which there may be dependents in a cluster, each once: Kinds, those that are watched somewhere, as owners want or have
// some, and no more than one owner can note of those that are noted on owners. Whoever may edit owners may note any: owners that do not concern the
// cluster are left out, and those that name it come first.
func (c *engine) kindsIn(ctx context.Context, at remote.Session) ([]remote.Kind, error) {
	named, err := c.moreKindsFound(ctx, nil, func(owner client.Object) bool { return c.keys.Read(owner).Has(at.Name()) })
	if err != nil {
		return nil, err
	}
	concerned := slices.DeleteFunc(c.ledger.all(), func(o *ownerState) bool { return !o.concerns(at.Name()) })
	others, err := c.moreKindsFound(ctx, concerned, func(owner client.Object) bool { return c.mayBeIn(owner, at) })
	if err != nil {
		return nil, err
	}
	kinds, err := remote.KindsOf(c.collector.Kinds, c.access.Manager.GetScheme())
	watched := slices.Collect(maps.Keys(c.watches.kinds()))
	for _, gvk := range slices.Concat(watched, named, others) {
		kinds = append(kinds, remote.Untyped(gvk))
	}
	seen := map[schema.GroupKind]bool{}
	kinds = slices.DeleteFunc(kinds, func(k remote.Kind) bool { // lists are the same in all versions
		again := seen[k.GroupKind()]
		seen[k.GroupKind()] = true
		return again
	})
	return kinds[:min(len(kinds), len(c.collector.Kinds)+len(watched)+record.MostKinds)], err
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
