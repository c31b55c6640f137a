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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
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
	limit   *limit
	metrics *sweepMetrics
	log     logr.Logger
	unseen  unseen
	books   books

	// What access does, for tests in which there are no clusters.
	names      func() []mcreconcile.ClusterName
	engagement func(mcreconcile.ClusterName) *fleet.Engagement
	visit      func(context.Context, mcreconcile.ClusterName, func(context.Context, remote.Session) error) error
	list       func(context.Context, remote.Session, remote.Kind, func(client.Object) error) error

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
	keep    bool    // the dependent that is looked at is to stay, unless it says something else itself
	done    func()  // see letGoOn, may be nil
	// Owners are not asked for again where that took too long: from the API server of their cluster, or from its cache.
	unheard, unsynced map[ownersOf]struct{}
	// alive are owners that were found to be there, by a cache or an API server, and may have dependents in the cluster, or whose
	// controller was told of those.
	alive map[ownerKey]struct{}
}

const (
	// mostTold is how many errors of single dependents are told of a sweep. Where removals are refused, each dependent has one.
	mostTold = 10
	// longestError is how much of each is told, and longestTold of them all, in bytes. Servers answer whatever they like.
	longestError, longestTold = 400, 4 << 10
)

// told returns an error as logs have it.
func told(err error) string { return oneline.Text(err.Error(), longestTold) }

// failed notes an error of a single dependent.
func (f *findings) failed(err error) {
	if len(f.errs) >= mostTold {
		f.more++
		return
	}
	f.errs = append(f.errs, oneline.Error(err, longestError))
}

// failures returns the errors of single dependents.
func (f *findings) failures() error {
	all := f.errs
	if f.more > 0 {
		all = append(slices.Clone(all), fmt.Errorf("and %d more", f.more))
	}
	return errors.Join(all...)
}

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

// isBroken reports whether an error says that not all of a kind was looked at.
func isBroken(err error) bool { return isSilent(err) || errors.Is(err, errLong) }

func (s *Sweeper) sweep(ctx context.Context, c *sweepMemory, by way) {
	name := c.name
	found := findings{
		pass: by.pass(c), cached: by.awake != nil, turn: turn{places: by.places, unsure: map[ownerHash]error{}},
		unheard: map[ownersOf]struct{}{}, unsynced: map[ownersOf]struct{}{}, alive: map[ownerKey]struct{}{},
	}
	if found.begin(ctx) != nil {
		return
	}
	defer found.end()
	err := s.visit(ctx, name, func(ctx context.Context, at remote.Session) error { return s.sweepAt(ctx, at, c, by, &found) })
	switch {
	case ctx.Err() != nil:
		return
	case errors.Is(err, fleet.ErrNotReady), remote.IsAway(err): // also where a kind cannot be read, which the fleet tells
		s.log.V(1).Info("Not swept", "cluster", name, "why", told(err))
		return
	case err != nil:
		s.log.Info("Could not sweep all of a cluster; trying again with the next sweep", "cluster", name, "error", told(err))
	}
	s.tell(c, err)
}

// sweepAt is sweep in a cluster that can be used now.
func (s *Sweeper) sweepAt(ctx context.Context, at remote.Session, c *sweepMemory, by way, found *findings) error {
	var errs []error
	always, others := s.kindsFor(found.pass)
	c.keep(slices.Concat(always, others))
	if !found.cached {
		c.forgetDue(at.Engagement)
		others = c.mayHaveTurn(always, others)
	}
	kinds, turns := found.inTurn(always, others), time.Now() // since when others have their turn
	for i, k := range kinds {
		found.others = func() bool { return s.areDue(by, c, kinds[:i]) || s.areDue(by, c, kinds[i+1:]) }
		err := s.sweepKind(ctx, at, k, c, by, found)
		found.last = k.GroupVersionKind
		isOther := indexOf(others, found.last) >= 0
		if isOther {
			found.lastInTurn = found.last
		} else {
			turns = time.Now()
		}
		goesOn := s.areDue(by, c, kinds[i+1:])
		isOver := goesOn && found.isWanted()
		if isOver && !errors.Is(err, errLong) {
			err = errors.Join(err, errLong)
		}
		errs = append(errs, err)
		if isOver || isSilent(err) || errors.Is(err, remote.ErrEndless) { // the next sweep begins with the next kind
			break
		}
		if !goesOn {
			continue
		}
		if isOther && !found.cached { // somebody may have made it up: whoever waits goes first, and so do the kinds that each sweep has
			if found.places.wanted.Load() || time.Since(turns) >= s.Interval {
				break
			}
			found.began = time.Time{}
		}
		err = s.giveWay(ctx, &found.turn)
		if err == nil && found.isWanted() { // lists in which there is nothing may be slow too
			err = errLong
		}
		if err != nil {
			errs = append(errs, err)
			break
		}
	}
	return errors.Join(append(errs, found.failures())...)
}

// areDue reports whether there is something to look at of any of these kinds.
func (s *Sweeper) areDue(by way, c *sweepMemory, kinds []remote.Kind) bool {
	if by.isDue == nil {
		return slices.ContainsFunc(kinds, func(k remote.Kind) bool { return s.Watched(c.name, k.GroupVersionKind) })
	}
	return len(kinds) > 0 && by.isDue(c, kinds)
}

