package objects

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// claimant is an object that claims a name of a member.
type claimant struct {
	key client.ObjectKey
	// created is when the object was created. For one that has replaced another under the same key, it is when that was.
	created time.Time
	// kept is until when the name is kept for an object that was deleted. It is zero for one that exists.
	kept time.Time
}

func (c claimant) isDeleted() bool { return !c.kept.IsZero() }

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
// new ones, and those that are no longer claimed. No name may occur twice in names. What the key claimed before, it goes on
// claiming with the age that it had; what is kept for it is kept on.
func (cs *claims) set(c claimant, names []fleet.ClusterName) (touched []fleet.ClusterName) {
	touched = slices.Clone(cs.names[c.key])
	created := map[fleet.ClusterName]time.Time{}
	for _, name := range names {
		created[name] = c.created
	}
	for _, name := range touched {
		before := cs.claimants[name][cs.index(name, c.key)]
		if at, again := created[name]; again {
			if before.created.Before(at) {
				created[name] = before.created
			}
		} else if before.isDeleted() {
			continue
		}
		cs.drop(name, c.key)
	}
	for _, name := range names {
		cs.add(name, claimant{key: c.key, created: created[name]})
		if !slices.Contains(touched, name) {
			touched = append(touched, name)
		}
	}
	return touched
}

// remove ends the claims of an object that was deleted, and keeps its names for one that replaces it. It returns the names
// that it claimed.
func (cs *claims) remove(key client.ObjectKey, keepUntil time.Time) (touched []fleet.ClusterName) {
	for _, name := range cs.names[key] {
		c := &cs.claimants[name][cs.index(name, key)]
		if !c.isDeleted() {
			c.kept = keepUntil
			touched = append(touched, name)
		}
	}
	return touched
}

// expire lets go of the name for those for which it was kept until now or before.
func (cs *claims) expire(name fleet.ClusterName, now time.Time) {
	for _, c := range slices.Clone(cs.claimants[name]) {
		if c.isDeleted() && !now.Before(c.kept) {
			cs.drop(name, c.key)
		}
	}
}

// of returns those that claim the name, the holder first, with those for which it is kept. The slice is valid until the
// next change.
func (cs *claims) of(name fleet.ClusterName) []claimant { return cs.claimants[name] }

// index returns where the key is among those that claim the name.
func (cs *claims) index(name fleet.ClusterName, key client.ObjectKey) int {
	return slices.IndexFunc(cs.claimants[name], func(c claimant) bool { return c.key == key })
}

func (cs *claims) add(name fleet.ClusterName, c claimant) {
	if cs.names == nil {
		cs.claimants, cs.names = map[fleet.ClusterName][]claimant{}, map[client.ObjectKey][]fleet.ClusterName{}
	}
	all := cs.claimants[name]
	at, _ := slices.BinarySearchFunc(all, c, olderFirst)
	cs.claimants[name] = slices.Insert(all, at, c)
	cs.names[c.key] = append(cs.names[c.key], name)
}

func (cs *claims) drop(name fleet.ClusterName, key client.ObjectKey) {
	cs.claimants[name] = slices.DeleteFunc(cs.claimants[name], func(c claimant) bool { return c.key == key })
	if len(cs.claimants[name]) == 0 {
		delete(cs.claimants, name)
	}
	cs.names[key] = slices.DeleteFunc(cs.names[key], func(n fleet.ClusterName) bool { return n == name })
	if len(cs.names[key]) == 0 {
		delete(cs.names, key)
	}
}
