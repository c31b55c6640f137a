// Package informer contains the shared informers of members, and what those of an ended engagement leave to the next.
package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/fleet-runtime/fleet-runtime/internal/delivery"
)

// Informer is a shared informer that costs little while nothing happens: a fleet has one or more for each member. The
// reflector, which lists and watches, and the indexed store are client-go's. client-go's own informer puts a queue between
// them, and between the store and each handler another, of 16 KB: five goroutines that mostly wait. Here the reflector
// writes into the store, and a handler has a goroutine only while there are events for it, and for a moment after.
//
// Events reach a handler in order, one at a time, and no handler waits for another. A handler that is added late is told
// what the store has, and nothing twice.
type Informer struct {
	reflector atomic.Pointer[func() *toolscache.Reflector] // nil once it has ended
	indexer   toolscache.Indexer
	transform atomic.Pointer[toolscache.TransformFunc]
	synced    atomic.Bool   // the store has the first list
	settled   chan struct{} // closed when it is synced, or never will be

	log klog.Logger

	mu       sync.Mutex // guards what follows, and makes one step of a change to the store and its events
	legacy   *legacy    // nil for an informer that takes nobody's place
	started  bool
	stopped  bool
	cancel   context.CancelFunc // ends what runs, nil while nothing does
	handlers map[*delivery.Registration]struct{}
	// lost has the objects that are gone and of which a handler may not have heard, by key; see legacy. Nil while none are
	// kept.
	lost map[string]any
	// running has the goroutines that deliver events. None is added once stopped is set.
	running sync.WaitGroup
}

var _ toolscache.SharedIndexInformer = (*Informer)(nil)

// New returns an informer. resync is the period of the resyncs of all its handlers, and zero for none.
func New(
	lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	i := &Informer{
		log:      klog.Background(),
		indexer:  toolscache.NewIndexer(toolscache.DeletionHandlingMetaNamespaceKeyFunc, indexers),
		settled:  make(chan struct{}),
		handlers: map[*delivery.Registration]struct{}{},
	}
	reflector := sync.OnceValue(func() *toolscache.Reflector {
		return toolscache.NewReflectorWithOptions(lw, obj, intake{i}, toolscache.ReflectorOptions{ResyncPeriod: resync})
	})
	i.reflector.Store(&reflector)
	return i
}

// Run implements SharedInformer.
func (i *Informer) Run(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	var stopping sync.WaitGroup
	defer stopping.Wait()
	defer cancel()
	stopping.Go(func() {
		defer cancel()
		select {
		case <-stop:
		case <-ctx.Done():
		}
	})
	i.RunWithContext(ctx)
}

// RunWithContext implements SharedInformer. It returns when the last event has been handled.
func (i *Informer) RunWithContext(ctx context.Context) {
	// The reflector derives contexts from this one all the time. Each would cost a goroutine if this one were not a
	// context of the standard library.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !i.start(cancel) {
		klog.FromContext(ctx).Info("Cannot run an informer again")
		return
	}
	(*i.reflector.Load())().RunWithContext(ctx)
	i.stop()
}

func (i *Informer) start(cancel context.CancelFunc) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	first := !i.started
	if first {
		i.started, i.cancel = true, cancel
	}
	return first
}

// Remove ends the informer, or keeps it from being run. It does not wait for the end.
func (i *Informer) Remove() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.started = true
	if i.cancel != nil {
		i.cancel()
	} else {
		i.settleLocked()
	}
}

// retire ends informers to which no handler is added, and keeps any from being added: all of them, or none.
func retire(informers []*Informer) bool {
	for _, i := range informers {
		i.mu.Lock()
		defer i.mu.Unlock()
	}
	if slices.ContainsFunc(informers, func(i *Informer) bool { return len(i.handlers) > 0 }) {
		return false
	}
	for _, i := range informers {
		i.stopped = true
	}
	return true
}

