package mcsource

import (
	"context"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

type eventHandler[object any, request comparable] = handler.TypedEventHandler[object, request]

// engagedCache is a view of a cache for one source and one engagement. controller-runtime's kind source never removes
// its handler from the informer, so a cache that outlives the engagement would keep it for ever; the view removes it,
// and lets no event through after ctx ended.
type engagedCache struct {
	cache.Cache
	ctx context.Context //nolint:containedctx // the life of the view

	mu       sync.Mutex // guards handlers, and orders add after the end
	handlers sync.WaitGroup
	ended    bool
}

func newEngagedCache(ctx context.Context, c cache.Cache) *engagedCache {
	return &engagedCache{Cache: c, ctx: ctx}
}

// awaiting is a cache that knows when a kind that it cannot hold yet, such as one whose CRD is not installed, is to be asked
// for again. Those that the fleet makes are.
type awaiting interface {
	AwaitInformer(ctx context.Context, obj client.Object) (cache.Informer, error)
}

// GetInformer returns the informer as soon as it is there, synced or not.
func (c *engagedCache) GetInformer(ctx context.Context, obj client.Object, _ ...cache.InformerGetOption) (informer cache.Informer, err error) {
	if await, ok := c.Cache.(awaiting); ok {
		informer, err = await.AwaitInformer(ctx, obj)
	} else {
		informer, err = c.Cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	}
	if err != nil {
		return nil, err
	}
	return &engagedInformer{Informer: informer, view: c}, nil
}

// WaitForCacheSync does not wait: a member that does not sync must not hold up anything, and the informers of other
// sources are no business of this one.
func (c *engagedCache) WaitForCacheSync(context.Context) bool { return true }

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

// engagedInformer registers handlers for as long as the view lasts.
type engagedInformer struct {
	cache.Informer
	view *engagedCache
}

// AddEventHandlerWithOptions implements cache.Informer. It is the one that the kind source calls.
func (i *engagedInformer) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, opts toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	if !i.view.begin() {
		return nil, context.Cause(i.view.ctx)
	}
	gate := &gate{handler: h}
	registration, err := i.Informer.AddEventHandlerWithOptions(gate, opts)
	if err != nil {
		i.view.handlers.Done()
		return nil, err
	}
	context.AfterFunc(i.view.ctx, func() {
		defer i.view.handlers.Done()
		gate.close()
		_ = i.RemoveEventHandler(registration) // it fails only for a handler that is gone already
	})
	return followed{registration}, nil
}

// followed is a registration that claims to be synced. The kind source would look at it ten times a second until it is,
// for as long as a member cannot be listed, and nothing waits for the answer.
type followed struct {
	toolscache.ResourceEventHandlerRegistration
}

// HasSynced implements ResourceEventHandlerRegistration.
func (followed) HasSynced() bool { return true }

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
