package dependents

import (
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

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
