package dependents

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// proof finds out whether owners are gone. What it cannot find out it does not guess.
type proof struct {
	*access
	owners []kind
}

// errUnproven is wrapped by the reasons for which it cannot be told whether an owner is gone.
var errUnproven = errors.New("it cannot be told whether the owner is gone")

// orphaned returns why a dependent in the named cluster no longer belongs to the owner, or nothing if it does. It asks the
// API server of the owner's cluster. The error says why that cannot be told.
func (p *proof) orphaned(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName) (why string, err error) {
	k, ok := p.kindOf(owner)
	if !ok {
		return "", fmt.Errorf("%w: %s is not of the kinds of owners", errUnproven, owner)
	}
	err = p.visit(ctx, owner.Cluster, func(ctx context.Context, home session) error {
		found, outside := k.newMetadata(), ctx
		ctx, cancel := p.bound(ctx)
		defer cancel()
		err := home.cluster.GetAPIReader().Get(ctx, owner.NamespacedName(), found)
		switch {
		case isNotThere(err, owner.Name):
			why = "its owner is gone"
		case err != nil:
			return err
		case found.UID != owner.UID:
			why = "its owner is gone, and another one has the name"
		case !mayBePlaced(found, owner, in):
			why = "its owner has no dependents in this cluster any more"
		}
		if why != "" {
			return p.sameCluster(outside, home, owner)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("%w: %w", errUnproven, err)
	}
	return why, nil
}

func (p *proof) kindOf(owner mcowner.Reference) (kind, bool) {
	i := slices.IndexFunc(p.owners, func(k kind) bool { return k.gvk.GroupKind() == owner.GroupKind() })
	if i < 0 {
		return kind{}, false
	}
	return p.owners[i], true
}

// errAnotherCluster says that an owner's cluster is, or may be, another one than when the reference was written.
var errAnotherCluster = errors.New("not the cluster that the owner was in")

// sameCluster returns an error, which wraps errAnotherCluster, if the owner's cluster is, or may be, another one than when the
// reference was written. A cluster is asked now where the fleet would not notice that another one answers.
func (p *proof) sameCluster(ctx context.Context, home session, owner mcowner.Reference) error {
	if owner.ClusterUID == "" {
		return nil
	}
	ctx, cancel := p.bound(ctx)
	defer cancel()
	now, err := p.known.now(ctx, home)
	if err != nil {
		return err
	}
	if now != owner.ClusterUID {
		return fmt.Errorf("%s is %w: its identity is %.64q, not %.64q", clusterText(home.name), errAnotherCluster, string(now), string(owner.ClusterUID))
	}
	return nil
}

// isNotThere reports whether an error is the API server's word that there is no such object. It also says not found when it
// does not serve the kind, and so may whatever is between.
func isNotThere(err error, name string) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	details := status.ErrStatus.Details
	return details != nil && details.Name == name
}

// mayBePlaced reports whether an owner that exists may have dependents in the named cluster. An owner that is being
// deleted, or has no record, may have them anywhere.
func mayBePlaced(owner client.Object, ref mcowner.Reference, in mcreconcile.ClusterName) bool {
	if ref.Manager == "" || !owner.GetDeletionTimestamp().IsZero() {
		return true
	}
	r := newRecord(ref.Fleet, ref.Manager)
	placed, ok := r.read(owner)
	return !ok || !hasFinalizer(owner, r) || len(placed) == 0 ||
		slices.ContainsFunc(placed, func(s site) bool { return s.name == in })
}

// ownerGone removes the dependents of an owner that the cache does not have, where they are known. What it cannot reach is
// left to the collector.
func (c *controller) ownerGone(ctx context.Context, home session, req mcreconcile.Request) error {
	apiVersion, kindName := c.owner.gvk.ToAPIVersionAndKind()
	owner := mcowner.Reference{
		Fleet: c.fleet, Manager: c.name, Cluster: req.ClusterName, ClusterUID: home.identity,
		APIVersion: apiVersion, Kind: kindName, Namespace: req.Namespace, Name: req.Name,
	}
	names := c.names(c.dependentsIn)
	errs := make([]error, len(names))
	sideBySide(names, func(i int, name mcreconcile.ClusterName) {
		err := c.visit(ctx, name, func(ctx context.Context, at session) error {
			found, err := c.known(ctx, at, owner)
			for _, d := range found {
				err = errors.Join(err, c.collect(ctx, at, d, owner))
			}
			return err
		})
		if !isAway(err) && !errors.Is(err, errUnproven) {
			errs[i] = err
		}
	})
	return errors.Join(errs...)
}

// collect removes a dependent whose owner is proved to be gone.
func (c *controller) collect(ctx context.Context, at session, d dependent, gone mcowner.Reference) error {
	references, err := at.references(d.obj)
	if err != nil || !d.obj.GetDeletionTimestamp().IsZero() {
		return nil //nolint:nilerr // what cannot be read is nobody's
	}
	for _, owner := range references {
		if !gone.Succeeds(owner) {
			continue
		}
		why, err := c.proof.orphaned(ctx, owner, at.name)
		if err != nil || why == "" {
			return err
		}
		writer, err := c.writers.at(at, owner.Cluster)
		if err != nil {
			return err
		}
		_, err = takeAway(ctx, c.access, writer, at, d.kind, d.obj, []mcowner.Reference{owner}, metav1.DeletePropagationBackground)
		return err
	}
	return nil
}
