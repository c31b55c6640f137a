package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/paths"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// ownerKey is an owner as its cluster has it. What references say besides may be anything, however long.
type ownerKey struct {
	key string // of the reference
	uid types.UID
}

func ownerKeyOf(owner mcowner.Reference) ownerKey { return ownerKey{owner.Key(), owner.UID} }

// look removes a dependent if it is proved to be orphaned.
func (s *Sweeper) look(ctx context.Context, at remote.Session, k remote.Kind, obj client.Object, found *findings) {
	if found.isLeftOut(k.GroupVersionKind, obj.GetUID()) || !obj.GetDeletionTimestamp().IsZero() {
		return
	}
	log := s.log.WithValues("cluster", at.Name(), "object", k.Describe(obj))
	references, err := k.References(obj, at.ID)
	if err = cmp.Or(paths.CheckNames(obj.GetNamespace(), obj.GetName()), err); err != nil {
		found.unproven++
		log.V(1).Info("Left a dependent alone", "why", told(err))
		return
	}
	removal := log
	var gone []mcowner.Reference
	found.asked, found.keep = 0, false
	for _, owner := range inTurn(references) {
		if owner.Fleet != s.Fleet || s.Controller != "" && owner.Manager != s.Controller {
			continue
		}
		if found.asked >= mostAsked {
			found.unproven++
			break
		}
		if why := s.whyGone(ctx, owner, at.Name(), found, log); why != "" {
			removal = removal.WithValues("owner", owner.String(), "why", why)
			gone = append(gone, owner)
		} else if _, alive := found.alive[ownerKeyOf(owner)]; alive && s.Found != nil {
			s.Found(owner, at.Name(), k.GroupVersionKind)
		}
	}
	if len(gone) > 0 {
		err := s.remove(ctx, at, k, obj, gone, found, removal)
		found.removed(k, obj, err)
	}
}

// removed notes what came of removing a dependent.
func (f *findings) removed(k remote.Kind, obj client.Object, err error) {
	if err == nil {
		delete(f.emptying, obj.GetUID()) // others may be left that share it
		return
	}
	f.failed(err)
	if remote.IsCreated(k, obj) && !apierrors.IsConflict(err) && !remote.IsAway(err) { // it is emptying, or cannot be removed
		f.noteEmptying(obj.GetUID())
	}
	if remote.IsHung(err) {
		f.hanging++
		f.noteHung(k.GroupVersionKind, obj.GetUID())
	}
}

// letGoOn ends the wait of other sweeps for the slices of the owner that was looked at.
func (f *findings) letGoOn() {
	if f.done != nil {
		f.done()
		f.done = nil
	}
}

// whyGone returns why it is proved that a dependent has this owner no more, and nothing if it is not. What only looks so is
// counted, or told.
func (s *Sweeper) whyGone(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName, found *findings, log logr.Logger) string {
	if owner.ClusterUID == "" || owner.Dependent.ClusterUID == "" {
		found.unidentified++
	}
	defer found.letGoOn()
	if s.isKnownAlive(ctx, owner, in, found) {
		return ""
	}
	if found.cached && s.isAskedFor(owner) {
		if s.unseen.has(owner) != nil {
			found.unproven++
		}
		return ""
	}
	is, err := s.prove(ctx, owner, in, found)
	if err != nil {
		found.unproven++
		log.V(1).Info("Left a dependent alone", "owner", owner.String(), "why", told(err))
	}
	if errors.Is(err, errAnotherCluster) {
		found.strange[owner.Cluster]++
	}
	switch {
	case err != nil:
	case (is.stray || is.noted && !s.access.Within(s.OwnersIn, owner.Cluster)) && s.Stray != nil && !s.access.IsOthers(owner.Cluster):
		s.Stray(owner, in)
		found.alive[ownerKeyOf(owner)] = struct{}{}
	case is.why == "":
		found.alive[ownerKeyOf(owner)] = struct{}{}
	default:
		found.keep = found.keep || is.keep
		return is.why
	}
	return ""
}

