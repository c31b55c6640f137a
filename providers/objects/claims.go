package objects

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// claimant is an object that claims names of members.
type claimant struct {
	key     client.ObjectKey
	created time.Time
}

// olderFirst orders claimants. Every replica comes to the same order, whatever it heard of first.
func olderFirst(a, b claimant) int {
	return cmp.Or(
		a.created.Compare(b.created),
		strings.Compare(a.key.Namespace, b.key.Namespace),
		strings.Compare(a.key.Name, b.key.Name),
	)
}

// claims keeps which objects claim which names. The oldest claimant of a name holds it. The zero value is empty.
type claims struct {
	claimants map[fleet.ClusterName][]claimant // oldest first, never empty
	names     map[client.ObjectKey][]fleet.ClusterName
}

// set replaces what c.key claimed before with names. It returns the names for which something may have changed: the
// new ones, and those that are no longer claimed. No name may occur twice in names.
func (cs *claims) set(c claimant, names []fleet.ClusterName) []fleet.ClusterName {
	touched := cs.release(c.key)
	if len(names) == 0 {
		return touched
	}
	if cs.names == nil {
		cs.claimants = map[fleet.ClusterName][]claimant{}
		cs.names = map[client.ObjectKey][]fleet.ClusterName{}
	}
	cs.names[c.key] = slices.Clone(names)
	for _, name := range names {
		all := cs.claimants[name]
		at, _ := slices.BinarySearchFunc(all, c, olderFirst)
		cs.claimants[name] = slices.Insert(all, at, c)
		if !slices.Contains(touched, name) {
			touched = append(touched, name)
		}
	}
	return touched
}

// release ends all claims of the object, and returns the names that it claimed.
func (cs *claims) release(key client.ObjectKey) []fleet.ClusterName {
	released := cs.names[key]
	delete(cs.names, key)
	for _, name := range released {
		rest := slices.DeleteFunc(cs.claimants[name], func(c claimant) bool { return c.key == key })
		if len(rest) == 0 {
			delete(cs.claimants, name)
			continue
		}
		cs.claimants[name] = rest
	}
	return released
}

// of returns those that claim the name, the holder first. The slice is valid until the next change.
func (cs *claims) of(name fleet.ClusterName) []claimant { return cs.claimants[name] }
