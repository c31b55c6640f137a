package dependents

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// lookForIdle is how often it is looked for watches that nobody needs. One ends that nobody needs two times in a row: an owner that
// changes its mind soon does not have a kind listed anew.
const lookForIdle = 10 * time.Second

// releasing is a cache that removes an informer which nobody uses. Those that the fleet makes are.
type releasing interface {
	ReleaseInformer(ctx context.Context, obj client.Object) (released bool, err error)
}

// endIdleWatches ends watches of kinds of which nothing is desired or found in a member, until ctx is done.
func (c *engine) endIdleWatches(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.paces.orDefaults().idle)
	defer tick.Stop()
	defer c.watches.elsewhere.stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		since := time.Now()
		for _, o := range c.ledger.all() {
			o.forgetRemovals(since)
		}
		c.watches.elsewhere.endIdle(since)
		for key, is := range c.unneeded() {
			switch {
			case is.unwatch:
				c.watches.release(ctx, key, is)
			case !c.watches.hasAny(ctx, is):
				c.watches.end(key, since)
			}
		}
	}
}

// unneeded returns what is watched and no owner needs.
func (c *engine) unneeded() map[watchKey]watched {
	left := c.watches.all()
	c.needless(left)
	c.watches.needed(left)
	return left
}

// needless takes from what is watched all that owners need. It passes over clusters in which nothing is watched: an owner's record may
// name any, and as many kinds for each.
func (c *engine) needless(left map[watchKey]watched) {
	in := map[mcreconcile.ClusterName]bool{}
	for key := range left {
		in[key.in] = true
	}
	for _, o := range c.ledger.all() {
		if len(left) == 0 {
			break
		}
		for _, name := range o.clusters() {
			if in[name] {
				c.needlessIn(name, o.needs(name), left)
			}
		}
	}
}

// needlessIn takes these kinds from what is watched in a cluster.
func (c *engine) needlessIn(name mcreconcile.ClusterName, kinds []schema.GroupVersionKind, left map[watchKey]watched) {
	for _, kind := range kinds {
		if kind.Empty() { // of an owner of an earlier version, or one that is new, any kind may be there
			for _, k := range c.kinds {
				delete(left, watchKey{name, k.GroupVersionKind})
			}
		}
		delete(left, watchKey{name, c.kindNoted(kind).GroupVersionKind})
		delete(left, watchKey{name, kind}) // where the cluster does not serve the version of Kinds
	}
}

// all returns what is watched in members. What was watched in an engagement that is over is to be released in the next one, unless it is
// asked for there: its cache lists all kinds of the one before.
func (w *watches) all() map[watchKey]watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moveLocked()
	all := make(map[watchKey]watched, len(w.wanted))
	for key, is := range w.wanted {
		all[key] = *is
	}
	return all
}

// nextEngagement returns the engagement of a member that can be used now, nil for none, and whether one may come.
type nextEngagement func(mcreconcile.ClusterName) (e *fleet.Engagement, comes bool)

func nextIn(f *fleet.Fleet) nextEngagement {
	return func(name mcreconcile.ClusterName) (*fleet.Engagement, bool) {
		e, err := f.Engagement(name)
		return e, errors.Is(err, fleet.ErrNotReady)
	}
}

func noneComes(mcreconcile.ClusterName) (*fleet.Engagement, bool) { return nil, false }

// moveLocked moves what was watched in engagements that are over to those that took their place, to be released there.
func (w *watches) moveLocked() {
	maps.DeleteFunc(w.wanted, func(key watchKey, is *watched) bool {
		isOver := is.at.Engagement.Context().Err() != nil
		if isOver {
			w.over[key] = is.kind
		}
		return isOver
	})
	for key, kind := range w.over {
		e, comes := w.next(key.in)
		if e != nil && w.wanted[key] == nil {
			at := remote.Session{ID: mcowner.ClusterID{Name: key.in}, Cluster: e.Cluster(), Engagement: e}
			w.wanted[key] = &watched{at: at, kind: kind, unwatch: true}
		}
		if e != nil || !comes {
			delete(w.over, key)
		}
	}
}

// needed notes that all is needed but for what is left.
func (w *watches) needed(left map[watchKey]watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, is := range w.wanted {
		if _, unneeded := left[key]; !unneeded {
			is.idle = false
		}
	}
}

// end ends a watch that nobody needs, if that was so before. Work that has begun since, or begins later, has it watched anew.
func (w *watches) end(key watchKey, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	is := w.wanted[key]
	switch {
	case is == nil || is.asked.After(since):
	case !is.idle:
		is.idle = true
	default:
		is.unwatch = true
		w.unwatchLocked(key, is)
		w.forgetAbsence(is.at, key.kind.GroupKind())
	}
}

func (w *watches) unwatchLocked(key watchKey, is *watched) {
	ctx := mcreconcile.WithCluster(context.Background(), key.in, is.at.Cluster)
	w.members.Unwatch(ctx, is.kind.String())
}

// release has the member's cache drop a kind that is not watched any more, unless somebody else uses it. It is tried again as
// long as that is so.
func (w *watches) release(ctx context.Context, key watchKey, is watched) {
	released := true
	if c, ok := is.at.Cluster.GetCache().(releasing); ok {
		var err error
		if released, err = c.ReleaseInformer(ctx, is.kind.NewObject()); err != nil {
			log.FromContext(ctx).V(1).Info("Cannot drop a kind from a cache", "cluster", key.in, "kind", key.kind.String(), "error", err.Error())
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch now := w.wanted[key]; {
	case now == nil || !now.unwatch:
	case now.at.Engagement.Context().Err() != nil: // the next one may have listed the kind before it was released
	case released:
		delete(w.wanted, key)
	default:
		w.unwatchLocked(key, now) // it may have begun the moment that it was to end
	}
}

// mostLook is how long it may take to look what a cache has. One that has the kind has it at once.
const mostLook = time.Second

// hasAny reports whether the member's cache has dependents of the controller, of whatever owners. What cannot be read is none.
func (w *watches) hasAny(ctx context.Context, is watched) bool {
	ctx, cancel := context.WithTimeout(ctx, mostLook)
	defer cancel()
	list, err := is.kind.NewList(is.at.Cluster.GetScheme())
	if err != nil {
		return false
	}
	ours := client.MatchingLabels{mcowner.FleetLabel: w.fleet}
	if err := is.at.Cluster.GetCache().List(ctx, list, ours, client.UnsafeDisableDeepCopy); err != nil {
		return false
	}
	found := false
	_ = meta.EachListItem(list, func(item runtime.Object) error { // which has no errors
		obj, ok := item.(client.Object)
		references, err := is.kind.References(obj, is.at.ID)
		found = found || ok && err == nil && slices.ContainsFunc(references, func(r mcowner.Reference) bool { return r.Manager == w.manager })
		return nil
	})
	return found
}