// isAskedFor reports whether an owner is in no cache here, as its cluster is another replica's, or none of owners whose dependents go. It is
// asked for when these are listed: with each look at what caches have, there would be no end of questions.
func (s *Sweeper) isAskedFor(owner mcowner.Reference) bool {
	return s.access.IsElsewhere(owner.Cluster) || s.isUnseen(owner)
}

// prove asks the API server of the owner's cluster, see [proof.orphaned]. That an owner is gone proves nothing if it might have been
// deleted so that its dependents stay.
func (s *Sweeper) prove(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName, found *findings) (is finding, err error) {
	owners := ownersOf{owner.Cluster, owner.GroupKind()}
	if _, unheard := found.unheard[owners]; unheard {
		return is, fmt.Errorf("%w: %s gave no answer about a %s in time", errUnproven, remote.ClusterText(owner.Cluster), owners.kind)
	}
	if err := s.proof.mayAsk(owner); err != nil {
		return is, err // and nobody else waits for that
	}
	if err := cmp.Or(found.whyUnsure(owner), s.proof.knownCluster(ctx, owner)); err != nil {
		return is, err
	}
	unseen := s.isUnseen(owner)
	if err := s.unseen.has(owner); unseen && err != nil {
		return is, err
	}
	if s.access.IsElsewhere(owner.Cluster) { // in no cache here: each member that has a dependent of it would have it asked for
		found.letGoOn()
		var had bool
		if had, found.done = s.books.hadLately(ctx, owner, in, s.access.Timeout/4); had {
			return is, nil
		}
	}
	found.asked++
	if err := s.limit.Wait(ctx); err != nil {
		return is, err
	}
	began := time.Now()
	is, err = s.proof.orphaned(ctx, owner, in, s.limit.Wait, &s.books)
	found.letGoOn()
	if err == nil && is.stray && s.Unwanted != nil && s.access.IsOthers(owner.Cluster) {
		is, err = s.ofOthers(ctx, is, owner, in)
	}
	if err != nil {
		found.noteUnsure(owner, err)
	}
	if remote.IsSilent(err) || remote.IsHung(err) && time.Since(began) > s.access.Timeout/2 { // one that failed at once is asked for others
		found.unheard[owners] = struct{}{}
	}
	if err == nil && is.why != "" && !is.stray && unseen {
		return finding{}, s.unseen.note(owner, is.why)
	}
	return is, err
}

// ofOthers returns what was found out about a dependent of another replica's owner whose record does not have it: the owner has it all the same if
// it is to have dependents there.
func (s *Sweeper) ofOthers(ctx context.Context, is finding, owner mcowner.Reference, in mcreconcile.ClusterName) (finding, error) {
	if err := s.limit.Wait(ctx); err != nil {
		return finding{}, err
	}
	unwanted, keep, err := s.Unwanted(ctx, owner, in)
	switch {
	case err != nil: // whatever the user's functions have waited for, it is no word of the owner's cluster
		return finding{}, fmt.Errorf("%w: finding out whether it is to have dependents there: %s", errUnproven, told(err))
	case !unwanted:
		return finding{}, nil
	}
	is.why, is.keep = whyStray, keep // also where the owner has given members up: the replica that was to look for what it has there may have ended
	return is, nil
}

// isUnseen reports whether nobody sees how an owner is deleted, and that matters.
func (s *Sweeper) isUnseen(owner mcowner.Reference) bool {
	return s.KeepUnseen && !s.access.Within(s.OwnersIn, owner.Cluster) && !s.IsDecommissioned(owner)
}

// isKnownAlive is isAlive, asked once for all dependents of an owner: what is noted on it may be a thousand clusters.
func (s *Sweeper) isKnownAlive(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName, found *findings) bool {
	this := ownerKeyOf(owner)
	_, alive := found.alive[this]
	if !alive && s.isAlive(ctx, owner, in, found) {
		found.alive[this] = struct{}{}
		return true
	}
	return alive
}

