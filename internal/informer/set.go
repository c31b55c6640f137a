package informer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Set holds the informers of one engagement, by kind: several where a cache is limited to some namespaces, and none
// where they are not of this package. The zero value is empty. It is safe for concurrent use.
type Set struct {
	mu        sync.Mutex // guards what follows
	kinds     []ofKind   // a map would take 1 KB for the first
	legacies  map[Key]*legacy
	closing   *time.Timer // closes the legacies
	closed    bool        // no informer keeps what was lost for handlers that are added later
	replacing bool        // the informers keep what is lost for those that are about to take their place
}

type ofKind struct {
	key       Key
	informers []*Informer
}

// ofLocked returns where the informers of a kind are.
func (is *Set) ofLocked(key Key) *ofKind {
	at := slices.IndexFunc(is.kinds, func(k ofKind) bool { return k.key == key })
	if at < 0 {
		at = len(is.kinds)
		is.kinds = append(is.kinds, ofKind{key: key})
	}
	return &is.kinds[at]
}

// Add notes a new informer of a kind, nil for one that is not of this package. It takes over the legacy of those in the
// engagement before.
func (is *Set) Add(key Key, i *Informer) {
	is.mu.Lock()
	defer is.mu.Unlock()
	of := is.ofLocked(key)
	if i == nil {
		of.informers = nil
		return
	}
	of.informers = append(of.informers, i)
	if l := is.legacies[key]; l != nil {
		l.add(i, !is.closed)
	}
}

// Retire keeps handlers from being added to the informers of a kind, if they have none. They are to be removed then. The answer
// is false if there are handlers, or informers that are not of this package.
func (is *Set) Retire(key Key) bool {
	is.mu.Lock()
	defer is.mu.Unlock()
	informers := is.ofLocked(key).informers
	return len(informers) > 0 && retire(informers)
}

// Remove ends the informers of a kind, and forgets them.
func (is *Set) Remove(key Key) {
	is.mu.Lock()
	defer is.mu.Unlock()
	for _, i := range is.ofLocked(key).informers {
		i.Remove()
	}
	is.kinds = slices.DeleteFunc(is.kinds, func(k ofKind) bool { return k.key == key })
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
		i.mu.Lock()
		if i.lost == nil {
			i.lost = map[string]any{}
		}
		for l := range i.handlers {
			for _, obj := range l.UntoldDeletions() {
				i.lostLocked(obj)
			}
		}
		i.mu.Unlock()
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
	before.mu.Lock()
	defer before.mu.Unlock()
	is.legacies = make(map[Key]*legacy, len(before.kinds))
	for _, old := range before.kinds {
		l := &legacy{before: slices.Clone(old.informers), most: len(old.informers)}
		if unsettled := before.legacies[old.key]; unsettled != nil {
			l.before = append(l.before, unsettled.left()...)
		}
		is.legacies[old.key] = l
	}
}

// Open tells that the set has taken the place of the one before. ctx is its life.
func (is *Set) Open(ctx context.Context) {
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.legacies == nil {
		return
	}
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
	maps.DeleteFunc(is.legacies, func(_ Key, l *legacy) bool { return len(l.left()) == 0 })
	is.dropLocked()
}
