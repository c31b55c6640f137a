package informer

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fleet-runtime/fleet-runtime/internal/delivery"
)

// intake is where an informer's reflector puts what it finds.
type intake struct{ *Informer }

var (
	_ toolscache.ReflectorStore         = intake{}
	_ toolscache.ReflectorBookmarkStore = intake{}
	_ toolscache.TransformingStore      = intake{}
)

// Transformer implements TransformingStore.
func (in intake) Transformer() toolscache.TransformFunc {
	if transform := in.transform.Load(); transform != nil {
		return *transform
	}
	return nil
}

func (in intake) transformed(obj any) (any, error) {
	if transform := in.Transformer(); transform != nil {
		return transform(obj)
	}
	return obj, nil
}

// Add implements ReflectorStore.
func (in intake) Add(obj any) error { return in.Update(obj) }

// Update implements ReflectorStore.
func (in intake) Update(obj any) error {
	obj, err := in.transformed(obj)
	if err != nil {
		return err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	n, err := in.newsLocked(obj)
	if err != nil {
		return err
	}
	if err := in.indexer.Update(obj); err != nil {
		return err
	}
	in.tellLocked(n)
	in.foundLocked(obj)
	return nil
}

// Delete implements ReflectorStore.
func (in intake) Delete(obj any) error {
	obj, err := in.transformed(obj)
	if err != nil {
		return err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if err := in.indexer.Delete(obj); err != nil {
		return err
	}
	in.tellLocked(delivery.Event{What: delivery.Deleted, Obj: obj})
	in.lostLocked(obj)
	return nil
}

// Replace implements ReflectorStore. It takes a whole list, the first one or one that was due after a watch broke off.
func (in intake) Replace(list []any, resourceVersion string) error {
	for at := range list {
		var err error
		if list[at], err = in.transformed(list[at]); err != nil {
			return err
		}
	}
	due, err := in.replace(list, resourceVersion)
	if due != nil {
		due.settle()
	}
	return err
}

// replace returns the legacy that may be settled now, nil if there is none.
func (in intake) replace(list []any, resourceVersion string) (due *legacy, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	news, err := in.differencesLocked(list)
	if err != nil {
		return nil, err
	}
	if err := in.indexer.Replace(list, resourceVersion); err != nil {
		return nil, err
	}
	first := !in.HasSynced()
	if first {
		in.synced.Store(true) // before a handler is told, which may look
		in.settleLocked()
	}
	for _, n := range news {
		in.tellLocked(n)
		if n.What == delivery.Deleted {
			in.lostLocked(n.Obj)
		} else {
			in.foundLocked(n.Obj)
		}
	}
	if first {
		for l := range in.handlers {
			l.Listed()
		}
		due = in.legacy
	}
	return due, nil
}

// differencesLocked returns what changes when the list takes the place of what is stored.
func (in intake) differencesLocked(list []any) ([]delivery.Event, error) {
	var gone, news []delivery.Event
	listed := make(map[string]struct{}, len(list))
	for _, obj := range list {
		key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj)
		if err != nil {
			return nil, err
		}
		listed[key] = struct{}{}
		n, err := in.newsLocked(obj)
		if err != nil {
			return nil, err
		}
		news = append(news, n)
	}
	for _, key := range in.indexer.ListKeys() {
		if _, ok := listed[key]; ok {
			continue
		}
		last, _, err := in.indexer.GetByKey(key)
		if err != nil {
			return nil, err
		}
		gone = append(gone, delivery.Event{What: delivery.Deleted, Obj: toolscache.DeletedFinalStateUnknown{Key: key, Obj: last}})
	}
	return append(gone, news...), nil
}

// newsLocked returns what it means that obj is there. It is nothing if a new list has an object as it was. Its version
// alone does not tell: a cluster whose storage was restored from a backup counts the same versions once more.
func (in intake) newsLocked(obj any) (delivery.Event, error) {
	old, exists, err := in.indexer.Get(obj)
	switch {
	case err != nil:
		return delivery.Event{}, err
	case !exists:
		return delivery.Event{What: delivery.Added, Obj: obj, Initial: !in.HasSynced()}, nil
	case sameVersion(old, obj) && equality.Semantic.DeepEqual(old, obj):
		return delivery.Event{}, nil
	}
	return delivery.Event{What: delivery.Updated, Old: old, Obj: obj}, nil
}

func sameVersion(a, b any) bool {
	before, err := meta.Accessor(a)
	if err != nil {
		return false
	}
	after, err := meta.Accessor(b)
	return err == nil && before.GetResourceVersion() == after.GetResourceVersion()
}

// Bookmark implements ReflectorBookmarkStore.
func (in intake) Bookmark(resourceVersion string) error {
	in.indexer.Bookmark(resourceVersion)
	return nil
}

// Resync implements ReflectorStore.
func (in intake) Resync() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, obj := range in.indexer.List() {
		in.tellLocked(delivery.Event{What: delivery.Updated, Old: obj, Obj: obj, Resync: true})
	}
	return nil
}

func (in intake) tellLocked(n delivery.Event) {
	if n.What == delivery.Nothing {
		return
	}
	for l := range in.handlers {
		l.Add(n)
	}
}
