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

// report is what a provider has said of a member.
type report struct {
	Member

	leaving *leaving // nil for a member that stays
}

// room keeps what is reported beyond the members that there may be. A member that has joined stays: if names decided,
// somebody who may describe members could have others' drained. Of those that wait, the first by name joins first. The
// fleet's lock guards it.
type room struct {
	waiting map[ClusterName]report
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

func (r *room) wait(reported report) {
	if r.waiting == nil {
		r.waiting = map[ClusterName]report{}
	}
	r.waiting[reported.Name] = reported
	r.queue.add(reported.Name)
}

// leave forgets a name, and says whether it has waited.
func (r *room) leave(name ClusterName) (waited bool) {
	waited = r.waits(name)
	delete(r.waiting, name)
	r.queue.drop(name)
	return waited
}

// joinLocked lets a new member join as soon as there is room for it.
func (f *Fleet) joinLocked(reported report) {
	f.room.wait(reported)
	f.fillLocked()
}

// fillLocked lets those join that wait and have room now.
func (f *Fleet) fillLocked() {
	for !f.stopped && len(f.room.queue) > 0 && len(f.members) < f.opts.MaxMembers {
		name := f.room.queue[0]
		reported := f.room.waiting[name]
		f.room.leave(name)
		f.addLocked(reported)
	}
	f.tellLeftOutLocked()
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
	return fmt.Sprintf("there may be %d (fleet.Options.MaxMembers)", f.opts.MaxMembers)
}

// leftOutLocked returns the status of a member that waits for room.
func (f *Fleet) leftOutLocked(name ClusterName) Status {
	reported := f.room.waiting[name]
	return Status{
		Name: name, Labels: maps.Clone(reported.Labels), State: Pending, Leaving: reported.leaving != nil,
		Reason: ReasonTooManyMembers, Message: f.mostMembers(),
	}
}
