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
	mu       sync.Mutex // guards what follows
	of       map[Key][]*Informer
	legacies map[Key]*legacy
	closing  *time.Timer // closes the legacies
	closed   bool        // no informer keeps what was lost for handlers that are added later
}

// Add notes a new informer of a kind, nil for one that is not of this package. It takes over the legacy of those in the
// engagement before.
func (is *Set) Add(key Key, i *Informer) {
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.of == nil {
		is.of = map[Key][]*Informer{}
	}
	if i == nil {
		is.of[key] = nil
		return
	}
	is.of[key] = append(is.of[key], i)
	if l := is.legacies[key]; l != nil {
		l.add(i, !is.closed)
	}
}

// Remove ends the informers of a kind, and forgets them.
func (is *Set) Remove(key Key) {
	is.mu.Lock()
	defer is.mu.Unlock()
	for _, i := range is.of[key] {
		i.Remove()
	}
	delete(is.of, key)
}

// Keys returns the kinds.
func (is *Set) Keys() []Key {
	is.mu.Lock()
	defer is.mu.Unlock()
	return slices.Collect(maps.Keys(is.of))
}

func (is *Set) all() []*Informer {
	is.mu.Lock()
	defer is.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Values(is.of))...)
}

// KeepLost makes the informers keep what goes from now on, with what went and was not told yet.
func (is *Set) KeepLost() {
	for _, i := range is.all() {
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
	for _, i := range is.all() {
		i.mu.Lock()
		i.lost = nil
		i.mu.Unlock()
	}
}

// Inherit prepares a set to take the place of the one before. It has no informers yet.
func (is *Set) Inherit(before *Set) {
	before.mu.Lock()
	defer before.mu.Unlock()
	is.legacies = make(map[Key]*legacy, len(before.of))
	for key, old := range before.of {
		l := &legacy{before: slices.Clone(old), most: len(old)}
		if unsettled := before.legacies[key]; unsettled != nil {
			l.before = append(l.before, unsettled.left()...)
		}
		is.legacies[key] = l
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
	is.closed = true
	maps.DeleteFunc(is.legacies, func(_ Key, l *legacy) bool { return len(l.left()) == 0 })
	is.mu.Unlock()
	is.DropLost()
}
