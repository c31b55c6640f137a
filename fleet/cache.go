package fleet

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/informer"
)

// candidCache is a member's cache that says so when a kind cannot be listed. controller-runtime's would have the reader
// wait until it can be, and hold a worker as long. What is known of kinds is for [kinds] to say.
//
// It names every method of a cache, so that a new one does not go round it: it does not compile then.
type candidCache struct {
	cache     cache.Cache
	scheme    *runtime.Scheme
	mapper    meta.RESTMapper
	kinds     *kinds
	informers *informer.Set
	// explicit is set if reading a kind does not make its informer: [cache.Options.ReaderFailOnMissingInformer].
	explicit bool
}

var _ cache.Cache = (*candidCache)(nil)

// Start implements cache.Informers.
func (c *candidCache) Start(ctx context.Context) error { return c.cache.Start(ctx) }

// WaitForCacheSync implements cache.Informers.
func (c *candidCache) WaitForCacheSync(ctx context.Context) bool {
	return c.cache.WaitForCacheSync(ctx)
}

// Get implements client.Reader.
func (c *candidCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.read(ctx, obj, nil, func(ctx context.Context) error { return c.cache.Get(ctx, key, obj, opts...) })
}

// List implements client.Reader.
func (c *candidCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	by := fieldsOf(opts)
	err := c.read(ctx, list, by, func(ctx context.Context) error { return c.cache.List(ctx, list, opts...) })
	if err == nil || len(by) == 0 || ctx.Err() != nil {
		return err
	}
	return c.kinds.explain(list, c.scheme, by, err)
}

// fieldsOf returns the fields by which a list selects what an index has.
func fieldsOf(opts []client.ListOption) []string {
	if len(opts) == 0 {
		return nil
	}
	var o client.ListOptions
	o.ApplyOptions(opts)
	if o.FieldSelector == nil {
		return nil
	}
	var by []string
	for _, r := range o.FieldSelector.Requirements() {
		if !isExact(r) {
			return nil // which no cache can do
		}
		by = append(by, r.Field)
	}
	return by
}

func isExact(r fields.Requirement) bool {
	return r.Operator == selection.Equals || r.Operator == selection.DoubleEquals
}

// GetInformer implements cache.Informers.
func (c *candidCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	key, err := informer.KeyOf(obj, c.scheme)
	if err != nil {
		return nil, err
	}
	if err := c.kinds.ensure(ctx, key); err != nil {
		return nil, err
	}
	return c.cache.GetInformer(ctx, obj, opts...)
}

// GetInformerForKind implements cache.Informers.
func (c *candidCache) GetInformerForKind(
	ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	made, err := c.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	obj, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", made)
	}
	return c.GetInformer(ctx, obj, opts...)
}

// AwaitInformer returns the informer of a kind as soon as there is one, synced or not. It waits as long as the member does
// not serve the kind, such as one whose CRD is not installed.
func (c *candidCache) AwaitInformer(ctx context.Context, obj client.Object) (cache.Informer, error) {
	key, err := informer.KeyOf(obj, c.scheme)
	if err != nil {
		return nil, err
	}
	defer c.kinds.beginWaiting(key)() // until it has the informer, which is not released under it
	if err := c.kinds.await(ctx, key); err != nil {
		return nil, err
	}
	return c.cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
}

// RemoveInformer implements cache.Informers.
func (c *candidCache) RemoveInformer(ctx context.Context, obj client.Object) error {
	key, err := informer.KeyOf(obj, c.scheme)
	if err != nil {
		return err
	}
	return c.kinds.remove(ctx, key, func() error {
		return c.informers.Forget(key, func() error { return c.cache.RemoveInformer(ctx, obj) })
	})
}

// ReleaseInformer removes the informer of a kind, unless it has a handler, or the kind was read since this was last called: then
// somebody uses it.
func (c *candidCache) ReleaseInformer(_ context.Context, obj client.Object) (released bool, err error) {
	key, err := informer.KeyOf(obj, c.scheme)
	if err != nil {
		return false, err
	}
	return c.kinds.release(key, func() bool { return c.informers.Retire(key) }, func() error {
		err := c.informers.Forget(key, func() error { return c.cache.RemoveInformer(c.kinds.ctx, obj) })
		if err != nil {
			c.informers.Restore(key)
		}
		return err
	})
}

// IndexField implements client.FieldIndexer. Indexes of all members are the fleet's: [Fleet.IndexField].
func (c *candidCache) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	key, err := informer.KeyOf(obj, c.scheme)
	if err != nil {
		return err
	}
	if err := c.kinds.ensure(ctx, key); err != nil {
		return err
	}
	return c.cache.IndexField(ctx, obj, field, extract)
}

// read reads a kind that can be read, or says why it cannot.
func (c *candidCache) read(ctx context.Context, obj runtime.Object, by []string, do func(context.Context) error) error {
	key, err := informer.KeyOf(obj, c.scheme)
	if err != nil {
		return err
	}
	if c.explicit && !c.kinds.knows(key) {
		return do(ctx)
	}
	if err := c.kinds.serve(ctx, key, by...); err != nil {
		return err
	}
	return do(ctx)
}

// open makes the informers of a kind. The cache would hold its lock, for which every reader waits, while it asks the server
// which resource the kind is: the mapper knows it then.
func (c *candidCache) open(ctx context.Context, key informer.Key) (cache.Informer, error) {
	obj, err := key.Object(c.scheme)
	if err != nil {
		return nil, err
	}
	if _, err := c.mapper.RESTMapping(key.GVK.GroupKind(), key.GVK.Version); err != nil {
		return nil, err
	}
	return c.cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
}
