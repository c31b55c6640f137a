package dependents

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// sweeper is a [Collector] at work.
type sweeper struct {
	Collector
	access  *access
	kinds   []kind
	proof   *proof
	writers writers
	limit   flowcontrol.RateLimiter
	metrics *sweepMetrics
	log     logr.Logger
}

// run sweeps until ctx is done, and returns when nothing runs any more. Clusters are swept side by side, and one that is
// still being swept is left out of the next round: a slow one does not hold up the others.
func (s *sweeper) run(ctx context.Context) {
	var group errgroup.Group
	defer func() { _ = group.Wait() }() // it has no errors
	group.SetLimit(clustersAtOnce)
	clusters := map[mcreconcile.ClusterName]*sweepMemory{}
	for ctx.Err() == nil {
		for _, c := range s.round(clusters) {
			group.Go(func() error {
				defer c.busy.Store(false)
				s.sweep(ctx, c)
				return nil
			})
		}
		timer := time.NewTimer(s.Interval + rand.N(s.Interval/10+1)) //nolint:gosec // it hides nothing
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// sweepMemory is what is known of a cluster from one sweep to the next.
type sweepMemory struct {
	name mcreconcile.ClusterName
	busy atomic.Bool // it is being swept, by the goroutine that has what follows
	// hung has dependents whose removal got no answer in time. They are left out until a sweep has reached the end, so that
	// the others have their turn.
	hung map[types.UID]struct{}
	// strange is how many dependents have owners in another cluster than the one that has its name now, by that name.
	strange map[mcreconcile.ClusterName]int
}

// round returns the clusters to sweep now, as busy. It forgets those that are no more.
func (s *sweeper) round(clusters map[mcreconcile.ClusterName]*sweepMemory) []*sweepMemory {
	names := s.access.names(s.DependentsIn)
	s.metrics.keep(names)
	maps.DeleteFunc(clusters, func(name mcreconcile.ClusterName, c *sweepMemory) bool {
		return !slices.Contains(names, name) && !c.busy.Load()
	})
	var now []*sweepMemory
	for _, name := range names {
		c, ok := clusters[name]
		if !ok {
			c = &sweepMemory{name: name, hung: map[types.UID]struct{}{}}
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
	unproven int
	strange  map[mcreconcile.ClusterName]int // dependents whose owners were in another cluster, by its name
	errs     []error                         // of single dependents
	hanging  int                             // removals of the kind that is looked at
	gaveUp   bool                            // on a kind
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
	err := s.access.visit(ctx, name, func(ctx context.Context, at session) error {
		list := scan{namespaces: s.Namespaces, pageSize: s.PageSize, before: s.limit.Wait}
		var errs []error
		for _, k := range s.kinds {
			found.hanging = 0
			errs = append(errs, list.each(ctx, s.access, at, k, ofFleet(s.Fleet), func(obj *metav1.PartialObjectMetadata) error {
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
	case isAway(err):
		s.log.V(1).Info("Not swept", "cluster", name, "why", err.Error())
		return
	case err != nil:
		s.log.Info("Could not sweep all of a cluster; trying again with the next sweep", "cluster", name, "error", err.Error())
	}
	s.metrics.swept(name, found.unproven, err)
	s.tellStrange(c, found.strange)
}

// tellStrange logs how many dependents have owners in another cluster than the one that has its name, if that is news.
func (s *sweeper) tellStrange(c *sweepMemory, now map[mcreconcile.ClusterName]int) {
	for owners, n := range now {
		if c.strange[owners] != n {
			s.log.Info("Left dependents alone: another cluster has the name of their owners'. If two installations have the same name, "+
				"give one another; if the cluster's credentials lead to the wrong one, mend them",
				"cluster", c.name, "ownersIn", clusterText(owners), "dependents", n)
		}
	}
	c.strange = now
}

// look removes a dependent if it is proved to be orphaned.
func (s *sweeper) look(ctx context.Context, at session, k kind, obj *metav1.PartialObjectMetadata, found *findings) {
	if _, hung := found.hung[obj.UID]; hung || !obj.DeletionTimestamp.IsZero() {
		return
	}
	log := s.log.WithValues("cluster", at.name, "object", k.describe(obj))
	references, err := at.references(obj)
	if err != nil {
		found.unproven++
		log.V(1).Info("Left a dependent alone", "why", err.Error())
		return
	}
	var gone []mcowner.Reference
	for _, owner := range references {
		if owner.Fleet != s.Fleet || s.manager != "" && owner.Manager != s.manager || s.isAlive(ctx, owner, at.name, found) {
			continue
		}
		why, err := s.prove(ctx, owner, at.name, found)
		if err != nil {
			found.unproven++
			log.V(1).Info("Left a dependent alone", "owner", owner.String(), "why", err.Error())
		}
		if errors.Is(err, errAnotherCluster) {
			found.strange[owner.Cluster]++
		}
		if err == nil && why != "" {
			log = log.WithValues("owner", owner.String(), "why", why)
			gone = append(gone, owner)
		}
	}
	if len(gone) > 0 {
		if err := s.remove(ctx, at, k, obj, gone, log); err != nil {
			found.errs = append(found.errs, err)
			if isHung(err) {
				found.hanging++
				found.hung[obj.UID] = struct{}{}
			}
		}
	}
}

// prove asks the API server of the owner's cluster, see [proof.orphaned].
func (s *sweeper) prove(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName, found *findings) (why string, err error) {
	if _, silent := found.silent[owner.Cluster]; silent {
		return "", fmt.Errorf("%w: %s gave no answer in time", errUnproven, clusterText(owner.Cluster))
	}
	if err := s.limit.Wait(ctx); err != nil {
		return "", err
	}
	why, err = s.proof.orphaned(ctx, owner, in)
	if isHung(err) {
		found.silent[owner.Cluster] = struct{}{}
	}
	return why, err
}

// isAlive reports whether the cache knows that an owner is there and may have dependents in the named cluster. It saves
// asking the API server, which alone can prove the contrary.
func (s *sweeper) isAlive(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName, found *findings) (alive bool) {
	k, ok := s.proof.kindOf(owner)
	owners := ownersOf{owner.Cluster, owner.GroupKind()}
	if _, unsynced := found.unsynced[owners]; unsynced || !ok || !s.access.within(s.OwnersIn, owner.Cluster) {
		return false
	}
	err := s.access.visit(ctx, owner.Cluster, func(ctx context.Context, home session) error {
		ctx, cancel := s.access.bound(ctx)
		defer cancel()
		obj := k.newObject()
		err := home.cluster.GetCache().Get(ctx, owner.NamespacedName(), obj)
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

// remove removes what was proved to be orphaned.
func (s *sweeper) remove(ctx context.Context, at session, k kind, obj client.Object, gone []mcowner.Reference, log logr.Logger) error {
	if s.DryRun {
		log.Info("Would remove an orphan")
		s.metrics.removed(at.name, wouldRemove)
		return nil
	}
	if err := s.limit.Wait(ctx); err != nil {
		return err
	}
	writer, err := s.writers.at(at, gone[0].Cluster)
	if err != nil {
		return err
	}
	deleted, err := takeAway(ctx, s.access, writer, at, k, obj, gone, metav1.DeletePropagationBackground)
	if err != nil {
		return err
	}
	action := released
	if deleted {
		action = deletedIt
	}
	s.metrics.removed(at.name, action)
	log.Info("Removed an orphan", "action", action)
	return nil
}
