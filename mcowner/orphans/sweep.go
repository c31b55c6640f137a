package orphans

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
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
	listing chan struct{} // has room for the one list that waits for the limit
	metrics *sweepMetrics
	log     logr.Logger

	// What access does, for tests in which there are no clusters.
	names func() []mcreconcile.ClusterName
	visit func(context.Context, mcreconcile.ClusterName, func(context.Context, remote.Session) error) error
	list  func(context.Context, remote.Session, remote.Kind, func(client.Object) error) error

	mu       sync.Mutex // guards clusters
	clusters map[mcreconcile.ClusterName]*sweepMemory
}

// run sweeps until ctx is done, and returns when nothing runs any more. What caches have is looked at apart from the lists: these
// may have to wait for a long time, such as those of all members after the start.
func (s *sweeper) run(ctx context.Context) {
	var both sync.WaitGroup
	defer both.Wait()
	if s.Watched != nil {
		both.Go(func() {
			s.rounds(ctx, way{s.eachCached, func(c *sweepMemory) *pass { return &c.cached }, s.looks.awake()})
		})
	}
	s.rounds(ctx, way{s.eachListed, func(c *sweepMemory) *pass { return &c.listed }, nil})
}

// way is how dependents are found: in a cluster's cache, or by its API server.
type way struct {
	// each calls do with the dependents of a kind. The answer is false if it is not the time for that.
	each  func(ctx context.Context, at remote.Session, k remote.Kind, c *sweepMemory, do func(client.Object) error) (did bool, err error)
	pass  func(*sweepMemory) *pass
	awake <-chan struct{} // receives when there are clusters to look at
}

// gatherLooks is for how long it is gathered which clusters to look at. Owners often go by the hundred, and each asks for a look.
const gatherLooks = 500 * time.Millisecond

// rounds begins sweeps until ctx is done. Clusters are swept side by side, and one that is still being swept is left out of the
// next round: a slow one does not hold up the others.
func (s *sweeper) rounds(ctx context.Context, by way) {
	var group errgroup.Group
	defer func() { _ = group.Wait() }() // it has no errors
	group.SetLimit(remote.AtOnce)
	var gathered <-chan time.Time // nil if there is nothing to look at
	for ctx.Err() == nil {
		s.begin(ctx, &group, by, s.round(by))
		timer := time.NewTimer(s.Interval + rand.N(s.Interval/10+1)) //nolint:gosec // it hides nothing
		for waiting := true; waiting; {
			select {
			case <-timer.C:
				waiting = false
			case <-by.awake:
				if gathered == nil {
					gathered = time.After(gatherLooks)
				}
			case <-gathered:
				gathered = nil
				s.begin(ctx, &group, by, s.toLookAt(by))
			case <-ctx.Done():
				waiting = false
			}
		}
		timer.Stop()
	}
}

// begin sweeps clusters that are busy with it.
func (s *sweeper) begin(ctx context.Context, group *errgroup.Group, by way, now []*sweepMemory) {
	for _, c := range now {
		group.Go(func() error {
			s.sweep(ctx, c, by)
			by.pass(c).busy.Store(false)
			if by.awake != nil && c.again.Swap(false) {
				s.Look(c.name)
			}
			return nil
		})
	}
}

// toLookAt returns the clusters to look at before the next round, as busy. One that is being swept is looked at afterwards.
func (s *sweeper) toLookAt(by way) []*sweepMemory {
	var now []*sweepMemory
	for name := range s.looks.take() {
		if !slices.Contains(s.names(), name) {
			continue
		}
		c := s.memory(name)
		c.again.Store(true) // before it is tried: its sweep may be about to end
		if by.pass(c).busy.CompareAndSwap(false, true) {
			c.again.Store(false)
			now = append(now, c)
		}
	}
	return now
}

// sweepMemory is what is known of a cluster from one sweep to the next.
type sweepMemory struct {
	name           mcreconcile.ClusterName
	again          atomic.Bool // it is to be looked at once it is not busy any more
	cached, listed pass
	// due is when the dependents of a kind are listed next, not before. The pass that lists has it.
	due map[schema.GroupVersionKind]time.Time

	mu      sync.Mutex // guards what follows
	tallies map[schema.GroupVersionKind]tally
	strange map[mcreconcile.ClusterName]int // as it was told last, see tally
}

// pass is one of the ways in which a cluster is swept.
type pass struct {
	busy atomic.Bool // it is on, in the goroutine that has what follows
	// hung has dependents whose removal got no answer in time. They are left out until a sweep has reached the end, so that
	// the others have their turn.
	hung map[types.UID]struct{}
}

