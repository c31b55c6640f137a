package dependents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// progress is how far one owner's rollout is. It is not safe for concurrent use.
type progress struct {
	policy   Rollout
	revision hash                                 // of the owner, which was changed if it is another
	seen     map[mcreconcile.ClusterName]bool     // looked at since the program began
	read     map[mcreconcile.ClusterName]bool     // so, and all kinds could be read
	unread   map[mcreconcile.ClusterName]int      // how often some kind could not be read before it counts as looked at
	held     map[mcreconcile.ClusterName]bool     // permits, by whether anything was begun
	failed   map[mcreconcile.ClusterName]struct{} // since the owner was changed, also before the program began
	waiting  []mcreconcile.ClusterName            // for a permit, in this order
	absent   map[mcreconcile.ClusterName]bool     // could not be used when it was last to be looked at
}

// outcome is what a look at a cluster has come to.
type outcome int8

const (
	notLooked outcome = iota // at what is there
	complete                 // all is as desired, and ready
	notReady                 // nothing is to be written, and something is not ready
	stalled                  // so, and it will not be
	failed                   // see Rollout.HaltAfter
	unread                   // a kind got no answer, or none for now
	other
)

// mostUnread is after how many looks a cluster counts as looked at in which a kind gets no answer: at a start it may come, and where it never
// does, other clusters wait no longer.
const mostUnread = 4

// next returns the progress of an owner that asks for something, nil if nothing is limited. The policy may be another one. If what is
// asked for is another thing than before, failures do not count any more, and all clusters are looked at again.
func (p *progress) next(policy Rollout, revision hash) *progress {
	if !policy.limits() {
		return nil
	}
	if p == nil {
		return &progress{
			policy: policy, revision: revision, seen: map[mcreconcile.ClusterName]bool{},
			read: map[mcreconcile.ClusterName]bool{}, unread: map[mcreconcile.ClusterName]int{},
			held: map[mcreconcile.ClusterName]bool{}, failed: map[mcreconcile.ClusterName]struct{}{}, absent: map[mcreconcile.ClusterName]bool{},
		}
	}
	p.policy = policy
	if p.revision != revision {
		p.revision, p.waiting = revision, nil
		clear(p.failed)
	}
	return p
}

// recall takes over what was noted before the program began, unless that is about something else.
func (p *progress) recall(noted *record.Failures) {
	if p == nil || p.policy.HaltAfter == 0 || noted == nil || noted.Revision != p.revision.String() {
		return
	}
	for _, name := range noted.Clusters {
		p.failed[name] = struct{}{}
	}
}

// failures returns what is to be noted, so that it is known after a restart.
func (p *progress) failures() *record.Failures {
	if p == nil || p.policy.HaltAfter == 0 {
		return nil
	}
	return record.NewFailures(p.revision.String(), slices.Collect(maps.Keys(p.failed)))
}

func (p *progress) isHalted() bool {
	return p.policy.HaltAfter > 0 && len(p.failed) >= p.policy.HaltAfter
}

// ask asks for a permit to change a cluster. The error says why it must wait.
func (p *progress) ask(name mcreconcile.ClusterName, targets int) error {
	if p.hasFailed(name) { // it was begun
		return nil
	}
	begun, held := p.held[name]
	switch {
	case begun, held && !p.isHalted():
		p.held[name] = true
		return nil
	case p.isHalted():
		delete(p.held, name)
		return fmt.Errorf("%w: %d clusters have failed, such as %s, and no further one is changed until the owner is", ErrWaiting, len(p.failed), p.anyFailed())
	case !slices.Contains(p.waiting, name):
		p.waiting = append(p.waiting, name)
	}
	return fmt.Errorf("%w: of %d clusters, %d are changed at once", ErrWaiting, targets, p.policy.most(targets))
}

// anyFailed names clusters that have failed, few if there are many.
func (p *progress) anyFailed() string {
	const few = 3
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(p.failed)) {
		if len(texts) < few {
			texts = append(texts, remote.ClusterText(name))
		}
	}
	return strings.Join(texts, ", ")
}

