package orphans

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// sweeper is a [Collector] at work.
type sweeper struct {
	*Collector
	Sweep

	name    string
	access  *remote.Access
	kinds   []remote.Kind
	proof   *proof
	writers remote.Writers
	limit   flowcontrol.RateLimiter
	metrics *sweepMetrics
	log     logr.Logger
}

// run sweeps until ctx is done, and returns when nothing runs any more. Clusters are swept side by side, and one that is
// still being swept is left out of the next round: a slow one does not hold up the others.
func (s *sweeper) run(ctx context.Context) {
	var group errgroup.Group
	defer func() { _ = group.Wait() }() // it has no errors
	group.SetLimit(remote.AtOnce)
	clusters := map[mcreconcile.ClusterName]*sweepMemory{}
	for ctx.Err() == nil {
		s.begin(ctx, &group, s.round(clusters))
		timer := time.NewTimer(s.Interval + rand.N(s.Interval/10+1)) //nolint:gosec // it hides nothing
		for waiting := true; waiting; {
			select {
			case <-timer.C:
				waiting = false
			case <-s.looks.awake():
				s.begin(ctx, &group, s.toLookAt(clusters))
			case <-ctx.Done():
				waiting = false
			}
		}
		timer.Stop()
	}
}

// begin sweeps clusters that are busy with it.
func (s *sweeper) begin(ctx context.Context, group *errgroup.Group, now []*sweepMemory) {
	for _, c := range now {
		group.Go(func() error {
			s.sweep(ctx, c)
			c.busy.Store(false)
			if c.again.Swap(false) {
				s.Look(c.name)
			}
			return nil
		})
	}
}

// toLookAt returns the clusters to look at before the next round, as busy. One that is being swept is looked at afterwards.
func (s *sweeper) toLookAt(clusters map[mcreconcile.ClusterName]*sweepMemory) []*sweepMemory {
	var now []*sweepMemory
	for name := range s.looks.take() {
		c, ok := clusters[name]
		if !ok || !s.access.Within(s.DependentsIn, name) {
			continue // the next round has it
		}
		c.again.Store(true) // before it is tried: its sweep may be about to end
		if c.busy.CompareAndSwap(false, true) {
			c.again.Store(false)
			now = append(now, c)
		}
	}
	return now
}

// sweepMemory is what is known of a cluster from one sweep to the next.
type sweepMemory struct {
	name  mcreconcile.ClusterName
	again atomic.Bool // it is to be looked at once it is not busy any more
	busy  atomic.Bool // it is being swept, by the goroutine that has what follows
	// hung has dependents whose removal got no answer in time. They are left out until a sweep has reached the end, so that
	// the others have their turn.
	hung map[types.UID]struct{}
	// listed is when the dependents of a kind are listed next, not before.
	listed map[schema.GroupVersionKind]time.Time
	// strange is how many dependents have owners in another cluster than the one that has its name now, by that name.
	strange map[mcreconcile.ClusterName]int
}

// round returns the clusters to sweep now, as busy. It forgets those that are no more.
func (s *sweeper) round(clusters map[mcreconcile.ClusterName]*sweepMemory) []*sweepMemory {
	names := s.access.Names(s.DependentsIn)
	s.metrics.keep(names)
	maps.DeleteFunc(clusters, func(name mcreconcile.ClusterName, c *sweepMemory) bool {
		return !slices.Contains(names, name) && !c.busy.Load()
	})
	var now []*sweepMemory
	for _, name := range names {
		c, ok := clusters[name]
		if !ok {
			c = &sweepMemory{name: name, hung: map[types.UID]struct{}{}, listed: map[schema.GroupVersionKind]time.Time{}}
			clusters[name] = c
		}
		if c.busy.CompareAndSwap(false, true) {
			now = append(now, c)
		}
	}
	return now
}

// findings are what one sweep of one cluster has found.
type findings struct {
	*sweepMemory
	unproven, unidentified int
	strange                map[mcreconcile.ClusterName]int // dependents whose owners were in another cluster, by its name
	errs                   []error                         // of single dependents
	hanging                int                             // removals of the kind that is looked at
	gaveUp                 bool                            // on a kind
	// Owners are not asked for again where that took too long: from the API server of their cluster, or from its cache.
	silent   map[mcreconcile.ClusterName]struct{}
	unsynced map[ownersOf]struct{}
}

