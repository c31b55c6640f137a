package upstream

import (
	"context"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// indexes has each field index added once to each indexer. Clusters may share one, as those of a provider of namespaces
// do, and it refuses an index that it has.
type indexes struct {
	mu       sync.Mutex // guards indexers, and users and kept of each
	indexers map[client.FieldIndexer]*sharedIndexer
}

// sharedIndexer is an indexer of one or more clusters that are engaged.
type sharedIndexer struct {
	client.FieldIndexer
	users int
	// kept is set once several clusters have used it. They may all leave and others come, so it is remembered then; an
	// indexer of a single cluster goes with that.
	kept  bool
	turn  chan struct{} // has a token while somebody uses added
	added map[indexKey]struct{}
}

// indexKey tells indexes apart. Unstructured objects have their kind with them, others their type.
type indexKey struct {
	object reflect.Type
	kind   schema.GroupVersionKind
	field  string
}

// share returns the cluster with an indexer that it shares with others until unshare is called.
func (x *indexes) share(cl cluster.Cluster) (indexed cluster.Cluster, unshare func()) {
	inner := cl.GetFieldIndexer()
	if inner == nil || !reflect.TypeOf(inner).Comparable() {
		return cl, func() {} // nobody can tell whether it is shared
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	shared := x.indexers[inner]
	if shared == nil {
		shared = &sharedIndexer{FieldIndexer: inner, turn: make(chan struct{}, 1), added: map[indexKey]struct{}{}}
		if x.indexers == nil {
			x.indexers = map[client.FieldIndexer]*sharedIndexer{}
		}
		x.indexers[inner] = shared
	}
	shared.users++
	shared.kept = shared.kept || shared.users > 1
	return &indexedCluster{Cluster: cl, indexer: shared}, func() { x.unshare(inner) }
}

func (x *indexes) unshare(inner client.FieldIndexer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	shared := x.indexers[inner]
	shared.users--
	if shared.users == 0 && !shared.kept {
		delete(x.indexers, inner)
	}
}

// IndexField implements client.FieldIndexer.
func (s *sharedIndexer) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	key := indexKey{reflect.TypeOf(obj), obj.GetObjectKind().GroupVersionKind(), field}
	if _, has := s.added[key]; has {
		return nil
	}
	err := s.FieldIndexer.IndexField(ctx, obj, field, extract)
	if err == nil {
		s.added[key] = struct{}{}
	}
	return err
}

// indexedCluster is a cluster with an indexer that knows which indexes there are.
type indexedCluster struct {
	cluster.Cluster
	indexer client.FieldIndexer
}

// GetFieldIndexer implements cluster.Cluster.
func (c *indexedCluster) GetFieldIndexer() client.FieldIndexer { return c.indexer }
