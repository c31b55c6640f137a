package informer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// Set holds the informers of one engagement, by kind: several where a cache is limited to some namespaces, and none
// where they are not of this package. The zero value is empty. It is safe for concurrent use.
type Set struct {
	mu        sync.Mutex // guards what follows
	kinds     []ofKind   // a map would take 1 KB for the first
	before    *Set       // whose place it is about to take, if that leaves anything
	legacies  map[Key]*legacy
	closing   *time.Timer // closes the legacies
	closed    bool        // no informer keeps what was lost for handlers that are added later
	replacing bool        // the informers keep what is lost for those that are about to take their place
}

type ofKind struct {
	key       Key
	informers []*Informer
}

// ofLocked returns the informers of a kind.
func (is *Set) ofLocked(key Key) []*Informer {
	if at := is.findLocked(key); at >= 0 {
		return is.kinds[at].informers
	}
	return nil
}

func (is *Set) findLocked(key Key) int {
	return slices.IndexFunc(is.kinds, func(k ofKind) bool { return k.key == key })
}

// Add notes a new informer of a kind, nil for one that is not of this package. It takes over the legacy of those in the
// engagement before.
func (is *Set) Add(key Key, i *Informer) {
	is.mu.Lock()
	defer is.mu.Unlock()
	at := is.findLocked(key)
	if at < 0 {
		at = len(is.kinds)
		is.kinds = append(is.kinds, ofKind{key: key})
	}
	of := &is.kinds[at]
	if i == nil {
		of.informers = nil
		return
	}
	of.informers = append(of.informers, i)
	if is.replacing {
		i.keepLost()
	}
	if l := is.legacies[key]; l != nil {
		l.add(i, !is.closed)
	}
}

// Retire keeps handlers from being added to the informers of a kind, if they have none. They are to be removed then. The answer
// is false if there are handlers, or informers that are not of this package, or that may yet keep what was lost for handlers
// that are added soon, or whose place is being taken.
func (is *Set) Retire(key Key) bool {
	is.mu.Lock()
	defer is.mu.Unlock()
	informers := is.ofLocked(key)
	if is.replacing || is.legacies[key] != nil && !is.closed {
		return false
	}
	return len(informers) > 0 && retire(informers)
}

// Restore ends Retire: the informers could not be removed.
func (is *Set) Restore(key Key) {
	for _, i := range is.of(key) {
		i.mu.Lock()
		i.stopped = i.reflector.Load() == nil
		i.mu.Unlock()
	}
}

// Forget ends the informers of a kind, and forgets them, with what was lost of it. Before that, forget lets the cache forget them, or tells why
// it does not: then they go on, and so do those that somebody gets from the cache meanwhile.
func (is *Set) Forget(key Key, forget func() error) error {
	gone := is.of(key)
	if err := forget(); err != nil {
		return err
	}
	is.mu.Lock()
	defer is.mu.Unlock()
	for _, i := range gone {
		i.Remove()
	}
	delete(is.legacies, key)
	if at := is.findLocked(key); at >= 0 {
		of := &is.kinds[at]
		of.informers = slices.DeleteFunc(of.informers, func(i *Informer) bool { return slices.Contains(gone, i) })
		if len(of.informers) == 0 {
			is.kinds = slices.Delete(is.kinds, at, at+1)
		}
	}
	return nil
}

// Keys returns the kinds.
func (is *Set) Keys() []Key {
	is.mu.Lock()
	defer is.mu.Unlock()
	keys := make([]Key, 0, len(is.kinds))
	for _, k := range is.kinds {
		keys = append(keys, k.key)
	}
	return keys
}

func (is *Set) allLocked() []*Informer {
	var all []*Informer
	for _, k := range is.kinds {
		all = append(all, k.informers...)
	}
	return all
}

// KeepLost makes the informers keep what goes from now on, with what went and was not told yet.
func (is *Set) KeepLost() {
	is.mu.Lock()
	defer is.mu.Unlock()
	is.replacing = true
	for _, i := range is.allLocked() {
		i.keepLost()
	}
}

