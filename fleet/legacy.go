package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fleet-runtime/fleet-runtime/internal/delivery"
)

// informers are the informers of one engagement, by kind: several where a cache is limited to some namespaces, and none
// where they are not the fleet's own. The zero value is empty.
type informers struct {
	mu       sync.Mutex // guards what follows
	of       map[informerKey][]*informer
	legacies map[informerKey]*legacy
	closing  *time.Timer // closes the legacies
	closed   bool        // no informer keeps what was lost for handlers that are added later
}

// add notes a new informer of a kind, nil for one that is not the fleet's own. It takes over the legacy of those in the
// engagement before.
func (is *informers) add(key informerKey, i *informer) {
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.of == nil {
		is.of = map[informerKey][]*informer{}
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

func (is *informers) remove(key informerKey) {
	is.mu.Lock()
	defer is.mu.Unlock()
	delete(is.of, key)
}

func (is *informers) kinds() []informerKey {
	is.mu.Lock()
	defer is.mu.Unlock()
	return slices.Collect(maps.Keys(is.of))
}

func (is *informers) all() []*informer {
	is.mu.Lock()
	defer is.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Values(is.of))...)
}

// legacy is what the informers of a kind leave to those of the engagement that takes their place. Its controllers are
// told of the objects that are there now. Those that went in between are known to the old informers alone: they are told
// as deleted, to each handler that is added within legacyLasts.
type legacy struct {
	mu     sync.Mutex // guards what follows
	before []*informer
	most   int // how many informers take the place
	heirs  []*informer
	open   bool // the old engagement is over
}

// legacyLasts is how long handlers may be added after a replacement. Sources add theirs at once.
const legacyLasts = time.Minute

func (l *legacy) add(i *informer, keeps bool) {
	i.mu.Lock()
	i.legacy = l
	if keeps {
		i.lost = map[string]any{}
	}
	i.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heirs = append(l.heirs, i)
}

// settle finds what was lost, once the old engagement is over and every new informer has its list.
func (l *legacy) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	synced := func(i *informer) bool { return i.HasSynced() }
	if !l.open || len(l.heirs) < l.most || !all(l.heirs, synced) || len(l.heirs) == 0 {
		return
	}
	lost := map[string]any{}
	for _, i := range l.before {
		i.collect(lost)
	}
	for _, heir := range l.heirs {
		for _, key := range heir.indexer.ListKeys() {
			delete(lost, key)
		}
	}
	l.before, l.open = nil, false
	l.heirs[0].inherit(lost)
}

func all[T any](items []T, is func(T) bool) bool {
	return !slices.ContainsFunc(items, func(item T) bool { return !is(item) })
}

// collect adds the objects that the informer has, or has lost since keepLost.
func (i *informer) collect(into map[string]any) {
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
func (i *informer) inherit(lost map[string]any) {
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

// lostLocked notes that an object is gone.
func (i *informer) lostLocked(obj any) {
	if i.lost == nil {
		return
	}
	if key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		i.lost[key] = obj
	}
}

// foundLocked notes that an object is there.
func (i *informer) foundLocked(obj any) {
	if len(i.lost) == 0 {
		return
	}
	if key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		delete(i.lost, key)
	}
}

// keepLost makes the informers of an engagement keep what goes from now on, with what went and was not told yet. It does
// nothing for a nil engagement.
func (e *Engagement) keepLost() {
	if e == nil {
		return
	}
	for _, i := range e.informers.all() {
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

// dropLost ends keepLost.
func (e *Engagement) dropLost() {
	if e == nil {
		return
	}
	for _, i := range e.informers.all() {
		i.mu.Lock()
		i.lost = nil
		i.mu.Unlock()
	}
}

// inherit prepares an engagement to take the place of one before, which may be nil. Another cluster leaves nothing.
func (e *Engagement) inherit(before *Engagement) {
	if before == nil || before.identity != e.identity {
		return
	}
	before.informers.mu.Lock()
	defer before.informers.mu.Unlock()
	e.informers.legacies = make(map[informerKey]*legacy, len(before.informers.of))
	for key, old := range before.informers.of {
		l := &legacy{before: slices.Clone(old), most: len(old)}
		if unsettled := before.informers.legacies[key]; unsettled != nil {
			l.before = append(l.before, unsettled.left()...)
		}
		e.informers.legacies[key] = l
	}
}

// left returns the informers whose legacy has not been settled.
func (l *legacy) left() []*informer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.before
}

// openLegacies tells that the engagement has taken the place of the one before.
func (e *Engagement) openLegacies() {
	e.informers.mu.Lock()
	defer e.informers.mu.Unlock()
	if e.informers.legacies == nil {
		return
	}
	for _, l := range e.informers.legacies {
		l.mu.Lock()
		l.open = true
		l.mu.Unlock()
		l.settle()
	}
	e.informers.closing = time.AfterFunc(legacyLasts, e.closeLegacies)
	context.AfterFunc(e.ctx, func() { e.informers.closing.Stop() })
}

// closeLegacies ends that handlers are told what was lost before they were added. A legacy that is not settled yet is told
// to the handlers that there are then.
func (e *Engagement) closeLegacies() {
	e.informers.mu.Lock()
	e.informers.closed = true
	maps.DeleteFunc(e.informers.legacies, func(_ informerKey, l *legacy) bool { return len(l.left()) == 0 })
	e.informers.mu.Unlock()
	e.dropLost()
}

// syncTimeout bounds the time for which an engagement waits for its caches while the one before goes on.
const syncTimeout = time.Minute

// syncBeside fills the caches of a new engagement with the kinds that the one before has, so that readers miss nothing
// when it takes its place. A kind that cannot be listed is not waited for.
func (e *Engagement) syncBeside(ctx context.Context, before *Engagement) {
	if before == nil || e.wire == nil {
		return
	}
	c, ok := e.cluster.GetCache().(*candidCache)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	var syncing sync.WaitGroup
	for _, key := range before.informers.kinds() {
		syncing.Go(func() { c.sync(ctx, key) })
	}
	syncing.Wait()
}
