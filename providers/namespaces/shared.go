package namespaces

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// shared is what the members of one provider have in common: the cluster, and for each kind one feed and one of each
// index.
type shared struct {
	cluster cluster.Cluster
	log     logr.Logger
	ctx     context.Context //nolint:containedctx // the life of the provider
	cancel  context.CancelFunc

	feeds   memo[informerKey, *feed]
	indexes memo[indexKey, uintptr]

	mu     sync.Mutex // guards what follows
	closed bool
	opened []*feed
}

// informerKey tells informers apart as controller-runtime does, which has three for each kind.
type informerKey struct {
	gvk  schema.GroupVersionKind
	form string
}

type indexKey struct {
	informerKey
	field string
}

func newShared(ctx context.Context, cl cluster.Cluster) *shared {
	ctx, cancel := context.WithCancel(ctx)
	return &shared{cluster: cl, log: logf.FromContext(ctx), ctx: ctx, cancel: cancel}
}

// close removes every handler, and returns when none runs any more.
func (s *shared) close() {
	s.cancel()
	s.mu.Lock()
	s.closed = true
	opened := s.opened
	s.mu.Unlock()
	for _, f := range opened {
		f.close()
	}
}

// feedOf returns the feed of the kind of obj. It does not wait for it to sync.
func (s *shared) feedOf(ctx context.Context, obj client.Object) (*feed, error) {
	key, err := s.keyOf(obj)
	if err != nil {
		return nil, err
	}
	return s.feeds.get(ctx, key, func() (*feed, error) {
		where, err := s.scopeOfKind(key.gvk)
		if err != nil {
			return nil, err
		}
		informer, err := s.cluster.GetCache().GetInformer(s.ctx, obj, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		f := &feed{informer: informer, scope: where, zones: map[string]*zone{}}
		if err := s.keep(f); err != nil {
			return nil, err
		}
		return f, f.open(s.ctx)
	})
}

func (s *shared) keep(f *feed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.opened = append(s.opened, f)
	return nil
}

var errClosed = errors.New("the provider of the namespaces has ended")

// IndexField implements client.FieldIndexer. Every member asks for the same indexes of the one cache, which would refuse
// them after the first.
func (s *shared) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	key, err := s.keyOf(obj)
	if err != nil {
		return err
	}
	code := reflect.ValueOf(extract).Pointer()
	has, err := s.indexes.get(ctx, indexKey{key, field}, func() (uintptr, error) {
		return code, s.cluster.GetFieldIndexer().IndexField(s.ctx, obj, field, extract)
	})
	if err == nil && has != code {
		err = fmt.Errorf("indexing %s by %q: the members have an index of that name, of another function", key.gvk.GroupKind(), field)
	}
	return err
}

func (s *shared) keyOf(obj client.Object) (informerKey, error) {
	gvk, err := apiutil.GVKForObject(obj, s.cluster.GetScheme())
	if err != nil {
		return informerKey{}, err
	}
	switch obj.(type) {
	case runtime.Unstructured:
		return informerKey{gvk, "unstructured"}, nil
	case *metav1.PartialObjectMetadata:
		return informerKey{gvk, "metadata"}, nil
	default:
		return informerKey{gvk, "structured"}, nil
	}
}
