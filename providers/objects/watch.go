package objects

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// scope says what one watch watches, and for which of the provider's objects a change matters.
type scope struct {
	object    client.Object
	selector  labels.Selector // nil for all
	namespace string          // metav1.NamespaceAll for all
	keys      func(obj client.Object) []client.ObjectKey
	trim      func(obj client.Object) // nil for nothing to take away
	packed    bool                    // the objects are seldom read, and only by their keys
}

// transform is what happens to each object before it is kept.
func (s scope) transform() toolscache.TransformFunc {
	strip := cache.TransformStripManagedFields()
	return func(obj any) (any, error) {
		if _, again := obj.(*kept); again { // informers may call it twice
			return obj, nil
		}
		if obj, ok := obj.(client.Object); ok && s.trim != nil {
			s.trim(obj)
		}
		obj, err := strip(obj)
		if obj, ok := obj.(client.Object); ok && s.packed && err == nil {
			return keep(obj), nil
		}
		return obj, err
	}
}

// handler passes on each key for which a change may matter, once. After an update these are the keys of the object as
// it was too.
func (s scope) handler(enqueue func(client.ObjectKey)) toolscache.ResourceEventHandler {
	changed := func(objs ...any) {
		var keys []client.ObjectKey
		for _, obj := range objs {
			if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if obj, ok := obj.(client.Object); ok {
				keys = append(keys, s.keys(obj)...)
			}
		}
		for i, key := range keys {
			if !slices.Contains(keys[:i], key) {
				enqueue(key)
			}
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { changed(obj) },
		UpdateFunc: func(before, after any) { changed(before, after) },
		DeleteFunc: func(obj any) { changed(obj) },
	}
}

// watch is one watch on the server, with its cache. The server sees the limits of the scope, so that a manager that may
// read only some namespaces needs no more.
type watch struct {
	kind      schema.GroupVersionKind
	namespace string
	cache     cache.Cache
	store     toolscache.Store                            // that of the cache, if the objects are packed
	handled   toolscache.ResourceEventHandlerRegistration // synced when what existed at first was handed to the scope
	refused   <-chan struct{}                             // closed at the first error
}

// open prepares a watch; nothing runs until its run is called.
func open(ctx context.Context, local cluster.Cluster, s scope, kind schema.GroupVersionKind, a answers, enqueue func(client.ObjectKey)) (*watch, error) {
	refused := make(chan struct{})
	refuse := sync.OnceFunc(func() { close(refused) })
	options := cache.Options{
		HTTPClient:           a.client(local.GetHTTPClient()),
		Scheme:               local.GetScheme(),
		Mapper:               local.GetRESTMapper(),
		DefaultLabelSelector: s.selector,
		DefaultTransform:     s.transform(),
		DefaultWatchErrorHandler: func(_ context.Context, _ *toolscache.Reflector, err error) {
			refuse()
			if ctx.Err() == nil {
				a.failed(err)
			}
		},
		ReaderFailOnMissingInformer: true,
	}
	if s.namespace != metav1.NamespaceAll {
		options.DefaultFieldSelector = fields.OneTermEqualSelector("metadata.namespace", s.namespace)
	}
	opened := &watch{kind: kind, namespace: s.namespace, refused: refused}
	if s.packed {
		options.NewInformer = opened.newInformer
	}
	c, err := cache.New(local.GetConfig(), options)
	if err != nil {
		return nil, err
	}
	informer, err := c.GetInformer(ctx, s.object)
	if err != nil {
		return nil, err
	}
	opened.cache = c
	opened.handled, err = informer.AddEventHandler(s.handler(enqueue))
	return opened, err
}

// newInformer returns client-go's informer, whose store is read here: a cache takes no packed objects out of it. No indexes are
// needed for that.
func (w *watch) newInformer(
	lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, _ toolscache.Indexers,
) toolscache.SharedIndexInformer {
	informer := toolscache.NewSharedIndexInformer(lw, obj, resync, toolscache.Indexers{})
	w.store = informer.GetStore()
	return informer
}

// get reads an object into obj, which is empty.
func (w *watch) get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if w.store == nil {
		return w.cache.Get(ctx, key, obj, opts...)
	}
	item, exists, err := w.store.GetByKey(toolscache.NewObjectName(key.Namespace, key.Name).String())
	switch item := item.(type) {
	case *kept:
		return item.into(obj, w.kind)
	case client.Object: // that could not be packed
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(item.DeepCopyObject()).Elem())
		return nil
	}
	if err == nil && !exists {
		err = apierrors.NewNotFound(schema.GroupResource{Group: w.kind.Group, Resource: w.kind.Kind}, key.Name)
	}
	return err
}

