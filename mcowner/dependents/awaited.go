package dependents

import (
	"maps"
	"slices"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// awaited are objects in the place of dependents, and the owners that wait until these are changed, or gone. It is not safe for
// concurrent use.
type awaited struct {
	owners  map[dependentKey]map[mcreconcile.Request]struct{}
	objects map[mcreconcile.Request]map[dependentKey]struct{} // the same, by owner
}

func newAwaited() awaited {
	return awaited{
		owners:  map[dependentKey]map[mcreconcile.Request]struct{}{},
		objects: map[mcreconcile.Request]map[dependentKey]struct{}{},
	}
}

func (a awaited) add(owner mcreconcile.Request, key dependentKey) {
	addTo(a.owners, key, owner)
	addTo(a.objects, owner, key)
}

func (a awaited) remove(owner mcreconcile.Request, key dependentKey) {
	removeFrom(a.owners, key, owner)
	removeFrom(a.objects, owner, key)
}

// by returns the owners that wait for an object.
func (a awaited) by(key dependentKey) []mcreconcile.Request {
	return slices.Collect(maps.Keys(a.owners[key]))
}

// keep drops what an owner does not wait for any more.
func (a awaited) keep(owner mcreconcile.Request, still func(dependentKey) bool) {
	for key := range a.objects[owner] {
		if !still(key) {
			a.remove(owner, key)
		}
	}
}

// lost drops all of a cluster.
func (a awaited) lost(in mcreconcile.ClusterName) {
	for owner := range a.objects {
		a.keep(owner, func(key dependentKey) bool { return key.cluster != in })
	}
}

func addTo[K, V comparable](sets map[K]map[V]struct{}, key K, value V) {
	if sets[key] == nil {
		sets[key] = map[V]struct{}{}
	}
	sets[key][value] = struct{}{}
}

func removeFrom[K, V comparable](sets map[K]map[V]struct{}, key K, value V) {
	delete(sets[key], value)
	if len(sets[key]) == 0 {
		delete(sets, key)
	}
}
