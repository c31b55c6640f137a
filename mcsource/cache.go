package mcsource

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/internal/closed"
)

type eventHandler[object any, request comparable] = handler.TypedEventHandler[object, request]

// engagedCache is a view of a cache for one source and one engagement. controller-runtime's kind source never removes
// its handler from the informer, so a cache that outlives the engagement would keep it for ever; the view removes it,
// and lets no event through after ctx ended.
//
// It names every method of a cache but those that read, so that a new one does not go round the view: it does not compile then.
type engagedCache struct {
	client.Reader
	cache cache.Cache
	ctx   context.Context //nolint:containedctx // the life of the view

	mu       sync.Mutex // guards handlers, and orders add after the end
	handlers sync.WaitGroup
	ended    bool
	added    toolscache.ResourceEventHandlerRegistration // the handler of the source, nil before
	waiting  []chan struct{}                             // closed when it is added
}

var _ cache.Cache = (*engagedCache)(nil)

func newEngagedCache(ctx context.Context, c cache.Cache) *engagedCache {
	return &engagedCache{Reader: c, cache: c, ctx: ctx}
}

// awaiting is a cache that knows when a kind that it cannot hold yet, such as one whose CRD is not installed, is to be asked
// for again. Those that the fleet makes are.
type awaiting interface {
	AwaitInformer(ctx context.Context, obj client.Object) (cache.Informer, error)
}

// GetInformer returns the informer as soon as it is there, synced or not.
func (c *engagedCache) GetInformer(ctx context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	get := func(ctx context.Context) (cache.Informer, error) {
		if await, ok := c.cache.(awaiting); ok {
			return await.AwaitInformer(ctx, obj)
		}
		return c.cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	}
	informer, err := get(ctx)
	if err != nil {
		return nil, err
	}
	return &engagedInformer{informer: informer, view: c, another: get}, nil
}

// GetInformerForKind returns the informer as soon as it is there, synced or not.
func (c *engagedCache) GetInformerForKind(
	ctx context.Context, gvk schema.GroupVersionKind, _ ...cache.InformerGetOption,
) (cache.Informer, error) {
	informer, err := c.cache.GetInformerForKind(ctx, gvk, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	return &engagedInformer{informer: informer, view: c}, nil
}

// WaitForCacheSync does not wait: a member that does not sync must not hold up anything, and the informers of other
// sources are no business of this one.
func (c *engagedCache) WaitForCacheSync(context.Context) bool { return true }

// RemoveInformer implements cache.Informers.
func (c *engagedCache) RemoveInformer(ctx context.Context, obj client.Object) error {
	return c.cache.RemoveInformer(ctx, obj)
}

// IndexField implements client.FieldIndexer.
func (c *engagedCache) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	return c.cache.IndexField(ctx, obj, field, extract)
}

// Start implements cache.Informers. The cache is the fleet's to start.
func (c *engagedCache) Start(context.Context) error { return errViewStarted }

var errViewStarted = errors.New("a view of a cache is not started: the fleet starts the cache")

// begin notes a handler, unless the view has ended.
func (c *engagedCache) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.ctx.Err() != nil {
		return false
	}
	c.handlers.Add(1)
	return true
}

// wait returns when every handler has been removed and the last event has been handled. ctx has ended.
func (c *engagedCache) wait() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.handlers.Wait()
}

// engagedInformer registers handlers for as long as the view lasts, in whatever way they are added. It names every method of
// an informer, so that a new one does not go round the view: it does not compile then.
type engagedInformer struct {
	informer cache.Informer
	view     *engagedCache
	another  func(context.Context) (cache.Informer, error) // takes the place of one that was removed; may be nil
}

var _ cache.Informer = (*engagedInformer)(nil)

// AddEventHandler implements cache.Informer.
func (i *engagedInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i *engagedInformer) AddEventHandlerWithResyncPeriod(
	h toolscache.ResourceEventHandler, period time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &period})
}

// AddEventHandlerWithOptions implements cache.Informer. It adds the handler behind a gate, and removes it when the view ends. It
// is the one that the kind source calls, with a logger of its own, which names no cluster.
func (i *engagedInformer) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, opts toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	if !i.view.begin() {
		return nil, context.Cause(i.view.ctx)
	}
	gate := &gate{handler: h}
	logger := log.FromContext(i.view.ctx)
	opts.Logger = &logger
	registration, err := i.add(gate, opts)
	if err != nil {
		i.view.handlers.Done()
		return nil, err
	}
	context.AfterFunc(i.view.ctx, func() {
		defer i.view.handlers.Done()
		gate.close()
		_ = i.informer.RemoveEventHandler(registration) // it fails only for a handler that is gone already
	})
	i.view.has(registration)
	return followed{registration}, nil
}

