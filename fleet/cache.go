package fleet

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/informer"
	"github.com/fleet-runtime/fleet-runtime/internal/pulse"
)

// candidCache is a member's cache that says so when a kind cannot be listed. controller-runtime's would have the reader
// wait until it can be, and hold a worker as long.
type candidCache struct {
	cache.Cache
	scheme    *runtime.Scheme
	name      ClusterName
	kinds     *kinds
	informers *informer.Set
	// synced has the informers that have served a read: they serve every later one at once.
	synced sync.Map // of informer.Key
}

// Get implements client.Reader.
func (c *candidCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.read(ctx, obj, func(ctx context.Context) error { return c.Cache.Get(ctx, key, obj, opts...) })
}

// List implements client.Reader.
func (c *candidCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.read(ctx, list, func(ctx context.Context) error { return c.Cache.List(ctx, list, opts...) })
}

// GetInformer implements cache.Informers.
func (c *candidCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	found, err := c.Cache.GetInformer(ctx, obj, opts...)
	if key, unknown := c.keyOf(obj); unknown == nil && ctx.Err() == nil {
		c.kinds.report(key.GVK, key, err)
	}
	return found, err
}

// RemoveInformer implements cache.Informers.
func (c *candidCache) RemoveInformer(ctx context.Context, obj client.Object) error {
	if key, err := c.keyOf(obj); err == nil {
		c.synced.Delete(key)
		c.informers.Remove(key)
	}
	return c.Cache.RemoveInformer(ctx, obj)
}

// sync waits until a kind is in the cache, or is found to fail.
func (c *candidCache) sync(ctx context.Context, key informer.Key) {
	obj, err := key.Object(c.scheme)
	if err != nil {
		return
	}
	_ = c.read(ctx, obj, func(ctx context.Context) error {
		_, err := c.Cache.GetInformer(ctx, obj)
		return err
	})
}

// read reads, and gives up waiting for the informer as soon as its kind is found to fail.
func (c *candidCache) read(ctx context.Context, obj runtime.Object, do func(context.Context) error) error {
	key, err := c.keyOf(obj)
	if err != nil {
		return err
	}
	if _, ok := c.synced.Load(key); ok {
		return do(ctx)
	}
	begins, failure := c.kinds.check(key.GVK)
	if failure != nil {
		return c.notSynced(key.GVK, failure)
	}
	reconcile := pulse.From(ctx)
	reconcile.Wait(string(c.name))
	defer reconcile.Heard(string(c.name))
	reading, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- do(reading) }()
	select {
	case err = <-done:
	case <-begins:
		stop()
		err = <-done // only then is the object the caller's again
		if _, failure = c.kinds.check(key.GVK); failure != nil {
			return c.notSynced(key.GVK, failure)
		}
	}
	if err == nil || apierrors.IsNotFound(err) {
		c.synced.Store(key, struct{}{})
	}
	return err
}

func (c *candidCache) keyOf(obj runtime.Object) (informer.Key, error) {
	return informer.KeyOf(obj, c.scheme)
}

func (c *candidCache) notSynced(gvk schema.GroupVersionKind, why error) error {
	return &notSyncedError{cluster: c.name, kind: gvk.GroupKind(), why: why}
}

// notSyncedError says that a kind cannot be read from a member's cache. It is an [ErrNotReady].
type notSyncedError struct {
	cluster ClusterName
	kind    schema.GroupKind
	why     error
}

func (e *notSyncedError) Error() string {
	return fmt.Sprintf("reading %s of cluster %q: %v: %v", e.kind, e.cluster, ErrNotReady, e.why)
}

// Is makes it an ErrNotReady.
func (*notSyncedError) Is(target error) bool { return target == ErrNotReady }

// Unwrap returns why the kind is not synced.
func (e *notSyncedError) Unwrap() error { return e.why }
