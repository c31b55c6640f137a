package dependents

import (
	"maps"
	"slices"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// recordLocked notes the record. Each cluster is asked for by its name after that, and there may be thousands.
func (o *ownerState) recordLocked(r record.Record) {
	o.record, o.named = r, record.ByName(r.Sites)
}

// sites returns the clusters in which the owner may have dependents, by its record.
func (o *ownerState) sites() []record.Site {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.record.Sites)
}

// clusters returns where the owner has, or is to have, dependents.
func (o *ownerState) clusters() []mcreconcile.ClusterName {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.clustersLocked()
}

func (o *ownerState) clustersLocked() []mcreconcile.ClusterName {
	names := slices.Collect(maps.Keys(o.named))
	if o.plan != nil {
		names = union(names, o.plan.targets)
	}
	return names
}

// concerns reports whether the owner has, or is to have, dependents in a cluster.
func (o *ownerState) concerns(name mcreconcile.ClusterName) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.concernsLocked(name)
}

func (o *ownerState) concernsLocked(name mcreconcile.ClusterName) bool {
	if o.plan == nil {
		return false
	}
	_, targeted := slices.BinarySearch(o.plan.targets, name)
	return targeted || len(o.named[name]) > 0
}

// hasGivenUp reports whether dependents may have been left in clusters that are not in the record any more.
func (o *ownerState) hasGivenUp() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.record.GivenUp
}

// visited notes whether a visit in a cluster has failed.
func (o *ownerState) visited(name mcreconcile.ClusterName, failed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !failed {
		delete(o.unvisited, name)
		return
	}
	if o.unvisited == nil {
		o.unvisited = map[mcreconcile.ClusterName]struct{}{}
	}
	o.unvisited[name] = struct{}{}
}

// toVisit returns the clusters in which the last visit has failed.
func (o *ownerState) toVisit() []mcreconcile.ClusterName {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.unvisited))
}

// union returns the names of both, ordered, each once.
func union(a, b []mcreconcile.ClusterName) []mcreconcile.ClusterName {
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}
