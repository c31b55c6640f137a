package dependents

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// sweeper is a [Collector] at work.
type sweeper struct {
	Collector
	places  *places
	kinds   []kind
	proof   *proof
	writers writers
	limit   flowcontrol.RateLimiter
	counts  *sweepCounts
	log     logr.Logger
}

// run sweeps until ctx is done, and returns when nothing runs any more. Clusters are swept side by side, and one that is
// still being swept is left out of the next round: a slow one does not hold up the others.
func (s *sweeper) run(ctx context.Context) {
	var group errgroup.Group
	defer func() { _ = group.Wait() }() // it has no errors
	group.SetLimit(clustersAtOnce)
	var busy inProgress
	for ctx.Err() == nil {
		names := s.places.names(s.DependentsIn)
		s.counts.keep(names)
		for _, name := range names {
			if end, ok := busy.begin(name); ok {
				group.Go(func() error {
					defer end()
					s.sweepCluster(ctx, name)
					return nil
				})
			}
		}
		timer := time.NewTimer(s.Interval + rand.N(s.Interval/10+1)) //nolint:gosec // it hides nothing
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// inProgress has the clusters that are being swept. The zero value has none. It is safe for concurrent use.
type inProgress struct{ clusters sync.Map }

// begin returns false if the cluster is being swept already. end must be called after the sweep.
func (p *inProgress) begin(name mcreconcile.ClusterName) (end func(), ok bool) {
	_, already := p.clusters.LoadOrStore(name, struct{}{})
	return func() { p.clusters.Delete(name) }, !already
}

// swept is what one sweep of one cluster has found.
type swept struct {
	unproven int
	errs     []error                              // of single dependents
	silent   map[mcreconcile.ClusterName]struct{} // clusters of owners that gave no answer in time: they are asked no more
	timeouts int                                  // of removals of one kind
}

// mostTimeouts ends the look at a kind until the next sweep: a webhook that hangs would hold up each removal.
const mostTimeouts = 3

var errTooSlow = fmt.Errorf("%d removals got no answer in time; the rest of the kind is left to the next sweep", mostTimeouts)

func isTimeout(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

func (s *sweeper) sweepCluster(ctx context.Context, name mcreconcile.ClusterName) {
	found := swept{silent: map[mcreconcile.ClusterName]struct{}{}}
	err := s.places.visit(ctx, name, func(ctx context.Context, at place) error {
		list := scan{namespaces: s.Namespaces, pageSize: s.PageSize, before: s.limit.Wait}
		var errs []error
		for _, k := range s.kinds {
			found.timeouts = 0
			errs = append(errs, list.each(ctx, s.places, at, k, ofFleet(s.Fleet), func(obj *metav1.PartialObjectMetadata) error {
				s.look(ctx, at, k, obj, &found)
				if found.timeouts >= mostTimeouts {
					return errTooSlow
				}
				return ctx.Err()
			}))
		}
		return errors.Join(append(errs, found.errs...)...)
	})
	switch {
	case ctx.Err() != nil:
		return
	case isAway(err):
		s.log.V(1).Info("Not swept", "cluster", name, "why", err.Error())
		return
	case err != nil:
		s.log.Info("Could not sweep all of a cluster; trying again with the next sweep", "cluster", name, "error", err.Error())
	}
	s.counts.swept(name, found.unproven, err)
}

// look removes a dependent if it is proved to be orphaned.
func (s *sweeper) look(ctx context.Context, at place, k kind, obj *metav1.PartialObjectMetadata, found *swept) {
	if !obj.DeletionTimestamp.IsZero() {
		return
	}
	log := s.log.WithValues("cluster", at.name, "object", k.describe(obj))
	references, err := mcowner.References(obj, at.name)
	if err != nil {
		found.unproven++
		log.V(1).Info("Left a dependent alone", "why", err.Error())
		return
	}
	var gone []mcowner.Reference
	for _, owner := range references {
		if owner.Fleet != s.Fleet || s.manager != "" && owner.Manager != s.manager || s.isAlive(ctx, owner, at.name) {
			continue
		}
		why, err := s.prove(ctx, owner, at.name, found)
		if err != nil {
			found.unproven++
			log.V(1).Info("Left a dependent alone", "owner", owner.String(), "why", err.Error())
		}
		if err == nil && why != "" {
			log = log.WithValues("owner", owner.String(), "why", why)
			gone = append(gone, owner)
		}
	}
	if len(gone) > 0 {
		if err := s.remove(ctx, at, k, obj, gone, log); err != nil {
			found.errs = append(found.errs, err)
			if isTimeout(err) {
				found.timeouts++
			}
		}
	}
}

// prove asks the API server of the owner's cluster, see [proof.orphaned].
func (s *sweeper) prove(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName, found *swept) (why string, err error) {
	if _, silent := found.silent[owner.Cluster]; silent {
		return "", fmt.Errorf("%w: %s gave no answer in time", errUnproven, clusterText(owner.Cluster))
	}
	if err := s.limit.Wait(ctx); err != nil {
		return "", err
	}
	why, err = s.proof.orphaned(ctx, owner, in)
	if isTimeout(err) {
		found.silent[owner.Cluster] = struct{}{}
	}
	return why, err
}

// isAlive reports whether the cache knows that an owner is there and may have dependents in the named cluster. It saves
// asking the API server, which alone can prove the contrary.
func (s *sweeper) isAlive(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName) (alive bool) {
	k, ok := s.proof.kindOf(owner)
	if !ok {
		return false
	}
	_ = s.places.visit(ctx, owner.Cluster, func(ctx context.Context, home place) error {
		ctx, cancel := s.places.bound(ctx)
		defer cancel()
		found := k.newObject()
		err := home.cluster.GetCache().Get(ctx, owner.NamespacedName(), found)
		alive = err == nil && found.GetUID() == owner.UID && mayBePlaced(found, owner, in)
		return err
	})
	return alive
}

// remove removes what was proved to be orphaned.
func (s *sweeper) remove(ctx context.Context, at place, k kind, obj client.Object, gone []mcowner.Reference, log logr.Logger) error {
	if s.DryRun {
		log.Info("Would remove an orphan")
		s.counts.removed(at.name, wouldRemove)
		return nil
	}
	if err := s.limit.Wait(ctx); err != nil {
		return err
	}
	writer, err := s.writers.at(at, gone[0].Cluster)
	if err != nil {
		return err
	}
	deleted, err := takeAway(ctx, s.places, writer, at, k, obj, gone, metav1.DeletePropagationBackground)
	if err != nil {
		return err
	}
	action := released
	if deleted {
		action = deletedIt
	}
	s.counts.removed(at.name, action)
	log.Info("Removed an orphan", "action", action)
	return nil
}
