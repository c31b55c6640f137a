package dependents

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
)

// moreKindsFound returns the kinds of which owners have dependents that are not in Kinds, each in one version: these owners that this replica
// works on, and, where several share the members, those in the local cluster that are meant, which each has in its cache. With an error, the latter
// are missing.
func (c *engine) moreKindsFound(
	ctx context.Context, owners []*ownerState, isMeant func(client.Object) bool,
) (kinds []schema.GroupVersionKind, err error) {
	found := map[schema.GroupKind]schema.GroupVersionKind{}
	add := func(kinds []schema.GroupVersionKind) {
		for _, gvk := range kinds {
			other, known := found[gvk.GroupKind()]
			if (!known || gvk.Version < other.Version) && !c.isSwept(gvk.GroupKind()) {
				found[gvk.GroupKind()] = gvk
			}
		}
	}
	for _, o := range owners {
		o.mu.Lock()
		kinds := o.record.Kinds
		o.mu.Unlock()
		add(kinds)
	}
	if c.cfg.ownersIn.Local && c.access.IsShared() {
		err = c.eachNoted(ctx, isMeant, add)
	}
	return slices.Collect(maps.Values(found)), err
}

// isSwept reports whether a kind is swept whatever owners have noted.
func (c *engine) isSwept(kind schema.GroupKind) bool {
	return c.isFixed(kind) || c.cfg.createNamespaces && kind == namespaceKind
}

// eachNoted calls do with the kinds that are noted on owners in the local cluster. What many have noted alike is read once.
func (c *engine) eachNoted(ctx context.Context, isMeant func(owner client.Object) bool, do func([]schema.GroupVersionKind)) error {
	ctx, cancel := c.access.Bound(ctx)
	defer cancel()
	seen := map[string]bool{}
	err := c.eachCached(ctx, c.access.Manager, func(owner client.Object) {
		if noted := owner.GetAnnotations()[c.keys.Kinds]; !seen[noted] && isMeant(owner) {
			seen[noted] = true
			do(c.keys.Read(owner).Kinds)
		}
	})
	if err != nil {
		return fmt.Errorf("reading the owners in the local cluster: %w", err)
	}
	return nil
}

// keepKinds is for how long sweeps have the kinds that one of them has found: that reads what is known of all owners, and each cluster has a sweep.
const keepKinds = 5 * time.Second

// moreKinds are the kinds of which sweeps look for dependents that are not in Kinds, ordered by turnOf.
type moreKinds struct {
	watched []schema.GroupVersionKind // somewhere: an owner wants or has something of each
	noted   []schema.GroupVersionKind // on owners, besides. Whoever may edit owners may have made them up.
}

var turnSeed = maphash.MakeSeed()

// turnOf says when it is the turn of a kind. Nobody outside can tell which kinds come before another one.
func turnOf(kind schema.GroupVersionKind) uint64 { return maphash.Comparable(turnSeed, kind) }

func byTurn(a, b schema.GroupVersionKind) int { return cmp.Compare(turnOf(a), turnOf(b)) }

// after returns the kinds whose turn is after that of another one, as many as one owner can note.
func (k moreKinds) after(last schema.GroupVersionKind) []schema.GroupVersionKind {
	next, is := slices.BinarySearchFunc(k.noted, last, byTurn)
	if is {
		next++
	}
	n := min(len(k.noted), record.MostKinds)
	first := k.noted[next:min(next+n, len(k.noted))]
	return slices.Concat(first, k.noted[:n-len(first)])
}

// sweptKinds are what kindsToSweep has returned to the last sweep that asked.
type sweptKinds struct {
	mu      sync.Mutex // guards what follows
	kinds   moreKinds
	finding bool
	next    time.Time // when they are found anew
}

// get returns the kinds. One caller at a time finds them anew, while others have the former ones.
func (s *sweptKinds) get(find func() moreKinds) moreKinds {
	s.mu.Lock()
	kinds, isDue := s.kinds, !s.finding && !time.Now().Before(s.next)
	s.finding = s.finding || isDue
	s.mu.Unlock()
	if !isDue {
		return kinds
	}
	defer func() { // also after a panic, then with the former ones
		s.mu.Lock()
		defer s.mu.Unlock()
		s.kinds, s.finding, s.next = kinds, false, time.Now().Add(keepKinds)
	}()
	kinds = find()
	return kinds
}

func (c *engine) kindsToSweep() (k moreKinds) {
	watched := map[schema.GroupKind]bool{}
	for kind := range c.watches.kinds() {
		if !c.isSwept(kind.GroupKind()) {
			k.watched, watched[kind.GroupKind()] = append(k.watched, kind), true
		}
	}
	all := func(client.Object) bool { return true }
	found, _ := c.moreKindsFound(context.Background(), c.ledger.all(), all) // what the cache of owners does not have yet is found later
	k.noted = slices.DeleteFunc(found, func(kind schema.GroupVersionKind) bool { return watched[kind.GroupKind()] })
	slices.SortFunc(k.watched, byTurn)
	slices.SortFunc(k.noted, byTurn)
	return k
}

// moreKindsAfter returns the kinds for one sweep that are not in Kinds: those that are watched somewhere, and others after the last one that had its
// turn. Of these it has as many as one owner can note: each costs a list in each cluster, and whoever may edit owners may note as many on each.
func (c *engine) moreKindsAfter(last schema.GroupVersionKind) (always, inTurn []schema.GroupVersionKind) {
	kinds := c.swept.get(c.kindsToSweep)
	return kinds.watched, kinds.after(last)
}
