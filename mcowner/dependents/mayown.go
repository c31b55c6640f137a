package dependents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// mayChange returns nil for an object that is this owner's, or may become it, and otherwise why it must not be changed. What is
// left of an owner of the same name that is gone is deleted.
func (p *placement) mayChange(ctx context.Context, w wanted, existing client.Object) error {
	references, err := w.kind.References(existing, p.at.ID)
	conflict := &ConflictError{Cluster: p.at.Name(), Object: w.kind.Describe(existing), Why: p.discreetly(err)}
	if w.kind.IsItself(existing, p.at.ID, p.asked.ref) {
		conflict.Why = errItself
	}
	if conflict.Why != nil {
		return conflict
	}
	i := slices.IndexFunc(references, func(r mcowner.Reference) bool { return r.Controller })
	switch {
	case i >= 0 && references[i].Same(p.asked.ref):
		return p.unlessGoing(w, existing)
	case i >= 0 && p.asked.ref.Succeeds(references[i]) && w.Suspend:
		return fmt.Errorf("%s of %s is of an owner of the same name that is gone, and nothing is done as long as it is suspended: %w", w.kind.Describe(existing), p.at, errGoing)
	case i >= 0 && p.asked.ref.Succeeds(references[i]):
		if err := p.remove(ctx, w.kind, existing, metav1.DeletePropagationBackground, true); err != nil {
			return err
		}
		return fmt.Errorf("%s of %s is of an owner of the same name that is gone: %w", w.kind.Describe(existing), p.at, errGoing)
	case i >= 0 && references[i].Key() == p.asked.ref.Key():
		conflict.Why = p.otherCluster(existing, &references[i])
	case i >= 0:
		owned := p.mayTake(ctx, w, existing, references[i])
		if owned == nil {
			return nil
		}
		conflict.Why = p.discreet(owned, references[i])
	case p.isOwnInAnotherGroup(w.kind, existing):
		return p.unlessGoing(w, existing)
	case metav1.GetControllerOfNoCopy(existing) != nil:
		conflict.Why = p.discreetlyOwned(existing)
	case slices.ContainsFunc(references, p.asked.ref.Same): // a namespace that it shares, and desires itself now
		return p.unlessGoing(w, existing)
	case p.isFromAnother(existing, references):
		conflict.Why = errCopy
	case p.mayAdopt(w, existing):
		for _, r := range references {
			if err := p.mayShare(ctx, existing, r); err != nil {
				conflict.Why = p.discreet(err, r)
				return conflict
			}
		}
		return nil
	default:
		conflict.Why = errNoReference
	}
	return conflict
}

// mayAdopt reports whether the policy lets an object be taken over that nobody controls: one that is nobody's, or a namespace that was created
// for dependents.
func (p *placement) mayAdopt(w wanted, existing client.Object) bool {
	of, created := existing.GetLabels()[mcowner.FleetLabel], existing.GetAnnotations()[mcowner.CreatedByAnnotation]
	isShared := w.kind.GroupKind() == namespaceKind && of == p.engine.cfg.fleet && created == of
	return (w.Conflict == AdoptUnowned || w.Conflict == Adopt) && existing.GetDeletionTimestamp().IsZero() && (of == "" || isShared)
}

// unlessGoing returns an error for an object that is being deleted.
func (p *placement) unlessGoing(w wanted, existing client.Object) error {
	if existing.GetDeletionTimestamp().IsZero() {
		return nil
	}
	return fmt.Errorf("%s of %s: %w", w.kind.Describe(existing), p.at, errGoing)
}

// isOwn reports whether the owner controls an object of a kind.
func (p *placement) isOwn(k remote.Kind, existing client.Object) bool {
	controller, ok := k.ControllerOf(existing, p.at.ID)
	return ok && controller.Same(p.asked.ref) || p.isOwnInAnotherGroup(k, existing)
}

// isOwnInAnotherGroup reports whether the owner controls an object that says that it is of another group, and of the same kind there: API
// servers have some objects in two groups, such as Events. Where it is desired in this one, its reference says so from then on. Where it
// is not, it is nobody's here.
func (p *placement) isOwnInAnotherGroup(k remote.Kind, existing client.Object) bool {
	native := metav1.GetControllerOfNoCopy(existing)
	controller, ok := remote.Kind{}.ControllerOf(existing, p.at.ID) // whatever kind it says
	return ok && controller.Same(p.asked.ref) && controller.Dependent.Kind == k.Kind && (native == nil || p.isNativelyOwn(*native))
}

// isOwnAlone reports whether an object has this owner, and no other, and was not there before.
func (p *placement) isOwnAlone(k remote.Kind, existing client.Object) bool {
	rest := existing.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	mcowner.RemoveReference(p.asked.ref, rest)
	others, err := k.References(rest, p.at.ID)
	return err == nil && len(others)+len(rest.GetOwnerReferences()) == 0 && p.isOwn(k, existing) && !remote.WasAdopted(existing)
}

// mayTake returns nil for an object that may be taken from another owner, and otherwise whose it is.
func (p *placement) mayTake(ctx context.Context, w wanted, existing client.Object, from mcowner.Reference) error {
	if w.Conflict != Adopt || !existing.GetDeletionTimestamp().IsZero() || metav1.GetControllerOfNoCopy(existing) != nil {
		return &mcowner.AlreadyOwnedError{Dependent: p.at.Locate(existing), Owner: &from}
	}
	return p.mayShare(ctx, existing, from)
}

