package dependents

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
)

// moreKindsFound returns the kinds of which owners have dependents that are not in Kinds: owners that this replica works on, and, where several share
// the members, those in the local cluster that are meant, which each has in its cache. With an error, the latter are missing.
func (c *engine) moreKindsFound(ctx context.Context, isMeant func(owner client.Object) bool) (kinds []client.Object, err error) {
	found := map[string]client.Object{}
	add := func(kinds []schema.GroupVersionKind) {
		for _, gvk := range kinds {
			swept := c.cfg.createNamespaces && gvk.GroupKind() == namespaceKind
			if k := c.kindNoted(gvk); !c.isFixed(k) && !swept {
				found[gvk.String()] = k.Proto
			}
		}
	}
	for _, o := range c.ledger.all() {
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

// sweptKinds are what moreKindsFound has returned to the last sweep that asked.
type sweptKinds struct {
	mu    sync.Mutex // guards what follows
	kinds []client.Object
	next  time.Time // when they are found anew
}

// get returns the kinds. One caller at a time finds them anew, while others have the former ones.
func (s *sweptKinds) get(find func() []client.Object) []client.Object {
	s.mu.Lock()
	kinds, now := s.kinds, time.Now()
	due := now.After(s.next)
	if due {
		s.next = now.Add(keepKinds)
	}
	s.mu.Unlock()
	if !due {
		return kinds
	}
	kinds = find()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds = kinds
	return kinds
}

// moreKindsInTurn is moreKindsFound, for one sweep. It has others each time if there are more than one owner can note: each costs a list
// in each cluster, and whoever may edit owners may note as many on each.
func (c *engine) moreKindsInTurn() []client.Object {
	kinds := slices.Clone(c.swept.get(func() []client.Object {
		found, _ := c.moreKindsFound(context.Background(), func(client.Object) bool { return true }) // what the cache of owners does not have yet is found later
		return found
	}))
	rand.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] }) //nolint:gosec // it hides nothing
	return kinds[:min(len(kinds), record.MostKinds)]
}
