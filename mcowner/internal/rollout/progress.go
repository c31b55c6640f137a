// Package rollout decides which clusters of an owner may be changed now, where not all are to be changed at once, or no further ones after
// failures.
package rollout

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Progress is how far one owner's rollout is. It is not safe for concurrent use.
type Progress struct {
	policy   Policy
	revision string                               // of the owner, which was changed if it is another
	seen     map[mcreconcile.ClusterName]bool     // looked at since the program began
	read     map[mcreconcile.ClusterName]bool     // so, and all requests got an answer
	unread   map[mcreconcile.ClusterName]int      // how often one got none before it counts as looked at
	held     map[mcreconcile.ClusterName]bool     // permits, by whether anything was begun
	failed   map[mcreconcile.ClusterName]struct{} // since the owner was changed, also before the program began
	waiting  []mcreconcile.ClusterName            // for a permit, in this order
	absent   map[mcreconcile.ClusterName]bool     // could not be used when it was last to be looked at
}

// Outcome is what a look at a cluster has come to.
type Outcome int8

// What a look can come to.
const (
	NotLooked Outcome = iota // at what is there
	Complete                 // all is as desired, and ready
	NotReady                 // nothing is to be written, and something is not ready
	Stalled                  // so, and it will not be
	Failed                   // what is desired cannot be had
	Unread                   // a request got no answer, or it is not known now what is desired
	Other
)

// mostUnread is after how many looks a cluster counts as looked at in which a request gets no answer: at a start it may come, and where it never
// does, other clusters wait no longer.
const mostUnread = 4

// New returns the progress of an owner of which nothing is known yet.
func New(policy Policy, revision string) *Progress {
	return &Progress{
		policy: policy, revision: revision, seen: map[mcreconcile.ClusterName]bool{},
		read: map[mcreconcile.ClusterName]bool{}, unread: map[mcreconcile.ClusterName]int{},
		held: map[mcreconcile.ClusterName]bool{}, failed: map[mcreconcile.ClusterName]struct{}{}, absent: map[mcreconcile.ClusterName]bool{},
	}
}

// Next notes what the owner asks for now. If that is another thing than before, failures do not count any more, and clusters ask for permits
// anew. The policy may be another one.
func (p *Progress) Next(policy Policy, revision string) {
	p.policy = policy
	if p.revision != revision {
		p.revision, p.waiting = revision, nil
		clear(p.failed)
	}
}

// Recall takes over what was noted before the program began, unless that is about something else.
func (p *Progress) Recall(noted *record.Failures) {
	if p.policy.HaltAfter == 0 || noted == nil || noted.Revision != p.revision {
		return
	}
	for _, name := range noted.Clusters {
		p.failed[name] = struct{}{}
	}
	for _, name := range noted.Begun {
		p.held[name] = true
	}
}

// Failures returns what is to be noted, so that it is known after a restart. Which clusters are being changed is noted once no further one is begun:
// it hardly changes then.
func (p *Progress) Failures() *record.Failures {
	if p.policy.HaltAfter == 0 {
		return nil
	}
	var begun []mcreconcile.ClusterName
	for name, is := range p.held {
		if is && p.isHalted() {
			begun = append(begun, name)
		}
	}
	return record.NewFailures(p.revision, slices.Collect(maps.Keys(p.failed)), begun...)
}

func (p *Progress) isHalted() bool {
	return p.policy.HaltAfter > 0 && len(p.failed) >= p.policy.HaltAfter
}

// ErrHalted says that too many clusters have failed for a further one to be changed.
var ErrHalted = errors.New("the rollout is halted")

// Ask asks for a permit to change a cluster. The error says for what it must wait. How many targets there are is asked only if it matters, since
// each object of each cluster asks.
func (p *Progress) Ask(name mcreconcile.ClusterName, targets func() int) error {
	if p.HasFailed(name) { // it was begun
		return nil
	}
	begun, held := p.held[name]
	switch {
	case begun, held && !p.isHalted():
		p.held[name] = true
		return nil
	case p.policy.HaltAfter == 0 && !p.policy.limits(targets): // it is the same how far others are
		p.held[name] = true
		p.giveUpWaiting(name)
		return nil
	case p.isHalted():
		delete(p.held, name)
		return fmt.Errorf("%w: %d clusters have failed, such as %s, and no further one is changed until the owner is", ErrHalted, len(p.failed), p.anyFailed())
	case !slices.Contains(p.waiting, name):
		p.waiting = append(p.waiting, name)
	}
	n := targets()
	return fmt.Errorf("of %d clusters, %d are changed at once", n, p.policy.most(n))
}

// anyFailed names clusters that have failed, few if there are many.
func (p *Progress) anyFailed() string {
	const few = 3
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(p.failed)) {
		if len(texts) < few {
			texts = append(texts, remote.ClusterText(name))
		}
	}
	return strings.Join(texts, ", ")
}

// Note notes what came of a cluster.
func (p *Progress) Note(name mcreconcile.ClusterName, what Outcome) {
	if what == NotLooked {
		return
	}
	delete(p.absent, name)
	if what == Unread && p.isSpared(name) {
		p.takeUnused(name)
		return
	}
	first := !p.read[name]
	p.seen[name] = true
	p.read[name] = p.read[name] || what != Unread
	begun := p.held[name]
	switch {
	case what == Complete:
		delete(p.held, name)
		p.giveUpWaiting(name)
	case p.HasFailed(name): // it is tried again, without a permit
	case p.policy.HaltAfter > 0 && (what == Failed && begun || what == Stalled && (begun || first)):
		p.fail(name)
	case first && (what == NotReady || what == Stalled): // it was being changed when the program ended, for all that is known
		p.held[name] = true
		p.giveUpWaiting(name)
	default: // it asks again once it can begin
		p.takeUnused(name)
	}
}