// tally is what was seen when a kind was last looked at.
type tally struct {
	unproven, unidentified int
	// strange is how many dependents have owners in another cluster than the one that has its name now, by that name.
	strange map[mcreconcile.ClusterName]int
}

// memory returns what is known of a cluster.
func (s *sweeper) memory(name mcreconcile.ClusterName) *sweepMemory {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.clusters[name]
	if !ok {
		c = &sweepMemory{name: name, due: map[schema.GroupVersionKind]time.Time{}, tallies: map[schema.GroupVersionKind]tally{}}
		c.cached.hung, c.listed.hung = map[types.UID]struct{}{}, map[types.UID]struct{}{}
		s.clusters[name] = c
	}
	return c
}

// round returns the clusters to sweep now, as busy. It forgets those that are no more.
func (s *sweeper) round(by way) []*sweepMemory {
	names := s.names()
	s.metrics.keep(names)
	s.mu.Lock()
	maps.DeleteFunc(s.clusters, func(name mcreconcile.ClusterName, c *sweepMemory) bool {
		return !slices.Contains(names, name) && !c.cached.busy.Load() && !c.listed.busy.Load()
	})
	s.mu.Unlock()
	var now []*sweepMemory
	for _, name := range names {
		if c := s.memory(name); by.pass(c).busy.CompareAndSwap(false, true) {
			now = append(now, c)
		}
	}
	return now
}

// findings are what one sweep of one cluster has found.
type findings struct {
	*pass
	tally           // of the kind that is looked at
	errs    []error // of single dependents
	hanging int     // removals of the kind that is looked at
	gaveUp  bool    // on a kind
	cached  bool    // what caches have is looked at
	// Owners are not asked for again where that took too long: from the API server of their cluster, or from its cache.
	silent   map[mcreconcile.ClusterName]struct{}
	unsynced map[ownersOf]struct{}
	// alive are owners that were found to be there, and may have dependents in the cluster.
	alive map[mcowner.Reference]struct{}
}

// ownersOf are the owners of a kind in a cluster.
type ownersOf struct {
	cluster mcreconcile.ClusterName
	kind    schema.GroupKind
}

// mostHung ends the look at a kind until the next sweep: a webhook that hangs would hold up each removal.
const mostHung = 3

var errHung = fmt.Errorf("%d removals got no answer in time; the next sweep goes on with others of the kind", mostHung)

