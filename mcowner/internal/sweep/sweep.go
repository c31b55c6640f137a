package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Sweeper looks at the clusters one round after the other. It is safe for concurrent use.
type Sweeper struct {
	Options

	looks   looks
	access  *remote.Access
	kinds   []remote.Kind
	proof   *proof
	writers remote.Writers
	limit   flowcontrol.RateLimiter
	listing chan struct{} // has room for the one list that waits for the limit
	metrics *sweepMetrics
	log     logr.Logger
	unseen  unseen

	// What access does, for tests in which there are no clusters.
	names func() []mcreconcile.ClusterName
	visit func(context.Context, mcreconcile.ClusterName, func(context.Context, remote.Session) error) error
	list  func(context.Context, remote.Session, remote.Kind, func(client.Object) error) error

	mu       sync.Mutex // guards clusters
	clusters map[mcreconcile.ClusterName]*sweepMemory
}

// findings are what one sweep of one cluster has found.
type findings struct {
	*pass
	turn
	tally           // of the kind that is looked at
	errs    []error // of single dependents, the first of them
	more    int     // errors besides
	hanging int     // removals of the kind that is looked at
	cached  bool    // what caches have is looked at
	// Owners are not asked for again where that took too long: from the API server of their cluster, or from its cache.
	unheard  map[mcreconcile.ClusterName]struct{}
	unsynced map[ownersOf]struct{}
	// alive are owners that were found to be there, by a cache or an API server, and may have dependents in the cluster, or whose
	// controller was told of those.
	alive map[ownerKey]struct{}
}

// mostTold is how many errors of single dependents are told of a sweep. Where removals are refused, each dependent has one.
const mostTold = 10

// failed notes an error of a single dependent.
func (f *findings) failed(err error) {
	if len(f.errs) >= mostTold {
		f.more++
		return
	}
	f.errs = append(f.errs, err)
}

// failures returns the errors of single dependents.
func (f *findings) failures() error {
	all := f.errs
	if f.more > 0 {
		all = append(slices.Clone(all), fmt.Errorf("and %d more", f.more))
	}
	return errors.Join(all...)
}

// ownerKey is an owner as its cluster has it. What references say besides may be anything, however long.
type ownerKey struct {
	key string // of the reference
	uid types.UID
}

func ownerKeyOf(owner mcowner.Reference) ownerKey { return ownerKey{owner.Key(), owner.UID} }

// ownersOf are the owners of a kind in a cluster.
type ownersOf struct {
	cluster mcreconcile.ClusterName
	kind    schema.GroupKind
}

// mostHung ends the look at a kind until the next sweep: a webhook that hangs would hold up each removal.
const mostHung = 3

var errHung = fmt.Errorf("%d removals got no answer in time; the next sweep begins with the next kind, and goes on with others of this one", mostHung)

// isSilent reports whether an error says that there was no answer about a kind. It ends a sweep, so that a member that gives none
// holds a worker for the time of one list, however many kinds there are.
func isSilent(err error) bool { return errors.Is(err, errHung) || remote.IsHung(err) }

func (s *Sweeper) sweep(ctx context.Context, c *sweepMemory, by way) {
	name := c.name
	found := findings{
		pass: by.pass(c), cached: by.awake != nil, turn: turn{places: by.places, unsure: map[mcowner.Reference]error{}},
		unheard: map[mcreconcile.ClusterName]struct{}{}, unsynced: map[ownersOf]struct{}{}, alive: map[ownerKey]struct{}{},
	}
	if found.begin(ctx) != nil {
		return
	}
	defer found.end()
	err := s.visit(ctx, name, func(ctx context.Context, at remote.Session) error {
		var errs []error
		kinds := s.allKinds()
		c.keep(kinds)
		if !found.cached {
			c.forgetDue()
		}
		for _, k := range found.inTurn(kinds) {
			found.hanging, found.tally = 0, tally{strange: map[mcreconcile.ClusterName]int{}}
			did, err := by.each(ctx, at, k, c, func(obj client.Object) error {
				s.look(ctx, at, k, obj, &found)
				if found.hanging >= mostHung {
					return errHung
				}
				return ctx.Err()
			})
			if did {
				c.note(k.GroupVersionKind, found.tally)
			}
			if (did || apierrors.IsForbidden(err)) && !isSilent(err) { // all was looked at that may be
				delete(found.hung, k.GroupVersionKind)
			}
			errs = append(errs, err)
			if isSilent(err) {
				found.silent = k.GroupVersionKind
				break
			}
		}
		return errors.Join(append(errs, found.failures())...)
	})
	switch {
	case ctx.Err() != nil:
		return
	case errors.Is(err, fleet.ErrNotReady), remote.IsAway(err): // also where a kind cannot be read, which the fleet tells
		s.log.V(1).Info("Not swept", "cluster", name, "why", err.Error())
		return
	case err != nil:
		s.log.Info("Could not sweep all of a cluster; trying again with the next sweep", "cluster", name, "error", err.Error())
	}
	s.tell(c, err)
}