// add adds a handler to the informer, or to the one that takes its place if it was removed this very moment.
func (i *engagedInformer) add(
	h toolscache.ResourceEventHandler, opts toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	for {
		registration, err := i.informer.AddEventHandlerWithOptions(h, opts)
		if err == nil || i.another == nil || !i.informer.IsStopped() {
			return registration, err
		}
		another, failed := i.another(i.view.ctx)
		if failed != nil || another == i.informer { // a cache that has stopped has the same one for ever
			return nil, cmp.Or(failed, err)
		}
		i.informer = another
		if _, is := i.view.cache.(awaiting); !is {
			i.another = nil // it may make another one for ever, also once it has stopped
		}
	}
}

// has notes the handler of the source.
func (c *engagedCache) has(registration toolscache.ResourceEventHandlerRegistration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.added = registration
	for _, waiting := range c.waiting {
		close(waiting)
	}
	c.waiting = nil
}

// sync waits until the handler of the source has had what there was at first.
func (c *engagedCache) sync(ctx context.Context) error {
	c.mu.Lock()
	added := make(chan struct{})
	if c.added == nil {
		c.waiting = append(c.waiting, added)
	} else {
		close(added)
	}
	c.mu.Unlock()
	select {
	case <-added:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-c.registration().HasSyncedChecker().Done():
		return context.Cause(c.ctx) // it is done as well when it was removed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *engagedCache) registration() toolscache.ResourceEventHandlerRegistration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.added
}

// RemoveEventHandler implements cache.Informer.
func (i *engagedInformer) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	if f, ok := handle.(followed); ok {
		handle = f.registration
	}
	return i.informer.RemoveEventHandler(handle)
}

// AddIndexers implements cache.Informer.
func (i *engagedInformer) AddIndexers(indexers toolscache.Indexers) error {
	return i.informer.AddIndexers(indexers)
}

// HasSynced implements cache.Informer.
func (i *engagedInformer) HasSynced() bool { return i.informer.HasSynced() }

// HasSyncedChecker implements cache.Informer.
func (i *engagedInformer) HasSyncedChecker() toolscache.DoneChecker {
	return i.informer.HasSyncedChecker()
}

// IsStopped implements cache.Informer.
func (i *engagedInformer) IsStopped() bool { return i.informer.IsStopped() }

// followed is a registration that claims to be synced, in every way in which it can be asked. The kind source would look at it
// ten times a second until it is, for as long as a member cannot be listed, and nothing waits for the answer.
type followed struct {
	registration toolscache.ResourceEventHandlerRegistration
}

var _ toolscache.ResourceEventHandlerRegistration = followed{}

// HasSynced implements ResourceEventHandlerRegistration.
func (followed) HasSynced() bool { return true }

// HasSyncedChecker implements ResourceEventHandlerRegistration.
func (f followed) HasSyncedChecker() toolscache.DoneChecker { return f }

// Name implements DoneChecker.
func (followed) Name() string { return "event handler of a member" }

// Done implements DoneChecker.
func (followed) Done() <-chan struct{} {
	return closed.Channel()
}

// gate lets events through to a handler until it is closed. After close has returned, none is being handled.
type gate struct {
	handler toolscache.ResourceEventHandler

	mu      sync.Mutex // guards closed, and orders begin before close
	closed  bool
	running sync.WaitGroup // the events that are being handled
}

func (g *gate) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.running.Add(1)
	}
	return !g.closed
}

func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.running.Wait()
}

// OnAdd implements toolscache.ResourceEventHandler.
func (g *gate) OnAdd(obj any, isInInitialList bool) {
	if g.begin() {
		defer g.running.Done()
		g.handler.OnAdd(obj, isInInitialList)
	}
}

// OnUpdate implements toolscache.ResourceEventHandler.
func (g *gate) OnUpdate(oldObj, newObj any) {
	if g.begin() {
		defer g.running.Done()
		g.handler.OnUpdate(oldObj, newObj)
	}
}

// OnDelete implements toolscache.ResourceEventHandler.
func (g *gate) OnDelete(obj any) {
	if g.begin() {
		defer g.running.Done()
		g.handler.OnDelete(obj)
	}
}