func (s *sweeper) sweep(ctx context.Context, c *sweepMemory, by way) {
	name := c.name
	found := findings{
		pass: by.pass(c), cached: by.awake != nil,
		silent: map[mcreconcile.ClusterName]struct{}{}, unsynced: map[ownersOf]struct{}{}, alive: map[mcowner.Reference]struct{}{},
	}
	err := s.visit(ctx, name, func(ctx context.Context, at remote.Session) error {
		var errs []error
		for _, k := range s.allKinds() {
			found.hanging, found.tally = 0, tally{strange: map[mcreconcile.ClusterName]int{}}
			did, err := by.each(ctx, at, k, c, func(obj client.Object) error {
				s.look(ctx, at, k, obj, &found)
				if found.hanging >= mostHung {
					found.gaveUp = true
					return errHung
				}
				return ctx.Err()
			})
			if did {
				c.note(k.GroupVersionKind, found.tally)
			}
			errs = append(errs, err)
		}
		return errors.Join(append(errs, found.errs...)...)
	})
	if !found.gaveUp {
		clear(found.hung)
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
	s.tell(c, err)
}

// note notes what was seen of a kind.
func (c *sweepMemory) note(kind schema.GroupVersionKind, seen tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tallies[kind] = seen
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

// eachListed calls do with the dependents of a kind as the API server of their cluster lists them, if that is due. It did not if the
// list broke off: how many there are is not known then.
func (s *sweeper) eachListed(ctx context.Context, at remote.Session, k remote.Kind, c *sweepMemory, do func(client.Object) error) (did bool, err error) {
	if time.Now().Before(c.due[k.GroupVersionKind]) {
		return false, nil
	}
	if err := s.list(ctx, at, k, do); err != nil {
		return errors.Is(err, errHung), err
	}
	c.due[k.GroupVersionKind] = time.Now().Add(s.Listing + rand.N(s.Listing/10+1)) //nolint:gosec // it hides nothing
	return true, nil
}

// scan is list where there are clusters.
func (s *sweeper) scan(ctx context.Context, at remote.Session, k remote.Kind, do func(client.Object) error) error {
	pages := remote.Scan{Namespaces: s.Namespaces, PageSize: s.PageSize, Before: s.beforeList}
	return pages.Each(ctx, s.access, at, k, remote.OfFleet(s.Fleet), func(obj *metav1.PartialObjectMetadata) error { return do(obj) })
}

// beforeList waits until a list may be asked for. One list at a time waits for the limit: a proof, or a removal, waits behind
// that one, however many are due.
func (s *sweeper) beforeList(ctx context.Context) error {
	select {
	case s.listing <- struct{}{}:
		defer func() { <-s.listing }()
		return s.limit.Wait(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// eachCached calls do with the dependents of a kind as the cache of their cluster has them, if the kind is watched there.
func (s *sweeper) eachCached(ctx context.Context, at remote.Session, k remote.Kind, c *sweepMemory, do func(client.Object) error) (did bool, err error) {
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

// tell shows what a sweep came to. How many dependents have owners in another cluster than the one that has its name is logged
// if that is news.
func (s *sweeper) tell(c *sweepMemory, err error) {
	all := tally{strange: map[mcreconcile.ClusterName]int{}}
	c.mu.Lock()
	for _, of := range c.tallies {
		all.unproven += of.unproven
		all.unidentified += of.unidentified
		for owners, n := range of.strange {
			all.strange[owners] += n
		}
	}
	before := c.strange
	c.strange = all.strange
	c.mu.Unlock()
	s.metrics.swept(c.name, all.unproven, all.unidentified, err)
	for owners, n := range all.strange {
		if before[owners] != n {
			s.log.Info("Left dependents alone: another cluster has the name of their owners'. If two installations have the same name, "+
				"give one another; if the cluster's credentials lead to the wrong one, mend them",
				"cluster", c.name, "ownersIn", remote.ClusterText(owners), "dependents", n)
		}
	}
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
	removal := log
	var gone []mcowner.Reference
	for _, owner := range references {
		if owner.Fleet != s.Fleet || s.Controller != "" && owner.Manager != s.Controller {
			continue
		}
		if why := s.whyGone(ctx, owner, at.Name(), found, log); why != "" {
			removal = removal.WithValues("owner", owner.String(), "why", why)
			gone = append(gone, owner)
		}
	}
	if len(gone) > 0 {
		if err := s.remove(ctx, at, k, obj, gone, removal); err != nil {
			found.errs = append(found.errs, err)
			if remote.IsHung(err) {
				found.hanging++
				found.hung[obj.GetUID()] = struct{}{}
			}
		}
	}
}

// whyGone returns why it is proved that a dependent has this owner no more, and nothing if it is not. What only looks so is
// counted, or told.
func (s *sweeper) whyGone(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName, found *findings, log logr.Logger) string {
	if owner.ClusterUID == "" || owner.Dependent.ClusterUID == "" {
		found.unidentified++
	}
	if s.isKnownAlive(ctx, owner, in, found) || found.cached && s.access.IsElsewhere(owner.Cluster) { // no cache here has that one
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
		return ""
	case (is.stray || is.noted && !s.access.Within(s.OwnersIn, owner.Cluster)) && s.Stray != nil && !s.access.IsOthers(owner.Cluster):
		s.Stray(owner, in)
		return ""
	}
	return is.why
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
	if remote.IsHung(err) {
		found.silent[owner.Cluster] = struct{}{}
	}
	return is, err
}

// isKnownAlive is isAlive, asked once for all dependents of an owner: what is noted on it may be a thousand clusters.
func (s *sweeper) isKnownAlive(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName, found *findings) bool {
	owner.Dependent = mcowner.Location{}
	_, alive := found.alive[owner]
	if !alive && s.isAlive(ctx, owner, in, found) {
		found.alive[owner] = struct{}{}
		return true
	}
	return alive
}

// isAlive reports whether the cache knows that an owner is there and may have dependents in the named cluster. It saves
// asking the API server, which alone can prove the contrary.
func (s *sweeper) isAlive(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName, found *findings) (alive bool) {
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
func (s *sweeper) isPlaced(obj client.Object, owner mcowner.Reference, in mcreconcile.ClusterName) bool {
	noted, ok := notedBy(obj, owner)
	if ok && noted.IsOpen(in) {
		return s.Placed != nil && s.Placed(owner, in)
	}
	return !ok || !noted.Excludes(in)
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