// DropLost ends KeepLost.
func (is *Set) DropLost() {
	is.mu.Lock()
	defer is.mu.Unlock()
	is.replacing = false
	is.dropLocked()
}

// dropLocked drops what informers keep, unless it is for those that take their place, or for handlers that are added later.
func (is *Set) dropLocked() {
	if is.replacing || is.legacies != nil && !is.closed {
		return
	}
	for _, i := range is.allLocked() {
		i.mu.Lock()
		i.lost = nil
		i.mu.Unlock()
	}
}

// Inherit prepares a set to take the place of the one before. It has no informers yet.
func (is *Set) Inherit(before *Set) {
	is.mu.Lock()
	defer is.mu.Unlock()
	is.before, is.legacies = before, map[Key]*legacy{}
	is.inheritLocked()
}

// inheritLocked takes what the one before leaves of each kind, also of those that it never got informers of, unless it has that already.
func (is *Set) inheritLocked() {
	is.before.mu.Lock()
	defer is.before.mu.Unlock()
	for _, old := range is.before.kinds {
		l := is.legacyLocked(old.key)
		l.inherit(old.informers)
		l.replaces(len(old.informers))
	}
	for key, unsettled := range is.before.legacies {
		if left, most := unsettled.left(); len(left) > 0 {
			l := is.legacyLocked(key)
			l.inheritFormer(left)
			if len(is.before.ofLocked(key)) == 0 { // else there will be as many as it has
				l.replaces(most)
			}
		}
	}
}

// legacyLocked returns the legacy of a kind, a new one for the informers that there are if there is none.
func (is *Set) legacyLocked(key Key) *legacy {
	l := is.legacies[key]
	if l == nil {
		l = &legacy{}
		is.legacies[key] = l
		for _, i := range is.ofLocked(key) {
			l.add(i, true)
		}
	}
	return l
}

// Shares reports whether an object of the one before is in this one. Servers give a UID to one object alone, so both sets are
// of one cluster then.
func (is *Set) Shares(before *Set) bool {
	for _, key := range before.Keys() {
		now := is.of(key)
		for _, i := range before.of(key) {
			if slices.ContainsFunc(now, func(other *Informer) bool { return shareObject(i.indexer, other.indexer) }) {
				return true
			}
		}
	}
	return false
}

// of returns the informers of a kind.
func (is *Set) of(key Key) []*Informer {
	is.mu.Lock()
	defer is.mu.Unlock()
	return slices.Clone(is.ofLocked(key))
}

func shareObject(a, b toolscache.Store) bool {
	return slices.ContainsFunc(a.List(), func(obj any) bool {
		other, exists, err := b.Get(obj)
		return err == nil && exists && uidOf(obj) != "" && uidOf(obj) == uidOf(other)
	})
}

func uidOf(obj any) types.UID {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return accessor.GetUID()
}

// Renounce ends Inherit: the one before is of another cluster.
func (is *Set) Renounce() {
	is.mu.Lock()
	defer is.mu.Unlock()
	is.before, is.legacies = nil, nil
	for _, i := range is.allLocked() {
		i.mu.Lock()
		i.legacy, i.lost = nil, nil
		i.mu.Unlock()
	}
}

// Open tells that the set has taken the place of the one before. ctx is its life.
func (is *Set) Open(ctx context.Context) {
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.before == nil {
		return
	}
	is.inheritLocked() // the kinds that were new there meanwhile
	is.before = nil
	for _, l := range is.legacies {
		l.mu.Lock()
		l.open = true
		l.mu.Unlock()
		l.settle()
	}
	is.closing = time.AfterFunc(legacyLasts, is.close)
	context.AfterFunc(ctx, func() { is.closing.Stop() })
}

// close ends that handlers are told what was lost before they were added. A legacy that is not settled yet is told
// to the handlers that there are then.
func (is *Set) close() {
	is.mu.Lock()
	defer is.mu.Unlock()
	is.closed = true
	maps.DeleteFunc(is.legacies, func(_ Key, l *legacy) bool { return l.isSettled() })
	is.dropLocked()
}
