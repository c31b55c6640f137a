package contexts

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// drainPatience is how long the report of other members waits for those that are withdrawn. Draining goes on afterwards.
const drainPatience = time.Second

// reporter keeps the fleet in step with the files.
type reporter struct {
	members fleet.Members
	known   map[fleet.ClusterName]described // what the fleet has
}

func newReporter(members fleet.Members) *reporter {
	return &reporter{members: members, known: map[fleet.ClusterName]described{}}
}

// report tells the fleet what is new, and adds to the problems what the fleet does not take.
func (r *reporter) report(ctx context.Context, found finding) {
	r.withdraw(ctx, func(name fleet.ClusterName, known described) bool {
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

// withdraw removes the members that are gone, side by side.
func (r *reporter) withdraw(ctx context.Context, gone func(fleet.ClusterName, described) bool) {
	ctx, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	var removals sync.WaitGroup
	defer removals.Wait()
	for name, known := range r.known {
		if gone(name, known) {
			delete(r.known, name)
			removals.Go(func() { _ = r.members.Remove(ctx, name) }) // the fleet says for whom a member waits
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