// sweepKind looks at the dependents of a kind.
func (s *Sweeper) sweepKind(ctx context.Context, at remote.Session, k remote.Kind, c *sweepMemory, by way, found *findings) error {
	last := found.begun[k.GroupVersionKind]
	delete(found.begun, k.GroupVersionKind) // however this list ends
	found.hanging, found.tally, found.gave, found.skips = 0, last.tally, 0, last.at != ""
	since := cmp.Or(last.since, time.Now())
	if found.strange == nil {
		found.strange = map[mcreconcile.ClusterName]int{}
	}
	did, err := by.each(ctx, at, k, c, func(obj client.Object) error {
		switch at := place(obj.GetNamespace(), obj.GetName()); {
		case at < last.at: // it was looked at by a list before this one
			return cmp.Or(s.giveWay(ctx, &found.turn), ctx.Err())
		case found.isOver():
			found.goOn(k.GroupVersionKind, at, since)
			return errLong
		case last.isNew(obj):
			return cmp.Or(s.giveWay(ctx, &found.turn), ctx.Err())
		}
		if err := s.next(ctx, &found.turn); err != nil {
			return err
		}
		s.look(ctx, at, k, obj, found)
		if found.hanging >= mostHung {
			return errHung
		}
		return ctx.Err()
	})
	if did && !errors.Is(err, errLong) {
		c.note(k.GroupVersionKind, found.tally)
	}
	if (did || remote.IsRefused(err)) && !isBroken(err) { // all was looked at that may be
		delete(found.hung, k.GroupVersionKind)
	}
	return err
}

// kindsFor returns the kinds of dependents that a sweep looks for: those that each has, and those that have their turn.
func (s *Sweeper) kindsFor(p *pass) (always, inTurn []remote.Kind) {
	if s.MoreKinds == nil {
		return s.kinds, nil
	}
	more, others := s.MoreKinds(p.lastInTurn)
	return slices.Concat(s.kinds, untyped(more)), untyped(others)
}

// kindsToList returns the kinds that are listed now, if they are due. It is for the pass that lists.
func (s *Sweeper) kindsToList(c *sweepMemory) []remote.Kind {
	always, others := s.kindsFor(&c.listed)
	return slices.Concat(always, c.mayHaveTurn(always, others))
}

func untyped(kinds []schema.GroupVersionKind) []remote.Kind {
	all := make([]remote.Kind, len(kinds))
	for i, gvk := range kinds {
		all[i] = remote.Untyped(gvk)
	}
	return all
}

// eachListed calls do with the dependents of a kind as the API server of their cluster lists them, if that is due. It did not if the
// list broke off: how many there are is not known then.
func (s *Sweeper) eachListed(ctx context.Context, at remote.Session, k remote.Kind, c *sweepMemory, do func(client.Object) error) (did bool, err error) {
	if !c.isDue(k) {
		return false, nil
	}
	err = s.list(ctx, at, k, do)
	ended := err == nil || errors.Is(err, remote.ErrEndless) || remote.IsRefused(err) // asked again soon, it would end no better
	if ended && !errors.Is(err, errLong) {
		c.due[k.GroupVersionKind] = time.Now().Add(s.Listing + rand.N(s.Listing/10+1)) //nolint:gosec // it hides nothing
	}
	return err == nil || errors.Is(err, errHung), err
}

// isListDue reports whether a kind is to be listed in a cluster now. It is for the pass that lists.
func (s *Sweeper) isListDue(c *sweepMemory, kinds []remote.Kind) bool {
	return c.listedIn != s.engagement(c.name) || slices.ContainsFunc(kinds, c.isDue)
}

// scan is list where there are clusters.
func (s *Sweeper) scan(ctx context.Context, at remote.Session, k remote.Kind, do func(client.Object) error) error {
	pages := remote.Scan{Namespaces: s.Namespaces, PageSize: s.PageSize, Before: s.limit.waitToList, Unserved: s.limit.waitAfterQuestion}
	return pages.Each(ctx, s.access, at, k, remote.OfFleet(s.Fleet), func(obj *metav1.PartialObjectMetadata) error { return do(obj) })
}

// eachCached calls do with the dependents of a kind as the cache of their cluster has them, if the kind is watched there.
func (s *Sweeper) eachCached(ctx context.Context, at remote.Session, k remote.Kind, c *sweepMemory, do func(client.Object) error) (did bool, err error) {
	if !s.Watched(c.name, k.GroupVersionKind) {
		return false, nil
	}
	namespaces := s.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for i, namespace := range namespaces {
		list, err := s.cached(ctx, at, k, namespace)
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("reading %s of %s: %w", k.GroupKind(), at, err)
		}
		err = meta.EachListItem(list, func(item runtime.Object) error {
			obj := item.(client.Object)            //nolint:forcetypeassert // so are all that caches have
			if i > 0 && obj.GetNamespace() == "" { // what is in no namespace was had with the first
				return nil
			}
			return do(obj)
		})
		if err != nil {
			return true, err
		}
	}
	return true, nil
}

// cached returns what the cache of a cluster has of a kind in a namespace.
func (s *Sweeper) cached(ctx context.Context, at remote.Session, k remote.Kind, namespace string) (client.ObjectList, error) {
	list, err := k.NewList(s.Manager.GetScheme())
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.access.Bound(ctx)
	defer cancel()
	ours := client.MatchingLabels{mcowner.FleetLabel: s.Fleet}
	err = at.Cluster.GetCache().List(ctx, list, ours, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	return list, err
}
