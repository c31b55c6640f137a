package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/informer"
)

// ErrIndexExists is returned for a field of a kind that is indexed already.
var ErrIndexExists = errors.New("the members have an index of this field")

// index is a field index that every member's cache has.
type index struct {
	object  client.Object
	field   string
	extract client.IndexerFunc
}

// indexes are the field indexes of a fleet. The zero value is empty. It is safe for concurrent use, and takes no lock
// while it holds its own.
type indexes struct {
	mu sync.RWMutex // guards of
	of map[informer.Key]map[string]*index
}

// add adds an index, unless the field is indexed.
func (x *indexes) add(key informer.Key, i *index) (added bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.of[key][i.field] != nil {
		return false
	}
	if x.of == nil {
		x.of = map[informer.Key]map[string]*index{}
	}
	if x.of[key] == nil {
		x.of[key] = map[string]*index{}
	}
	x.of[key][i.field] = i
	return true
}

func (x *indexes) has(key informer.Key, field string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.of[key][field] != nil
}

// missing returns the indexes of a kind but for those that there are.
func (x *indexes) missing(key informer.Key, have map[string]struct{}) (missing []*index) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for field, i := range x.of[key] {
		if _, has := have[field]; !has {
			missing = append(missing, i)
		}
	}
	return missing
}

// fields returns the fields that are indexed, by kind.
func (x *indexes) fields() map[informer.Key][]string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	all := make(map[informer.Key][]string, len(x.of))
	for key, of := range x.of {
		all[key] = slices.Collect(maps.Keys(of))
	}
	return all
}

var _ client.FieldIndexer = (*Fleet)(nil)

// IndexField indexes a field of a kind in the caches of all members, now and later, for use with client.MatchingFields.
// It asks no member, and returns at once. A member's cache gets the index when it first holds the kind, or, if it does
// already, before it is next read by the field: no read goes without it. A cluster that the provider made gets the index
// when it is engaged, and one that is engaged already gets it in the background.
//
// A field can be indexed once for each kind and form of its objects: structured, unstructured, or metadata. For another
// time the error wraps [ErrIndexExists]: see [Fleet.EnsureIndex]. A member may have an index of the name that was added to
// its own cache. Then reads of that member by the field fail with [ErrNotReady], and [Status.NotSynced] says so.
//
// extract must be safe for concurrent use, and keep no state by cluster.
func (f *Fleet) IndexField(_ context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	added, err := f.addIndex(&index{object: obj, field: field, extract: extract})
	if err == nil && !added {
		err = fmt.Errorf("indexing %T by %q: %w: its users can share it by EnsureIndex", obj, field, ErrIndexExists)
	}
	return err
}

// EnsureIndex is [Fleet.IndexField] for an index that several share: it indexes a field unless it is indexed already. All
// of them must mean the same by the field, as the function of the first is used.
func (f *Fleet) EnsureIndex(_ context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	_, err := f.addIndex(&index{object: obj, field: field, extract: extract})
	return err
}

func (f *Fleet) addIndex(i *index) (added bool, err error) {
	key, err := informer.KeyOf(i.object, f.opts.Scheme)
	if err != nil {
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.indexes.add(key, i) {
		return false, nil
	}
	for _, m := range f.members {
		if e := m.engagement; e != nil && e.wire == nil {
			e.indexLater(key, i.field)
		}
	}
	return true, nil
}

// ownIndexes makes the kinds of an engagement those of a cluster that the provider made. Nobody knows when its cache is
// read, so it gets the indexes at once.
func (e *Engagement) ownIndexes() {
	e.kinds.index = func(ctx context.Context, i *index) error {
		return e.cluster.GetFieldIndexer().IndexField(ctx, i.object, i.field, i.extract)
	}
}

// addIndexes gives a new engagement of a cluster that the provider made the field indexes, before anyone can use it. A
// kind that fails does not hold the member up: its index is added later.
func (e *Engagement) addIndexes(attempt context.Context) error {
	for key, fields := range e.kinds.indexes.fields() {
		_ = e.kinds.ensure(attempt, key, fields...) // the status says it
		if attempt.Err() != nil {
			return fmt.Errorf("adding field indexes: %w", context.Cause(attempt))
		}
	}
	return nil
}

// addLateIndexes adds the indexes that could not be added before the engagement was published, or were asked for meanwhile.
func (e *Engagement) addLateIndexes() {
	if e.wire != nil {
		return
	}
	for key, fields := range e.kinds.indexes.fields() {
		e.indexLater(key, fields...)
	}
}

// indexLater adds indexes, trying again until that works or the engagement ends.
func (e *Engagement) indexLater(key informer.Key, fields ...string) {
	_, leave, err := e.Join(e.ctx, e.kinds)
	if err != nil {
		return // the next engagement gets it
	}
	go func() {
		defer leave()
		_ = e.kinds.await(e.ctx, key, fields...)
	}()
}

// explain says how to register an index that a list lacks. why is what the cache says.
func (k *kinds) explain(list client.ObjectList, scheme *runtime.Scheme, by []string, why error) error {
	key, err := informer.KeyOf(list, scheme)
	if err != nil || errors.Is(why, ErrNotReady) {
		return why
	}
	for _, field := range by {
		if !k.indexes.has(key, field) {
			return fmt.Errorf("listing %s of cluster %q by field %q, which the fleet does not index: "+
				"call mgr.GetFleetFieldIndexer().IndexField(...) before the manager starts: %w", key.GVK.GroupKind(), k.cluster, field, why)
		}
	}
	return why
}
