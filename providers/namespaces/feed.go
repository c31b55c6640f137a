package namespaces

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/fleet-runtime/fleet-runtime/internal/delivery"
)

// feed hands the events of one kind to the handlers of the members. To the shared informer it is a single handler,
// however many members there are, and an event costs no more than the handlers in its namespace.
type feed struct {
	informer cache.Informer
	scope    scope

	mu       sync.Mutex // guards what follows; no handler is called under it
	closed   bool
	complete bool // the initial list was handed over
	zones    map[string]*zone
	own      toolscache.ResourceEventHandlerRegistration // at the informer
	// running has the goroutines that deliver events. None is added once closed is set.
	running sync.WaitGroup
}

var _ toolscache.ResourceEventHandler = (*feed)(nil)

// zone is a namespace; for kinds without, there is one zone, named "". A Namespace is in itself.
type zone struct {
	objects  map[string]any // by name, as the handlers were told last: what a handler that comes later is told first
	handlers map[*delivery.Registration]struct{}
}

// open registers the feed at the informer.
func (f *feed) open(ctx context.Context) error {
	own, err := f.informer.AddEventHandler(f)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		_ = f.informer.RemoveEventHandler(own)
		return errClosed
	}
	f.own = own
	f.running.Go(func() {
		select {
		case <-own.HasSyncedChecker().Done():
			f.listed()
		case <-ctx.Done():
		}
	})
	return nil
}

// close removes all handlers, and returns when none runs any more. The context of open has ended.
func (f *feed) close() {
	f.mu.Lock()
	f.closed = true
	for _, p := range f.zones {
		for l := range p.handlers {
			l.Remove()
		}
	}
	clear(f.zones)
	own := f.own
	f.mu.Unlock()
	if own != nil {
		_ = f.informer.RemoveEventHandler(own) // it fails only for a handler that is gone already
	}
	f.running.Wait()
}

// add registers a handler of a member. It is told first what there is. A panic of it is logged to log.
func (f *feed) add(where string, h toolscache.ResourceEventHandler, log logr.Logger) (toolscache.ResourceEventHandlerRegistration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errClosed
	}
	l := delivery.New(h, log, true, f.running.Go)
	p := f.zoneLocked(where)
	if p.handlers == nil {
		p.handlers = map[*delivery.Registration]struct{}{}
	}
	p.handlers[l] = struct{}{}
	for _, obj := range p.objects {
		l.Add(delivery.Event{What: delivery.Added, Obj: obj, Initial: true})
	}
	if f.complete {
		l.Listed()
	}
	return l, nil
}

// remove removes a handler. A call to it that runs goes on; no other begins.
func (f *feed) remove(where string, l *delivery.Registration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l.Remove()
	if p := f.zones[where]; p != nil {
		delete(p.handlers, l)
		f.tidyLocked(where, p)
	}
}

// OnAdd implements toolscache.ResourceEventHandler.
func (f *feed) OnAdd(obj any, isInInitialList bool) {
	f.distribute(delivery.Event{What: delivery.Added, Obj: obj, Initial: isInInitialList})
}

// OnUpdate implements toolscache.ResourceEventHandler.
func (f *feed) OnUpdate(before, after any) {
	f.distribute(delivery.Event{What: delivery.Updated, Old: before, Obj: after})
}

// OnDelete implements toolscache.ResourceEventHandler.
func (f *feed) OnDelete(obj any) { f.distribute(delivery.Event{What: delivery.Deleted, Obj: obj}) }

// distribute notes what became of an object, and tells the handlers of its zone.
func (f *feed) distribute(e delivery.Event) {
	key, err := toolscache.DeletionHandlingObjectToName(e.Obj)
	if err != nil {
		return // informers have objects alone
	}
	where := key.Namespace
	if f.scope == itself {
		where = key.Name
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	p := f.zoneLocked(where)
	if e.What == delivery.Deleted {
		delete(p.objects, key.Name)
	} else {
		if p.objects == nil {
			p.objects = map[string]any{}
		}
		p.objects[key.Name] = e.Obj
	}
	for l := range p.handlers {
		l.Add(e)
	}
	f.tidyLocked(where, p)
}

// listed notes that the informer has handed over what there was at first.
func (f *feed) listed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.complete = true
	for _, p := range f.zones {
		for l := range p.handlers {
			l.Listed()
		}
	}
}

func (f *feed) zoneLocked(where string) *zone {
	p := f.zones[where]
	if p == nil {
		p = &zone{}
		f.zones[where] = p
	}
	return p
}

// tidyLocked forgets a zone that has nothing.
func (f *feed) tidyLocked(where string, p *zone) {
	if len(p.objects) == 0 && len(p.handlers) == 0 {
		delete(f.zones, where)
	}
}
