package namespaces

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/delivery"
)

// confinedCache is the shared cache as a member sees it.
type confinedCache struct{ confinedReader }

var _ cache.Cache = confinedCache{}

// GetInformer implements cache.Informers.
func (c confinedCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	f, err := c.member.shared.feedOf(ctx, obj)
	if err != nil {
		return nil, err
	}
	o := cache.InformerGetOptions{}
	for _, apply := range opts {
		apply(&o)
	}
	if o.BlockUntilSynced == nil || *o.BlockUntilSynced {
		select {
		case <-f.informer.HasSyncedChecker().Done():
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the informer of %T to sync: %w", obj, context.Cause(ctx))
		}
	}
	zone := c.member.namespace
	if f.scope == clusterWide {
		zone = ""
	}
	return confinedInformer{feed: f, zone: zone, log: c.member.shared.log.WithValues("cluster", c.member.namespace)}, nil
}

// GetInformerForKind implements cache.Informers.
func (c confinedCache) GetInformerForKind(
	ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	made, err := c.member.GetScheme().New(gvk)
	if err != nil {
		return nil, err
	}
	obj, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%s is no kind of object", gvk)
	}
	return c.GetInformer(ctx, obj, opts...)
}

// RemoveInformer implements cache.Informers. It always fails.
func (c confinedCache) RemoveInformer(_ context.Context, obj client.Object) error {
	return fmt.Errorf("removing the informer of %T through the member %q: all members use it", obj, c.member.namespace)
}

// Start implements cache.Informers. The shared cache runs already, so it only waits for the end of ctx.
func (c confinedCache) Start(ctx context.Context) error { return c.member.Start(ctx) }

// WaitForCacheSync implements cache.Informers. It waits for the informers of all members.
func (c confinedCache) WaitForCacheSync(ctx context.Context) bool {
	return c.member.shared.cluster.GetCache().WaitForCacheSync(ctx)
}

// IndexField implements client.FieldIndexer.
func (c confinedCache) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	return c.member.shared.IndexField(ctx, obj, field, extract)
}

// confinedInformer is a feed as a member sees it. It names every method of an informer, so that a new one does not compile.
type confinedInformer struct {
	feed *feed
	zone string
	log  logr.Logger // of handlers that have none
}

var _ cache.Informer = confinedInformer{}

// AddEventHandler implements cache.Informer.
func (i confinedInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.feed.add(i.zone, h, i.log)
}

// AddEventHandlerWithResyncPeriod implements cache.Informer. Handlers are resynced as the shared cache is, whatever the
// period.
func (i confinedInformer) AddEventHandlerWithResyncPeriod(
	h toolscache.ResourceEventHandler, _ time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.feed.add(i.zone, h, i.log)
}

// AddEventHandlerWithOptions implements cache.Informer. Handlers are resynced as the shared cache is, whatever the
// options say of that.
func (i confinedInformer) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, opts toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.feed.add(i.zone, h, ptr.Deref(opts.Logger, i.log))
}

// RemoveEventHandler implements cache.Informer.
func (i confinedInformer) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*delivery.Registration)
	if !ok {
		return fmt.Errorf("removing an event handler: %T is not one of this informer", handle)
	}
	i.feed.remove(i.zone, r)
	return nil
}

// AddIndexers implements cache.Informer. It always fails.
func (i confinedInformer) AddIndexers(toolscache.Indexers) error {
	return errors.New("adding indexers to the informer of all members: use IndexField of the fleet")
}

// HasSynced implements cache.Informer.
func (i confinedInformer) HasSynced() bool { return i.feed.informer.HasSynced() }

// HasSyncedChecker implements cache.Informer.
func (i confinedInformer) HasSyncedChecker() toolscache.DoneChecker {
	return i.feed.informer.HasSyncedChecker()
}

// IsStopped implements cache.Informer.
func (i confinedInformer) IsStopped() bool { return i.feed.informer.IsStopped() }
