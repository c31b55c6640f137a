package fleet

import (
	"context"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// candidCache is a member's cache that says so when a kind cannot be listed. controller-runtime's would have the reader
// wait until it can be, and hold a worker as long.
type candidCache struct {
	cache.Cache
	scheme    *runtime.Scheme
	name      ClusterName
	kinds     *kinds
	informers *informers
	// synced has the informers that have served a read: they serve every later one at once.
	synced sync.Map // of informerKey
}

// informerKey tells informers apart as controller-runtime does, which has three for each kind.
type informerKey struct {
	gvk  schema.GroupVersionKind
	form string
}

// The forms that an object of a kind has in Go.
const (
	unstructuredForm = "unstructured"
	metadataForm     = "metadata"
	structuredForm   = "structured"
)

// object returns an empty object of the kind.
func (k informerKey) object(scheme *runtime.Scheme) (client.Object, error) {
	switch k.form {
	case unstructuredForm:
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(k.gvk)
		return obj, nil
	case metadataForm:
		obj := &metav1.PartialObjectMetadata{}
		obj.SetGroupVersionKind(k.gvk)
		return obj, nil
	}
	made, err := scheme.New(k.gvk)
	if err != nil {
		return nil, err
	}
	obj, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", made)
	}
	return obj, nil
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
	informer, err := c.Cache.GetInformer(ctx, obj, opts...)
	if key, unknown := c.keyOf(obj); unknown == nil && ctx.Err() == nil {
		c.kinds.report(key.gvk, key, err)
	}
	return informer, err
}

// RemoveInformer implements cache.Informers.
func (c *candidCache) RemoveInformer(ctx context.Context, obj client.Object) error {
	if key, err := c.keyOf(obj); err == nil {
		c.synced.Delete(key)
		c.informers.remove(key)
	}
	return c.Cache.RemoveInformer(ctx, obj)
}

// sync waits until a kind is in the cache, or is found to fail.
func (c *candidCache) sync(ctx context.Context, key informerKey) {
	obj, err := key.object(c.scheme)
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
	begins, failure := c.kinds.check(key.gvk)
	if failure != nil {
		return c.notSynced(key.gvk, failure)
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- do(reading) }()
	select {
	case err = <-done:
	case <-begins:
		stop()
		err = <-done // only then is the object the caller's again
		if _, failure = c.kinds.check(key.gvk); failure != nil {
			return c.notSynced(key.gvk, failure)
		}
	}
	if err == nil || apierrors.IsNotFound(err) {
		c.synced.Store(key, struct{}{})
	}
	return err
}

func (c *candidCache) keyOf(obj runtime.Object) (informerKey, error) { return keyOf(obj, c.scheme) }

func keyOf(obj runtime.Object, scheme *runtime.Scheme) (informerKey, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return informerKey{}, err
	}
	if _, isList := obj.(client.ObjectList); isList {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	switch obj.(type) {
	case runtime.Unstructured:
		return informerKey{gvk, unstructuredForm}, nil
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return informerKey{gvk, metadataForm}, nil
	default:
		return informerKey{gvk, structuredForm}, nil
	}
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