// ownersOf are the owners of a kind in a cluster.
type ownersOf struct {
	cluster mcreconcile.ClusterName
	kind    schema.GroupKind
}

// mostHung ends the look at a kind until the next sweep: a webhook that hangs would hold up each removal.
const mostHung = 3

var errHung = fmt.Errorf("%d removals got no answer in time; the next sweep goes on with others of the kind", mostHung)

// isHung reports whether something gave no answer in time: the API server, or what that has asked. Of a webhook it says so
// by an internal error.
func isHung(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

func (s *sweeper) sweep(ctx context.Context, c *sweepMemory) {
	name := c.name
	found := findings{
		sweepMemory: c, strange: map[mcreconcile.ClusterName]int{},
		silent: map[mcreconcile.ClusterName]struct{}{}, unsynced: map[ownersOf]struct{}{},
	}
	err := s.access.Visit(ctx, name, func(ctx context.Context, at remote.Session) error {
		var errs []error
		for _, k := range s.allKinds() {
			found.hanging = 0
			errs = append(errs, s.each(ctx, at, k, c, func(obj client.Object) error {
				s.look(ctx, at, k, obj, &found)
				if found.hanging >= mostHung {
					found.gaveUp = true
					return errHung
				}
				return ctx.Err()
			}))
		}
		return errors.Join(append(errs, found.errs...)...)
	})
	if !found.gaveUp {
		clear(c.hung)
	}
	switch {
	case ctx.Err() != nil:
		return
	case remote.IsAway(err):
		s.log.V(1).Info("Not swept", "cluster", name, "why", err.Error())
		return
	case err != nil:
		s.log.Info("Could not sweep all of a cluster; trying again with the next sweep", "cluster", name, "error", err.Error())
	}
	s.metrics.swept(name, found.unproven, found.unidentified, err)
	s.tellStrange(c, found.strange)
}

// allKinds returns the kinds of dependents there may be now.
func (s *sweeper) allKinds() []remote.Kind {
	if s.MoreKinds == nil {
		return s.kinds
	}
	more, err := remote.KindsOf(s.MoreKinds(), s.Manager.GetScheme())
	if err != nil {
		s.log.Error(err, "Cannot sweep more kinds")
	}
	return append(slices.Clone(s.kinds), more...)
}

// each calls do with the dependents of a kind in a cluster: as its API server lists them, if that is due, and otherwise as the
// cache has them.
func (s *sweeper) each(ctx context.Context, at remote.Session, k remote.Kind, c *sweepMemory, do func(client.Object) error) error {
	if time.Now().Before(c.listed[k.GroupVersionKind]) {
		if s.Watched == nil || !s.Watched(c.name, k.GroupVersionKind) {
			return nil
		}
		return s.eachCached(ctx, at, k, do)
	}
	list := remote.Scan{Namespaces: s.Namespaces, PageSize: s.PageSize, Before: s.limit.Wait}
	err := list.Each(ctx, s.access, at, k, remote.OfFleet(s.Fleet), func(obj *metav1.PartialObjectMetadata) error { return do(obj) })
	if err == nil {
		c.listed[k.GroupVersionKind] = time.Now().Add(s.Listing + rand.N(s.Listing/10+1)) //nolint:gosec // it hides nothing
	}
	return err
}

func (s *sweeper) eachCached(ctx context.Context, at remote.Session, k remote.Kind, do func(client.Object) error) error {
	list, err := k.NewList(s.Manager.GetScheme())
	if err != nil {
		return err
	}
	bounded, cancel := s.access.Bound(ctx)
	defer cancel()
	err = at.Cluster.GetCache().List(bounded, list, client.MatchingLabels{mcowner.FleetLabel: s.Fleet}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("reading %s of %s: %w", k.GroupKind(), at, err)
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		return do(item.(client.Object)) //nolint:forcetypeassert // so are all that caches have
	})
}

// tellStrange logs how many dependents have owners in another cluster than the one that has its name, if that is news.
func (s *sweeper) tellStrange(c *sweepMemory, now map[mcreconcile.ClusterName]int) {
	for owners, n := range now {
		if c.strange[owners] != n {
			s.log.Info("Left dependents alone: another cluster has the name of their owners'. If two installations have the same name, "+
				"give one another; if the cluster's credentials lead to the wrong one, mend them",
				"cluster", c.name, "ownersIn", remote.ClusterText(owners), "dependents", n)
		}
	}
	c.strange = now
}