// mayShare returns nil if what another owner has may be this one's too, and otherwise whose it is. Nothing may that is of an owner in another
// cluster than the one that has the name here: that is another installation's of the same name, which would take it back.
func (p *placement) mayShare(ctx context.Context, existing client.Object, with mcowner.Reference) error {
	owned := &mcowner.AlreadyOwnedError{Dependent: p.at.Locate(existing), Owner: &with}
	if with.Fleet != p.engine.cfg.fleet || !p.engine.writers.IsOfOneUser(with.Request(), p.asked.ref.Request()) {
		return owned
	}
	now, err := p.originNow(ctx, with)
	if err != nil {
		return fmt.Errorf("finding out whether %s is of this installation: %w", with, err)
	}
	if !mcowner.Differ(with.ClusterUID, now.ClusterUID) {
		return nil
	}
	owned.Now = &now
	return owned
}

// originNow returns a reference to an owner with the identity that the cluster of its name has here. It is that of the last time
// where the cluster is away, and empty where it is not known.
func (p *placement) originNow(ctx context.Context, owner mcowner.Reference) (mcowner.Reference, error) {
	owner.ClusterUID = p.asked.ref.ClusterUID
	if owner.Cluster == p.asked.ref.Cluster {
		return owner, nil
	}
	ctx, cancel := p.engine.access.Bound(ctx)
	defer cancel()
	id, err := p.engine.access.IDOf(ctx, owner.Cluster)
	if err != nil && owner.Cluster == mcreconcile.LocalCluster {
		return owner, err
	}
	owner.ClusterUID = cmp.Or(id.UID, p.engine.ledger.leading(owner.Cluster))
	return owner, nil
}

// takeOver takes an object from the owner that controls it, if that is another one, and returns it as it is then. It stays that one's where the
// API server refuses what is desired now: it would be nobody's.
func (p *placement) takeOver(ctx context.Context, w wanted, existing client.Object, config *unstructured.Unstructured) (client.Object, error) {
	from, ok := w.kind.ControllerOf(existing, p.at.ID)
	if !ok || from.Same(p.asked.ref) {
		return existing, nil
	}
	if _, err := p.applyTo(ctx, config, existing.GetUID(), existing.GetResourceVersion(), client.DryRunAll); err != nil {
		return nil, fmt.Errorf("taking %s of %s over from %s: %w", w.kind.Describe(existing), p.at, from, err)
	}
	taken := existing.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	mcowner.RemoveReference(from, taken)
	if err := p.patch(ctx, existing, taken); err != nil {
		return nil, fmt.Errorf("taking %s of %s over from %s: %w", w.kind.Describe(existing), p.at, from, err)
	}
	return taken, nil
}

// errOtherTenant says that an object belongs to an owner whose name is nobody else's business.
var errOtherTenant = errors.New("it belongs to an owner in another cluster, or of another user")

// discreet returns an error for the eyes of the owner's user. Where owners are written for in the names of users, one of them is not
// told the names of what others own.
func (p *placement) discreet(err error, of mcowner.Reference) error {
	if !p.engine.writers.IsOfOneUser(of.Request(), p.asked.ref.Request()) {
		return errOtherTenant
	}
	return err
}

// errOthersOwn says that an object belongs to another one of its cluster, whose name is nobody else's business.
var errOthersOwn = errors.New("it is controlled by an object of its own cluster")

// discreetlyOwned is discreet for an object with a native controller: nobody knows whose that is.
func (p *placement) discreetlyOwned(existing client.Object) error {
	if p.engine.writers.User != nil {
		return errOthersOwn
	}
	return &mcowner.AlreadyOwnedError{Dependent: p.at.Locate(existing), Native: metav1.GetControllerOf(existing)}
}

// errOthersMalformed is [mcowner.ErrMalformed] without the names of owners.
var errOthersMalformed = fmt.Errorf("%w: it may be of an owner in another cluster, or of another user", mcowner.ErrMalformed)

// discreetly is discreet for an error about references that cannot be read: nobody knows whose they are.
func (p *placement) discreetly(malformed error) error {
	if malformed != nil && p.engine.writers.User != nil {
		return errOthersMalformed
	}
	return malformed
}

// isFromAnother reports whether the object has a reference to the owner that was written in another cluster of the name, or to an object of
// another kind: it is none of those that hold here.
func (p *placement) isFromAnother(existing client.Object, here []mcowner.Reference) bool {
	all, err := remote.Kind{}.References(existing, mcowner.ClusterID{Name: p.at.Name()})
	return err == nil && slices.ContainsFunc(all, func(r mcowner.Reference) bool {
		return p.asked.ref.Succeeds(r) && !slices.Contains(here, r)
	})
}

var (
	errItself      = errors.New("it is the owner itself")
	errNoReference = errors.New("it has no reference to an owner")
	errCopy        = errors.New("it is a copy, such as from a backup, of one in another cluster that had the name, or of another kind; delete it, and a new one takes its place")
)

// contested returns an error for an object that says it is this very owner's, of another cluster: the clusters' identities
// may be of another kind than they were, and the owner must not go without a word.
func (p *placement) contested(k remote.Kind, obj client.Object) error {
	references, _ := k.References(obj, p.at.ID) // what cannot be read is nobody's
	i := slices.IndexFunc(references, func(r mcowner.Reference) bool { return r.Key() == p.asked.ref.Key() && r.UID == p.asked.ref.UID })
	if i < 0 {
		return nil
	}
	conflict := &ConflictError{Cluster: p.at.Name(), Object: k.Describe(obj), Why: p.otherCluster(obj, &references[i])}
	return fmt.Errorf("%w: %w", errDenied, conflict)
}

// otherCluster says that an object's reference is to an owner of the same name that is in another cluster.
func (p *placement) otherCluster(obj client.Object, owner *mcowner.Reference) error {
	return &mcowner.AlreadyOwnedError{Dependent: p.at.Locate(obj), Owner: owner, Now: &p.asked.ref}
}