// isAlive reports whether the cache knows that an owner is there and may have dependents in the named cluster. It saves
// asking the API server, which alone can prove the contrary.
func (s *Sweeper) isAlive(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName, found *findings) bool {
	k, ok := s.proof.kindOf(owner)
	owners := ownersOf{owner.Cluster, owner.GroupKind()}
	if _, unsynced := found.unsynced[owners]; unsynced || !ok || !s.access.Within(s.OwnersIn, owner.Cluster) || s.access.IsElsewhere(owner.Cluster) {
		return false
	}
	var there client.Object
	err := s.access.Visit(ctx, owner.Cluster, func(ctx context.Context, home remote.Session) error {
		if home.Guest != nil {
			return nil // it was handed over this very moment
		}
		ctx, cancel := s.access.Bound(ctx)
		defer cancel()
		obj := k.NewObject()
		err := home.Cluster.GetCache().Get(ctx, owner.NamespacedName(), obj)
		if err == nil && obj.GetUID() == owner.UID {
			there = obj
		}
		if ctx.Err() != nil {
			return context.Cause(ctx) // the cache's own error does not say so
		}
		return err
	})
	if remote.IsHung(err) {
		found.unsynced[owners] = struct{}{}
	}
	left := found.cached && s.access.IsOthers(owner.Cluster) // where it has dependents is asked for when these are listed
	return there != nil && (left || s.isPlaced(ctx, there, owner, in, found))
}

// isPlaced reports whether it is known that an owner may have dependents in the named cluster. It asks nobody, but waits for another sweep that reads
// the slices of the owner.
func (s *Sweeper) isPlaced(ctx context.Context, obj client.Object, owner mcowner.Reference, in mcreconcile.ClusterName, found *findings) (is bool) {
	if record.NewKeys(owner.Fleet, owner.Manager).Mentions(obj, in) {
		return true
	}
	noted, ok := notedBy(obj, owner)
	if ok && noted.IsOpen(in) {
		if s.Placed != nil && s.Placed(owner, in) {
			return true
		}
		is, found.done = s.books.has(ctx, obj, owner, in, true)
		return is
	}
	return !ok || !noted.Excludes(in)
}

// remove removes what was proved to be orphaned, or lets it stay if an owner's deletion asked for that.
func (s *Sweeper) remove(ctx context.Context, at remote.Session, k remote.Kind, obj client.Object, gone []mcowner.Reference, found *findings, log logr.Logger) error {
	policy := metav1.DeletePropagationBackground
	keep, err := s.isToStay(ctx, gone)
	if err != nil {
		return fmt.Errorf("finding out whether %s is to stay: %w", k.Describe(obj), err)
	}
	if keep || found.keep && obj.GetAnnotations()[mcowner.DeletionPolicyAnnotation] == "" {
		policy = metav1.DeletePropagationOrphan
	}
	if s.DryRun {
		log.Info("Would remove an orphan")
		s.metrics.removed(at.Name(), wouldRemove)
		return nil
	}
	if err := s.limit.Wait(ctx); err != nil {
		return err
	}
	if err := s.access.WhyHeld(at.Name()); err != nil {
		return err // since the sweep began
	}
	into := remote.Look{Before: s.limit.Wait}
	if found.waitsForOrphans(obj.GetUID()) {
		into.Gone = gone
	}
	deleted, err := remote.TakeAway(ctx, s.access, into, s.writerOf(gone, at), at, k, obj, gone, policy)
	if err != nil {
		return err
	}
	action := released
	if deleted {
		action = deletedIt
	}
	s.metrics.removed(at.Name(), action)
	log.Info("Removed an orphan", "action", action)
	return nil
}

// isToStay reports whether the deletion of an owner asked for its dependents to stay.
func (s *Sweeper) isToStay(ctx context.Context, gone []mcowner.Reference) (bool, error) {
	if s.Keep == nil {
		return false, nil
	}
	for _, owner := range gone {
		if err := s.limit.Wait(ctx); err != nil {
			return false, err
		}
		if keep, err := s.Keep(ctx, owner); keep || err != nil {
			return keep, err
		}
	}
	return false, nil
}
