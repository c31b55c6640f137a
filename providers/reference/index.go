package reference

import (
	"context"
	"maps"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// index says which objects of one kind name a Secret. It is safe for concurrent use.
type index struct {
	mu       sync.Mutex // guards what follows
	bySecret map[client.ObjectKey]map[client.ObjectKey]bool
	byObject map[client.ObjectKey]named
}

// named is the Secret that an object names.
type named struct {
	secret client.ObjectKey
	claim  fleet.ClusterName // under which it was reported since it was noted, "" if it was not
}

func newIndex() *index {
	return &index{bySecret: map[client.ObjectKey]map[client.ObjectKey]bool{}, byObject: map[client.ObjectKey]named{}}
}

// set notes which Secret an object names now; the empty key stands for none.
func (i *index) set(obj, secret client.ObjectKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forgetLocked(obj)
	if secret == (client.ObjectKey{}) {
		return
	}
	if i.bySecret[secret] == nil {
		i.bySecret[secret] = map[client.ObjectKey]bool{}
	}
	i.bySecret[secret][obj] = true
	i.byObject[obj] = named{secret: secret}
}

func (i *index) forgetLocked(obj client.ObjectKey) {
	secret := i.byObject[obj].secret
	delete(i.bySecret[secret], obj)
	if len(i.bySecret[secret]) == 0 {
		delete(i.bySecret, secret)
	}
	delete(i.byObject, obj)
}

// by returns the objects that name a Secret.
func (i *index) by(secret client.ObjectKey) []client.ObjectKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Collect(maps.Keys(i.bySecret[secret]))
}

// reported notes that an object's claim was reported.
func (i *index) reported(claim fleet.ClusterName) {
	_, obj := parseClaim(claim)
	i.mu.Lock()
	defer i.mu.Unlock()
	if n, ok := i.byObject[obj]; ok {
		n.claim = claim
		i.byObject[obj] = n
	}
}

// removed forgets the object of a claim. An object that was looked at again since it was reported is there again, or names
// another Secret: it is not forgotten.
func (i *index) removed(claim fleet.ClusterName) {
	_, obj := parseClaim(claim)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.byObject[obj].claim == claim {
		i.forgetLocked(obj)
	}
}

// indexed are members whose index forgets the objects that are gone: of these an engine tells only that it removes what they
// described.
type indexed struct {
	fleet.Members
	index *index
}

// Set implements [fleet.Members].
func (m indexed) Set(described fleet.Member) error {
	m.index.reported(described.Name)
	return m.Members.Set(described)
}

// Remove implements [fleet.Members].
func (m indexed) Remove(ctx context.Context, claim fleet.ClusterName) error {
	m.index.removed(claim)
	return m.Members.Remove(ctx, claim)
}
