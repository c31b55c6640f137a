package fleet

import (
	"fmt"
	"maps"
	"slices"
)

// ReasonTooManyMembers is for members that are left out because there are too many, and for the [Problem] that tells.
const ReasonTooManyMembers = "TooManyMembers"

// defaultMembers is how many members a fleet has at most by default.
const defaultMembers = 20_000

// room decides who joins when more members are reported than there may be: the first by name. So every replica comes to
// the same, whatever it heard of first. The fleet's lock guards it.
type room struct {
	joined  sortedNames // the members, without those that are withdrawn
	waiting map[ClusterName]Member
	queue   sortedNames // the names in waiting
}

// sortedNames has each name once.
type sortedNames []ClusterName

func (s *sortedNames) add(name ClusterName) {
	if at, found := slices.BinarySearch(*s, name); !found {
		*s = slices.Insert(*s, at, name)
	}
}

func (s *sortedNames) drop(name ClusterName) {
	if at, found := slices.BinarySearch(*s, name); found {
		*s = slices.Delete(*s, at, at+1)
	}
}

func (r *room) waits(name ClusterName) bool {
	_, ok := r.waiting[name]
	return ok
}

func (r *room) wait(described Member) {
	if r.waiting == nil {
		r.waiting = map[ClusterName]Member{}
	}
	r.waiting[described.Name] = described
	r.queue.add(described.Name)
}

// leave forgets a name, and says whether it has waited.
func (r *room) leave(name ClusterName) (waited bool) {
	waited = r.waits(name)
	delete(r.waiting, name)
	r.queue.drop(name)
	r.joined.drop(name)
	return waited
}

// joinLocked lets a new member join as soon as there is room for it.
func (f *Fleet) joinLocked(described Member) {
	f.room.wait(described)
	f.fillLocked()
}

// fillLocked lets those join that wait and have room now. If one waits that comes before a member by name, the last member is
// drained for it.
func (f *Fleet) fillLocked() {
	for more := !f.stopped; more; {
		more = f.fillOneLocked()
	}
	f.tellLeftOutLocked()
}

func (f *Fleet) fillOneLocked() (changed bool) {
	r := &f.room
	draining := func(name ClusterName) bool { return f.members[name] != nil }
	next := slices.IndexFunc(r.queue, func(name ClusterName) bool { return !draining(name) })
	if next < 0 {
		return false
	}
	name := r.queue[next]
	if len(f.members) < f.opts.MaxMembers {
		described := r.waiting[name]
		r.leave(name)
		f.addLocked(described)
		return true
	}
	if len(r.joined) < f.opts.MaxMembers { // there is room once what is being drained has ended
		return false
	}
	last := r.joined[len(r.joined)-1]
	if last < name {
		return false
	}
	f.displaceLocked(f.members[last])
	return true
}

// displaceLocked drains a member, which waits for room from now on.
func (f *Fleet) displaceLocked(m *member) {
	f.room.leave(m.name)
	f.room.wait(m.described)
	m.withdrawLocked()
	if f.ctx == nil { // nothing runs yet that could end the member
		f.endedLocked(m)
	}
}

// tellLeftOutLocked keeps the problem that says how many members are left out.
func (f *Fleet) tellLeftOutLocked() {
	p := Problem{Provider: fleetItself, About: "members"}
	if n := len(f.room.queue); n > 0 {
		p.Reason, p.Message = ReasonTooManyMembers, fmt.Sprintf("%d members are left out, from %q on: %s", n, f.room.queue[0], f.mostMembers())
	}
	f.problems.set(f.opts.Logger, p)
}

func (f *Fleet) mostMembers() string {
	return fmt.Sprintf("there may be %d (fleet.Options.MaxMembers), and the first by name join", f.opts.MaxMembers)
}

// leftOutLocked returns the status of a member that waits for room.
func (f *Fleet) leftOutLocked(name ClusterName) Status {
	return Status{
		Name: name, Labels: maps.Clone(f.room.waiting[name].Labels), State: Pending, Reason: ReasonTooManyMembers, Message: f.mostMembers(),
	}
}