// look removes a dependent if it is proved to be orphaned.
func (s *sweeper) look(ctx context.Context, at remote.Session, k remote.Kind, obj client.Object, found *findings) {
	if _, hung := found.hung[obj.GetUID()]; hung || !obj.GetDeletionTimestamp().IsZero() {
		return
	}
	log := s.log.WithValues("cluster", at.Name(), "object", k.Describe(obj))
	references, err := mcowner.References(obj, at.ID)
	if err != nil {
		found.unproven++
		log.V(1).Info("Left a dependent alone", "why", err.Error())
		return
	}
	var gone []mcowner.Reference
	for _, owner := range references {
		if owner.Fleet != s.Fleet || s.Controller != "" && owner.Manager != s.Controller {
			continue
		}
		if owner.ClusterUID == "" || owner.Dependent.ClusterUID == "" {
			found.unidentified++
		}
		if s.isAlive(ctx, owner, at.Name(), found) {
			continue
		}
		is, err := s.prove(ctx, owner, at.Name(), found)
		if err != nil {
			found.unproven++
			log.V(1).Info("Left a dependent alone", "owner", owner.String(), "why", err.Error())
		}
		if errors.Is(err, errAnotherCluster) {
			found.strange[owner.Cluster]++
		}
		switch {
		case err != nil || is.why == "":
		case is.stray && s.Stray != nil:
			s.Stray(owner, at.Name())
		default:
			log = log.WithValues("owner", owner.String(), "why", is.why)
			gone = append(gone, owner)
		}
	}
	if len(gone) > 0 {
		if err := s.remove(ctx, at, k, obj, gone, log); err != nil {
			found.errs = append(found.errs, err)
			if isHung(err) {
				found.hanging++
				found.hung[obj.GetUID()] = struct{}{}
			}
		}
	}
}

// prove asks the API server of the owner's cluster, see [proof.orphaned].
func (s *sweeper) prove(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName, found *findings) (is finding, err error) {
	if _, silent := found.silent[owner.Cluster]; silent {
		return is, fmt.Errorf("%w: %s gave no answer in time", errUnproven, remote.ClusterText(owner.Cluster))
	}
	if err := s.limit.Wait(ctx); err != nil {
		return is, err
	}
	is, err = s.proof.orphaned(ctx, owner, in)
	if isHung(err) {
		found.silent[owner.Cluster] = struct{}{}
	}
	return is, err
}

// isAlive reports whether the cache knows that an owner is there and may have dependents in the named cluster. It saves
// asking the API server, which alone can prove the contrary.
func (s *sweeper) isAlive(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName, found *findings) (alive bool) {
	k, ok := s.proof.kindOf(owner)
	owners := ownersOf{owner.Cluster, owner.GroupKind()}
	if _, unsynced := found.unsynced[owners]; unsynced || !ok || !s.access.Within(s.OwnersIn, owner.Cluster) {
		return false
	}
	err := s.access.Visit(ctx, owner.Cluster, func(ctx context.Context, home remote.Session) error {
		ctx, cancel := s.access.Bound(ctx)
		defer cancel()
		obj := k.NewObject()
		err := home.Cluster.GetCache().Get(ctx, owner.NamespacedName(), obj)
		alive = err == nil && obj.GetUID() == owner.UID && mayBePlaced(obj, owner, in)
		if ctx.Err() != nil {
			return context.Cause(ctx) // the cache's own error does not say so
		}
		return err
	})
	if isHung(err) {
		found.unsynced[owners] = struct{}{}
	}
	return alive
}

// remove removes what was proved to be orphaned, or lets it stay if an owner's deletion asked for that.
func (s *sweeper) remove(ctx context.Context, at remote.Session, k remote.Kind, obj client.Object, gone []mcowner.Reference, log logr.Logger) error {
	policy := metav1.DeletePropagationBackground
	for _, owner := range gone {
		if s.Keep == nil {
			break
		}
		keep, err := s.Keep(ctx, owner)
		if err != nil {
			return fmt.Errorf("finding out whether %s is to stay: %w", k.Describe(obj), err)
		}
		if keep {
			policy = metav1.DeletePropagationOrphan
		}
	}
	if s.DryRun {
		log.Info("Would remove an orphan")
		s.metrics.removed(at.Name(), wouldRemove)
		return nil
	}
	if err := s.limit.Wait(ctx); err != nil {
		return err
	}
	writer, err := s.writers.At(at, gone[0].Cluster)
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