// allKinds returns the kinds of dependents there may be now.
func (s *Sweeper) allKinds() []remote.Kind {
	if s.MoreKinds == nil {
		return s.kinds
	}
	more, err := remote.KindsOf(s.MoreKinds(), s.Manager.GetScheme())
	if err != nil {
		s.log.Error(err, "Cannot sweep more kinds")
	}
	return append(slices.Clone(s.kinds), more...)
}

// eachListed calls do with the dependents of a kind as the API server of their cluster lists them, if that is due. It did not if the
// list broke off: how many there are is not known then.
func (s *Sweeper) eachListed(ctx context.Context, at remote.Session, k remote.Kind, c *sweepMemory, do func(client.Object) error) (did bool, err error) {
	if c.listedIn != at.Engagement {
		c.listedIn = at.Engagement
		clear(c.due)
	}
	if time.Now().Before(c.due[k.GroupVersionKind]) {
		return false, nil
	}
	err = s.list(ctx, at, k, do)
	if err == nil || errors.Is(err, remote.ErrEndless) || apierrors.IsForbidden(err) { // asked again soon, it would end no better
		c.due[k.GroupVersionKind] = time.Now().Add(s.Listing + rand.N(s.Listing/10+1)) //nolint:gosec // it hides nothing
	}
	return err == nil || errors.Is(err, errHung), err
}

// scan is list where there are clusters.
func (s *Sweeper) scan(ctx context.Context, at remote.Session, k remote.Kind, do func(client.Object) error) error {
	pages := remote.Scan{Namespaces: s.Namespaces, PageSize: s.PageSize, Before: s.beforeList}
	return pages.Each(ctx, s.access, at, k, remote.OfFleet(s.Fleet), func(obj *metav1.PartialObjectMetadata) error { return do(obj) })
}

