package dependents

import (
	"context"
	"errors"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// indexes are the kinds that one cluster's cache was given an index for.
type indexes struct {
	mu    sync.Mutex // guards kinds
	kinds map[schema.GroupVersionKind]bool
}

func newIndexes() (*indexes, error) {
	return &indexes{kinds: map[schema.GroupVersionKind]bool{}}, nil
}

func (in *indexes) has(kind schema.GroupVersionKind) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.kinds[kind]
}

func (in *indexes) note(kind schema.GroupVersionKind) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.kinds[kind] = true
}

// list lists the objects of a kind that have a key of owners, by an index of the cluster's cache. It adds that where it is not there yet, and where
// it went with the kind, which another reconciler of this program may drop from the cache meanwhile.
func (w *watches) list(ctx context.Context, at remote.Session, k remote.Kind, list client.ObjectList, key string) error {
	in, err := w.indexed.Get(at, newIndexes)
	if err != nil {
		return err
	}
	read := func() error {
		return at.Cluster.GetCache().List(ctx, list, client.MatchingFields{w.indexName: key}, client.UnsafeDisableDeepCopy)
	}
	if in.has(k.GroupVersionKind) {
		if err := read(); err == nil || ctx.Err() != nil || errors.Is(err, fleet.ErrNotReady) {
			return err
		}
	}
	notAdded := at.Cluster.GetFieldIndexer().IndexField(ctx, k.NewObject(), w.indexName, ownerKeys)
	if err = read(); err != nil {
		err = errors.Join(err, notAdded) // members that share a cache share the index, which can be added once
	}
	if err == nil || notAdded == nil {
		in.note(k.GroupVersionKind)
	}
	return err
}

// ownerKeys returns the keys of an object's owners.
func ownerKeys(obj client.Object) []string {
	var keys []string
	for key := range obj.GetAnnotations() {
		if strings.HasPrefix(key, mcowner.KeyPrefix) {
			keys = append(keys, key)
		}
	}
	return keys
}
