package contexts

import (
	"errors"
	"maps"
	"slices"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// reporter keeps the fleet in step with the files.
type reporter struct {
	members fleet.Members
	known   map[fleet.ClusterName]described // what the fleet has
}

func newReporter(members fleet.Members) *reporter {
	return &reporter{members: members, known: map[fleet.ClusterName]described{}}
}

// report tells the fleet what is new, and adds to the problems what the fleet does not take.
func (r *reporter) report(found finding) {
	r.withdraw(func(name fleet.ClusterName, known described) bool {
		now, there := found.members[name]
		return !there || known.makesWayFor(now)
	})
	for _, name := range slices.Sorted(maps.Keys(found.members)) {
		now := found.members[name]
		if known, ok := r.known[name]; !ok || !known.equal(now) {
			if err := r.members.Set(now.member); err != nil {
				if !errors.Is(err, fleet.ErrStopped) {
					found.problems.add(now.context.String(), err)
				}
				continue
			}
		}
		r.known[name] = now
	}
}

// withdraw removes the members that are gone.
func (r *reporter) withdraw(gone func(fleet.ClusterName, described) bool) {
	for name, known := range r.known {
		if gone(name, known) {
			delete(r.known, name)
			r.members.Remove(name)
		}
	}
}

// makesWayFor reports whether the name has gone over to a context of another file, which leads elsewhere. The cluster of
// the first is drained then before the other's is connected.
func (d described) makesWayFor(next described) bool {
	return d.context.File != "" && d.context.File != next.context.File &&
		(d.member.Err != nil || d.member.Revision != next.member.Revision)
}

// equal reports whether a report of other would be no news.
func (d described) equal(other described) bool {
	a, b := d.member, other.member
	if a.Err != nil && b.Err != nil {
		return a.Err.Error() == b.Err.Error() && maps.Equal(a.Labels, b.Labels)
	}
	return a.Err == nil && b.Err == nil && a.Revision == b.Revision && maps.Equal(a.Labels, b.Labels)
}