// takeUnused takes back a permit with which nothing was begun.
func (p *Progress) takeUnused(name mcreconcile.ClusterName) {
	if begun, held := p.held[name]; held && !begun {
		delete(p.held, name)
	}
}

// isSpared reports whether a cluster that could not be read is to be looked at once more before others are changed.
func (p *Progress) isSpared(name mcreconcile.ClusterName) bool {
	p.unread[name]++
	return !p.seen[name] && p.unread[name] < mostUnread
}

// HasFailed reports whether a cluster counts as failed.
func (p *Progress) HasFailed(name mcreconcile.ClusterName) bool {
	_, failed := p.failed[name]
	return failed
}

// Forgive lets a cluster not count as failed any more.
func (p *Progress) Forgive(name mcreconcile.ClusterName) { delete(p.failed, name) }

// ForgiveAll lets none count so.
func (p *Progress) ForgiveAll() { clear(p.failed) }

func (p *Progress) fail(name mcreconcile.ClusterName) {
	delete(p.held, name)
	p.failed[name] = struct{}{}
}

func (p *Progress) giveUpWaiting(name mcreconcile.ClusterName) {
	p.waiting = slices.DeleteFunc(p.waiting, func(n mcreconcile.ClusterName) bool { return n == name })
}

// Away notes that a cluster cannot be used now. It asks again when it can.
func (p *Progress) Away(name mcreconcile.ClusterName) {
	if p.held[name] && p.policy.HaltAfter > 0 {
		p.fail(name)
	}
	p.Absent(name)
}

// Absent notes that a cluster cannot be used for a moment, although nothing has failed. One that is being changed keeps its place. It asks again
// when it can be used.
func (p *Progress) Absent(name mcreconcile.ClusterName) {
	p.absent[name] = true
	p.Pass(name)
}

// Pass gives a cluster's turn to others while nothing can be begun there. It asks again when that is over.
func (p *Progress) Pass(name mcreconcile.ClusterName) {
	p.takeUnused(name)
	p.giveUpWaiting(name)
}

// Left notes that a cluster is no target any more.
func (p *Progress) Left(name mcreconcile.ClusterName) {
	delete(p.held, name)
	delete(p.seen, name)
	delete(p.read, name)
	delete(p.unread, name)
	delete(p.absent, name)
	delete(p.failed, name)
	p.giveUpWaiting(name)
}

// Involved returns the clusters that have a permit, wait for one, or have failed.
func (p *Progress) Involved() []mcreconcile.ClusterName {
	return slices.Concat(slices.Collect(maps.Keys(p.held)), p.waiting, slices.Collect(maps.Keys(p.failed)))
}

// LookedAt returns the clusters that were looked at, or were to be.
func (p *Progress) LookedAt() []mcreconcile.ClusterName {
	return slices.Concat(slices.Collect(maps.Keys(p.seen)), slices.Collect(maps.Keys(p.unread)), slices.Collect(maps.Keys(p.absent)))
}

// HasLookedAt reports whether a cluster was looked at since the program began.
func (p *Progress) HasLookedAt(name mcreconcile.ClusterName) bool { return p.seen[name] }

// IsAbsent reports whether a cluster could not be used when it was last to be looked at.
func (p *Progress) IsAbsent(name mcreconcile.ClusterName) bool { return p.absent[name] }

// HasWaiting reports whether a cluster waits for a permit.
func (p *Progress) HasWaiting() bool { return len(p.waiting) > 0 }

// Queued returns the clusters in which nothing is begun, and whose turn it is now or once others are done: none while it is halted.
func (p *Progress) Queued() map[mcreconcile.ClusterName]bool {
	queued := make(map[mcreconcile.ClusterName]bool, len(p.waiting))
	for _, name := range p.waiting {
		queued[name] = true
	}
	for name, begun := range p.held {
		if !begun {
			queued[name] = true
		}
	}
	return queued
}

// Order lets those clusters have the next permits that are furthest. After a restart, they may be being changed.
func (p *Progress) Order(howFar func(mcreconcile.ClusterName) int) {
	far := make(map[mcreconcile.ClusterName]int, len(p.waiting))
	for _, name := range p.waiting {
		far[name] = howFar(name)
	}
	slices.SortStableFunc(p.waiting, func(a, b mcreconcile.ClusterName) int { return cmp.Compare(far[b], far[a]) })
}

// Grant gives permits, and returns the clusters to be worked on for that. Once it is halted, all that wait are told so.
func (p *Progress) Grant(targets int) []mcreconcile.ClusterName {
	n := len(p.waiting)
	if !p.isHalted() {
		n = min(n, max(0, p.policy.most(targets)-len(p.held)))
	}
	now := slices.Clone(p.waiting[:n])
	p.waiting = slices.Delete(p.waiting, 0, n)
	for _, name := range now {
		if !p.isHalted() {
			p.held[name] = false
		}
	}
	return now
}
