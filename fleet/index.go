package fleet

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleet-runtime/fleet-runtime/internal/retry"
)

// index is a field index that every member's cache has.
type index struct {
	object  client.Object
	field   string
	extract client.IndexerFunc
}

var _ client.FieldIndexer = (*Fleet)(nil)

// IndexField indexes a field of a kind in the caches of all members, now and later, for use with client.MatchingFields.
// It returns at once: members that are engaged already get the index in the background. Where it cannot be added, such
// as in a member whose CRD is missing, [Status.NotSynced] says so, and it is tried again. Call it before the manager
// starts, so that no reconcile runs without the index.
//
// extract must be safe for concurrent use, and keep no state by cluster.
func (f *Fleet) IndexField(_ context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	if _, err := apiutil.GVKForObject(obj, f.opts.Scheme); err != nil {
		return err
	}
	added := &index{object: obj, field: field, extract: extract}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.indexes = append(f.indexes, added)
	for _, m := range f.members {
		if e := m.engagement; e != nil && e.ctx.Err() == nil {
			e.background.Go(func() { f.addIndex(e, added) })
		}
	}
	return nil
}

// allIndexes returns the indexes that a new engagement needs.
func (f *Fleet) allIndexes() []*index {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clip(f.indexes)
}

// addIndex adds the index to the engagement's cache, trying again until that works or the engagement ends.
func (f *Fleet) addIndex(e *Engagement, i *index) {
	gvk, err := apiutil.GVKForObject(i.object, f.opts.Scheme)
	if err != nil {
		return // IndexField has checked it
	}
	defer e.kinds.report(gvk, i, nil)
	pauses := retry.Pauses(f.opts.MaxRetryPeriod)
	for {
		err := e.addIndexOnce(i)
		if err == nil || e.ctx.Err() != nil {
			return
		}
		if e.kinds.report(gvk, i, err) {
			f.opts.Logger.Info("Cannot index; trying again", "cluster", e.name, "kind", gvk.Kind, "field", i.field,
				"reason", classify(err), "error", message(err))
		}
		if !retry.Pause(e.ctx, &pauses, nil) {
			return
		}
	}
}

// addIndexOnce adds the index unless the engagement has it.
func (e *Engagement) addIndexOnce(i *index) error {
	e.mu.Lock()
	_, has := e.indexed[i]
	e.indexed[i] = struct{}{}
	e.mu.Unlock()
	if has {
		return nil
	}
	err := e.cluster.GetFieldIndexer().IndexField(e.ctx, i.object, i.field, i.extract)
	if err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.indexed, i)
	}
	return err
}

// addIndexes gives a new engagement the field indexes, before anyone can use it. A kind that fails does not hold the
// member up: its index is added later.
func (f *Fleet) addIndexes(attempt context.Context, e *Engagement) error {
	added := make(chan struct{})
	pending := f.allIndexes()
	e.background.Go(func() {
		for _, i := range pending {
			if e.addIndexOnce(i) != nil {
				e.background.Go(func() { f.addIndex(e, i) })
			}
		}
		close(added)
	})
	select {
	case <-added:
		return nil
	case <-attempt.Done():
		return fmt.Errorf("adding field indexes: %w", context.Cause(attempt))
	}
}