// openAll opens a watch for each scope. While a kind is not served or the server is away, that is a problem, and it tries
// again. It returns an error only when ctx is done.
func openAll(
	ctx context.Context, local cluster.Cluster, scopes []scope, troubles troubles, enqueue func(client.ObjectKey),
) ([]*watch, error) {
	delay := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 6, Cap: 30 * time.Second}.DelayFunc()
	opened := make([]*watch, 0, len(scopes))
	err := delay.Until(ctx, true, false, func(context.Context) (bool, error) {
		for _, s := range scopes[len(opened):] {
			kind, err := apiutil.GVKForObject(s.object, local.GetScheme())
			if err != nil {
				return false, err
			}
			a := answers{about: s.about(kind.Kind), troubles: troubles}
			w, err := open(ctx, local, s, kind, a, enqueue)
			if err != nil {
				a.failed(err)
				return false, nil
			}
			opened = append(opened, w)
		}
		return true, nil
	})
	return opened, err
}

// run watches until ctx is done.
func (w *watch) run(ctx context.Context) {
	if err := w.cache.Start(ctx); err != nil && ctx.Err() == nil {
		logf.FromContext(ctx).Error(err, "The watch has ended", "kind", w.kind.Kind, "namespace", w.namespace)
	}
}

// waitForAnswer returns when what existed at first was handed over, or when the server has refused.
func (w *watch) waitForAnswer(ctx context.Context) {
	select {
	case <-w.handled.HasSyncedChecker().Done():
	case <-w.refused:
	case <-ctx.Done():
	}
}

// watches reads from the caches of several watches.
type watches struct {
	scheme *runtime.Scheme
	open   []*watch
}

var _ Reader = watches{}

// errNotListed says that the server has not answered yet, or has refused to. The problem of the watch says more.
var errNotListed = errors.New("not all objects of the kind are listed yet")

// asked is a Reader that notes whether it could not answer yet. It is for one call of Members.
type asked struct {
	Reader
	tooEarly atomic.Bool
}

// Get implements [Reader].
func (a *asked) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return a.note(a.Reader.Get(ctx, key, obj, opts...))
}

// List implements [Reader].
func (a *asked) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return a.note(a.Reader.List(ctx, list, opts...))
}

func (a *asked) note(err error) error {
	if errors.Is(err, errNotListed) {
		a.tooEarly.Store(true)
	}
	return err
}

// Get implements [Reader]. If several caches have the object, any of their copies serves: each cache that gets a newer
// one has the object looked at again.
func (ws watches) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	kind, err := apiutil.GVKForObject(obj, ws.scheme)
	if err != nil {
		return err
	}
	missing := fmt.Errorf("%s %s is not among what the provider watches", kind.Kind, key)
	listed := true
	for _, w := range ws.open {
		if w.kind != kind || (w.namespace != metav1.NamespaceAll && w.namespace != key.Namespace) {
			continue
		}
		// Reading from a cache that is not filled yet would wait for it.
		if !w.handled.HasSynced() {
			listed = false
			continue
		}
		if missing = w.get(ctx, key, obj, opts...); !apierrors.IsNotFound(missing) {
			return missing
		}
	}
	if !listed {
		return fmt.Errorf("%s %s is not known: %w", kind.Kind, key, errNotListed)
	}
	return missing
}

// List implements [Reader] for kinds that have one watch in the namespace, as those of [Also] do.
func (ws watches) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	kind, err := apiutil.GVKForObject(list, ws.scheme)
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	options := (&client.ListOptions{}).ApplyOptions(opts)
	for _, w := range ws.open {
		switch {
		case w.kind != kind || (w.namespace != metav1.NamespaceAll && w.namespace != options.Namespace):
			continue
		case !w.handled.HasSynced(): // reading would wait for that
			return fmt.Errorf("objects of kind %s in namespace %q are not known: %w", kind.Kind, options.Namespace, errNotListed)
		}
		return w.cache.List(ctx, list, opts...)
	}
	return fmt.Errorf("objects of kind %s in namespace %q are not among what the provider watches", kind.Kind, options.Namespace)
}