// beforeList waits until a list may be asked for. One list at a time waits for the limit: a proof, or a removal, waits behind
// that one, however many are due.
func (s *Sweeper) beforeList(ctx context.Context) error {
	select {
	case s.listing <- struct{}{}:
		defer func() { <-s.listing }()
		return s.limit.Wait(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// eachCached calls do with the dependents of a kind as the cache of their cluster has them, if the kind is watched there.
func (s *Sweeper) eachCached(ctx context.Context, at remote.Session, k remote.Kind, c *sweepMemory, do func(client.Object) error) (did bool, err error) {
	if !s.Watched(c.name, k.GroupVersionKind) {
		return false, nil
	}
	list, err := k.NewList(s.Manager.GetScheme())
	if err != nil {
		return false, err
	}
	bounded, cancel := s.access.Bound(ctx)
	defer cancel()
	err = at.Cluster.GetCache().List(bounded, list, client.MatchingLabels{mcowner.FleetLabel: s.Fleet}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("reading %s of %s: %w", k.GroupKind(), at, err)
	}
	return true, meta.EachListItem(list, func(item runtime.Object) error {
		return do(item.(client.Object)) //nolint:forcetypeassert // so are all that caches have
	})
}

// look removes a dependent if it is proved to be orphaned.
func (s *Sweeper) look(ctx context.Context, at remote.Session, k remote.Kind, obj client.Object, found *findings) {
	if found.hung[k.GroupVersionKind][obj.GetUID()] || !obj.GetDeletionTimestamp().IsZero() {
		return
	}
	log := s.log.WithValues("cluster", at.Name(), "object", k.Describe(obj))
	references, err := mcowner.References(obj, at.ID)
	if err != nil {
		found.unproven++
		log.V(1).Info("Left a dependent alone", "why", err.Error())
		return
	}
	removal := log
	var gone []mcowner.Reference
	found.asked = 0
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
		}
	}
	if len(gone) > 0 {
		if err := s.remove(ctx, at, k, obj, gone, found, removal); err != nil {
			found.failed(err)
			if remote.IsHung(err) {
				found.hanging++
				found.noteHung(k.GroupVersionKind, obj.GetUID())
			}
		}
	}
}

// whyGone returns why it is proved that a dependent has this owner no more, and nothing if it is not. What only looks so is
// counted, or told.
func (s *Sweeper) whyGone(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName, found *findings, log logr.Logger) string {
	if owner.ClusterUID == "" || owner.Dependent.ClusterUID == "" {
		found.unidentified++
	}
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
		log.V(1).Info("Left a dependent alone", "owner", owner.String(), "why", err.Error())
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
	if _, unheard := found.unheard[owner.Cluster]; unheard {
		return is, fmt.Errorf("%w: %s gave no answer in time", errUnproven, remote.ClusterText(owner.Cluster))
	}
	if err := s.proof.mayAsk(owner); err != nil {
		return is, err // and nobody else waits for that
	}
	who := owner
	who.Dependent, who.Controller = mcowner.Location{}, false
	if err := cmp.Or(found.unsure[who], s.proof.knownCluster(ctx, owner)); err != nil {
		return is, err
	}
	unseen := s.isUnseen(owner)
	if err := s.unseen.has(owner); unseen && err != nil {
		return is, err
	}
	found.asked++
	if err := s.wait(ctx, &found.turn); err != nil {
		return is, err
	}
	is, err = s.proof.orphaned(ctx, owner, in)
	if err != nil {
		found.unsure[who] = err
	}
	if remote.IsHung(err) {
		found.unheard[owner.Cluster] = struct{}{}
	}
	if err == nil && is.why != "" && !is.stray && unseen {
		return finding{}, s.unseen.note(owner, is.why)
	}
	return is, err
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
func (s *Sweeper) isAlive(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName, found *findings) (alive bool) {
	k, ok := s.proof.kindOf(owner)
	owners := ownersOf{owner.Cluster, owner.GroupKind()}
	if _, unsynced := found.unsynced[owners]; unsynced || !ok || !s.access.Within(s.OwnersIn, owner.Cluster) || s.access.IsElsewhere(owner.Cluster) {
		return false
	}
	left := found.cached && s.access.IsOthers(owner.Cluster) // where it has dependents is asked for when these are listed
	err := s.access.Visit(ctx, owner.Cluster, func(ctx context.Context, home remote.Session) error {
		if home.Guest != nil {
			return nil // it was handed over this very moment
		}
		ctx, cancel := s.access.Bound(ctx)
		defer cancel()
		obj := k.NewObject()
		err := home.Cluster.GetCache().Get(ctx, owner.NamespacedName(), obj)
		alive = err == nil && obj.GetUID() == owner.UID && (left || s.isPlaced(obj, owner, in))
		if ctx.Err() != nil {
			return context.Cause(ctx) // the cache's own error does not say so
		}
		return err
	})
	if remote.IsHung(err) {
		found.unsynced[owners] = struct{}{}
	}
	return alive
}

// isPlaced reports whether it is known without asking anybody that an owner may have dependents in the named cluster.
func (s *Sweeper) isPlaced(obj client.Object, owner mcowner.Reference, in mcreconcile.ClusterName) bool {
	noted, ok := notedBy(obj, owner)
	if ok && noted.IsOpen(in) {
		return s.Placed != nil && s.Placed(owner, in)
	}
	return !ok || !noted.Excludes(in)
}

// remove removes what was proved to be orphaned, or lets it stay if an owner's deletion asked for that.
func (s *Sweeper) remove(ctx context.Context, at remote.Session, k remote.Kind, obj client.Object, gone []mcowner.Reference, found *findings, log logr.Logger) error {
	policy := metav1.DeletePropagationBackground
	keep, err := s.isToStay(ctx, gone, &found.turn)
	if err != nil {
		return fmt.Errorf("finding out whether %s is to stay: %w", k.Describe(obj), err)
	}
	if keep {
		policy = metav1.DeletePropagationOrphan
	}
	if s.DryRun {
		log.Info("Would remove an orphan")
		s.metrics.removed(at.Name(), wouldRemove)
		return nil
	}
	if err := s.wait(ctx, &found.turn); err != nil {
		return err
	}
	if err := s.access.WhyHeld(at.Name()); err != nil {
		return err // since the sweep began
	}
	writer, err := s.writers.At(ctx, at, gone[0].Request())
	if err != nil {
		return err
	}
	deleted, err := remote.TakeAway(ctx, s.access, writer, at, k, obj, gone, policy)
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

// isToStay reports whether the deletion of an owner asked for its dependents to stay. Of several owners, each but the first waits for the
// limit: strangers name as many as they like.
func (s *Sweeper) isToStay(ctx context.Context, gone []mcowner.Reference, of *turn) (bool, error) {
	if s.Keep == nil {
		return false, nil
	}
	for i, owner := range gone {
		if i > 0 {
			if err := s.wait(ctx, of); err != nil {
				return false, err
			}
		}
		if keep, err := s.Keep(ctx, owner); keep || err != nil {
			return keep, err
		}
	}
	return false, nil
}