// note notes what came of a cluster.
func (p *progress) note(name mcreconcile.ClusterName, what outcome) {
	if what == notLooked || what == unread && p.isSpared(name) {
		return
	}
	first := !p.read[name]
	p.seen[name] = true
	p.read[name] = p.read[name] || what != unread
	delete(p.absent, name)
	begun, held := p.held[name]
	switch {
	case what == complete:
		delete(p.held, name)
		p.giveUpWaiting(name)
	case p.hasFailed(name): // it is tried again, without a permit
	case p.policy.HaltAfter > 0 && (what == failed && begun || what == stalled && (begun || first)):
		p.fail(name)
	case first && (what == notReady || what == stalled): // it was being changed when the program ended, for all that is known
		p.held[name] = true
	case held && !begun: // it asks again once it can begin
		delete(p.held, name)
	}
}

// isSpared reports whether a cluster that could not be read is to be looked at once more before others are changed.
func (p *progress) isSpared(name mcreconcile.ClusterName) bool {
	p.unread[name]++
	return !p.seen[name] && p.unread[name] < mostUnread
}

func (p *progress) hasFailed(name mcreconcile.ClusterName) bool {
	_, failed := p.failed[name]
	return failed
}

func (p *progress) fail(name mcreconcile.ClusterName) {
	delete(p.held, name)
	p.failed[name] = struct{}{}
}

func (p *progress) giveUpWaiting(name mcreconcile.ClusterName) {
	p.waiting = slices.DeleteFunc(p.waiting, func(n mcreconcile.ClusterName) bool { return n == name })
}

// away notes that a cluster cannot be used now. It asks again when it can.
func (p *progress) away(name mcreconcile.ClusterName) {
	p.absent[name] = true
	if p.held[name] && p.policy.HaltAfter > 0 {
		p.fail(name)
	}
	p.pass(name)
}

// pass gives a cluster's turn to others while nothing can be begun there. It asks again when that is over.
func (p *progress) pass(name mcreconcile.ClusterName) {
	if begun, held := p.held[name]; held && !begun {
		delete(p.held, name)
	}
	p.giveUpWaiting(name)
}

// left notes that a cluster is no target any more.
func (p *progress) left(name mcreconcile.ClusterName) {
	delete(p.held, name)
	delete(p.seen, name)
	delete(p.read, name)
	delete(p.unread, name)
	delete(p.absent, name)
	delete(p.failed, name)
	p.giveUpWaiting(name)
}

// involved returns the clusters that have a permit, wait for one, or have failed.
func (p *progress) involved() []mcreconcile.ClusterName {
	return slices.Concat(slices.Collect(maps.Keys(p.held)), p.waiting, slices.Collect(maps.Keys(p.failed)))
}

// lookedAt returns the clusters that were looked at, or were to be.
func (p *progress) lookedAt() []mcreconcile.ClusterName {
	return slices.Concat(slices.Collect(maps.Keys(p.seen)), slices.Collect(maps.Keys(p.unread)), slices.Collect(maps.Keys(p.absent)))
}

// grant gives permits, and returns the clusters to be worked on for that. Once it is halted, all that wait are told so.
func (p *progress) grant(targets int) []mcreconcile.ClusterName {
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

// isFailure reports whether an error says that what is desired cannot be had. What is wrong for a while is no failure.
func isFailure(err error) bool {
	return first(each(err), func(one error) bool {
		return errors.Is(one, errStalled) || !isPassing(one) && !errors.Is(one, errLeaving) && !isUnanswered(one)
	}) != nil
}

// isUnread reports whether an error says that a kind cannot be read, and nothing about whether it can be had.
func isUnread(err error) bool {
	return first(each(err), func(one error) bool {
		_, is := errors.AsType[interface {
			error
			NotSynced() (mcreconcile.ClusterName, schema.GroupKind)
		}](one)
		return is && isUnanswered(one)
	}) != nil
}

// isUnanswered reports whether an error says nothing about what was asked for.
func isUnanswered(err error) bool {
	status, answered := errors.AsType[*apierrors.StatusError](err)
	_, sending := errors.AsType[*url.Error](err)
	return answered && (status.ErrStatus.Code >= 500 || apierrors.IsTooManyRequests(err)) || sending || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
