package informer

import (
	"maps"
	"slices"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fleet-runtime/fleet-runtime/internal/delivery"
)

// legacy is what the informers of a kind leave to those of the engagement that takes their place. Its controllers are
// told of the objects that are there now. Those that went in between are known to the old informers alone: they are told
// as deleted, to each handler that is added within legacyLasts.
type legacy struct {
	mu     sync.Mutex // guards what follows
	before []*Informer
	former map[string]any // what earlier engagements left that was not settled, by key
	most   int            // how many informers take the place
	heirs  []*Informer
	open   bool // the old engagement is over
}

// legacyLasts is how long handlers may be added after a replacement. Sources add theirs at once.
const legacyLasts = time.Minute

func (l *legacy) add(i *Informer, keeps bool) {
	i.mu.Lock()
	i.legacy = l
	if keeps && i.lost == nil {
		i.lost = map[string]any{}
	}
	i.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heirs = append(l.heirs, i)
}

// inherit takes over what these informers know.
func (l *legacy) inherit(from []*Informer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range from {
		if !slices.Contains(l.before, i) {
			l.before = append(l.before, i)
		}
	}
}

// inheritFormer takes over what is left of earlier engagements.
func (l *legacy) inheritFormer(left map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.former == nil {
		l.former = map[string]any{}
	}
	maps.Copy(l.former, left)
}

// replaces notes in the place of how many informers these come.
func (l *legacy) replaces(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = max(l.most, n)
}

// settle finds what was lost, once the old engagement is over and every new informer has its list.
func (l *legacy) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	synced := func(i *Informer) bool { return i.HasSynced() }
	if !l.open || len(l.heirs) < l.most || !all(l.heirs, synced) || len(l.heirs) == 0 {
		return
	}
	lost := l.collectLocked()
	for _, heir := range l.heirs {
		for _, key := range heir.indexer.ListKeys() {
			delete(lost, key)
		}
	}
	l.before, l.former, l.open = nil, nil, false
	l.heirs[0].inherit(lost)
}

// collectLocked returns the objects that there were, the newest of each key.
func (l *legacy) collectLocked() map[string]any {
	there := maps.Clone(l.former)
	if there == nil {
		there = map[string]any{}
	}
	for _, i := range l.before {
		i.collect(there)
	}
	return there
}

// left returns the objects that there were, if that has not been settled, and how many informers take the place of theirs.
func (l *legacy) left() (objects map[string]any, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.collectLocked(), l.most
}

func (l *legacy) isSettled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.before == nil && l.former == nil
}

func all[T any](items []T, is func(T) bool) bool {
	return !slices.ContainsFunc(items, func(item T) bool { return !is(item) })
}

// collect adds the objects that the informer has, or has lost since KeepLost.
func (i *Informer) collect(into map[string]any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.Copy(into, i.lost)
	for _, obj := range i.indexer.List() {
		if key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			into[key] = obj
		}
	}
}

// inherit tells what was lost to the handlers that there are, and keeps it for those that are added.
func (i *Informer) inherit(lost map[string]any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for key, obj := range lost {
		if _, back, _ := i.indexer.GetByKey(key); back {
			continue // it was created again this very moment
		}
		if i.lost != nil {
			i.lost[key] = obj
		}
		intake{i}.tellLocked(deletionMissed(key, obj))
	}
}

func deletionMissed(key string, obj any) delivery.Event {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	return delivery.Event{What: delivery.Deleted, Obj: toolscache.DeletedFinalStateUnknown{Key: key, Obj: obj}}
}

// keepLost makes the informer keep what goes from now on, with what went and was not told yet.
func (i *Informer) keepLost() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.lost == nil {
		i.lost = map[string]any{}
	}
	for l := range i.handlers {
		for _, obj := range l.UntoldDeletions() {
			i.lostLocked(obj)
		}
	}
}

// lostLocked notes that an object is gone.
func (i *Informer) lostLocked(obj any) {
	if i.lost == nil {
		return
	}
	if key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		i.lost[key] = obj
	}
}

// foundLocked notes that an object is there.
func (i *Informer) foundLocked(obj any) {
	if len(i.lost) == 0 {
		return
	}
	if key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		delete(i.lost, key)
	}
}