func (i *Informer) stop() {
	i.mu.Lock()
	i.stopped = true
	i.settleLocked()
	for l := range i.handlers {
		l.Remove()
	}
	clear(i.handlers)
	// A legacy may keep the informer for long, and is not to keep the engagement with all its caches by it, nor the legacies before.
	i.cancel, i.legacy = nil, nil
	i.reflector.Store(nil)
	i.mu.Unlock()
	i.running.Wait()
}

// IsStopped implements SharedInformer.
func (i *Informer) IsStopped() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stopped
}

// HasSynced implements SharedInformer.
func (i *Informer) HasSynced() bool { return i.synced.Load() }

// HasSyncedChecker implements SharedInformer. It is done with an informer that has stopped, too: a cache that is limited to
// namespaces waits for it in a goroutine, which would keep an engagement that is over in memory.
func (i *Informer) HasSyncedChecker() toolscache.DoneChecker { return done{"informer", i.settled} }

func (i *Informer) settleLocked() {
	if !isClosed(i.settled) {
		close(i.settled)
	}
}

// LastSyncResourceVersion implements SharedInformer.
func (i *Informer) LastSyncResourceVersion() string {
	if reflector := i.reflector.Load(); reflector != nil {
		return (*reflector)().LastSyncResourceVersion()
	}
	return ""
}

// AddEventHandler implements SharedInformer.
func (i *Informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements SharedInformer; see AddEventHandlerWithOptions.
func (i *Informer) AddEventHandlerWithResyncPeriod(
	h toolscache.ResourceEventHandler, period time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &period})
}

// AddEventHandlerWithOptions implements SharedInformer. The handler is resynced in the period of the informer, whatever
// its own is, or not at all if its own is zero.
func (i *Informer) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, opts toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	l := delivery.New(h, ptr.Deref(opts.Logger, i.log), opts.ResyncPeriod == nil || *opts.ResyncPeriod != 0, i.running.Go)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return nil, errors.New("adding an event handler: the informer has stopped")
	}
	i.handlers[l] = struct{}{}
	for _, obj := range i.indexer.List() {
		l.Add(delivery.Event{What: delivery.Added, Obj: obj, Initial: true})
	}
	if i.HasSynced() {
		l.Listed()
	}
	for key, obj := range i.lost {
		l.Add(deletionMissed(key, obj))
	}
	return l, nil
}

// RemoveEventHandler implements SharedInformer. An event that is being handled goes on; no other begins.
func (i *Informer) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	l, ok := handle.(*delivery.Registration)
	if !ok {
		return fmt.Errorf("removing an event handler: %T is not one of this informer", handle)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, mine := i.handlers[l]; mine {
		delete(i.handlers, l)
		l.Remove()
	}
	return nil
}

// SetTransform implements SharedInformer. As with client-go's, the function must bear being called for an object twice.
func (i *Informer) SetTransform(transform toolscache.TransformFunc) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.started {
		return errors.New("setting a transform: the informer has started")
	}
	if transform != nil {
		i.transform.Store(&transform)
	}
	return nil
}

// SetWatchErrorHandler implements SharedInformer. A cache with such a handler gets client-go's informer.
func (i *Informer) SetWatchErrorHandler(toolscache.WatchErrorHandler) error {
	return errors.New("a watch error handler must be set in the options of the cluster's cache")
}

// SetWatchErrorHandlerWithContext implements SharedInformer.
func (i *Informer) SetWatchErrorHandlerWithContext(toolscache.WatchErrorHandlerWithContext) error {
	return i.SetWatchErrorHandler(nil)
}

// AddIndexers implements SharedIndexInformer.
func (i *Informer) AddIndexers(indexers toolscache.Indexers) error {
	if i.IsStopped() {
		return errors.New("adding indexers: the informer has stopped")
	}
	return i.indexer.AddIndexers(indexers)
}

// GetIndexer implements SharedIndexInformer.
func (i *Informer) GetIndexer() toolscache.Indexer { return i.indexer }

// GetStore implements SharedInformer.
func (i *Informer) GetStore() toolscache.Store { return i.indexer }

// GetController implements SharedInformer.
func (i *Informer) GetController() toolscache.Controller { return i }
