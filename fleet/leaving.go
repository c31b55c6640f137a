package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/fleet-runtime/fleet-runtime/internal/closed"
)

// ReasonLeaving is for the [Problem] of a member that takes long to leave.
const ReasonLeaving = "Leaving"

// ReasonLeftUndone is for the [Problem] of a member that has left when its time was up.
const ReasonLeftUndone = "LeftUndone"

// leavePatience is how long a member may take to leave before that is a problem, and from one look at what is undone to the
// next.
const leavePatience = 10 * time.Second

// leaving is the time from Leave until the member has left, or stays after all. A nil one is that of a member that stays.
type leaving struct {
	left   chan struct{} // closed when the member has left and is drained, or was removed
	news   chan struct{} // has a token when there may be another engagement
	cancel context.CancelCauseFunc

	held bool // by people, see [Hold]: the member is drained then, and not withdrawn
	done bool // the controllers are done, or their time is up, with a member that people let leave
}

func newLeaving() *leaving {
	return &leaving{left: make(chan struct{}), news: make(chan struct{}, 1), cancel: func(error) {}}
}

func newHeldLeaving() *leaving {
	l := newLeaving()
	l.held = true
	return l
}

// isHeld reports whether it is people that let the member leave.
func (l *leaving) isHeld() bool { return l != nil && l.held }

// stop ends the questions to controllers.
func (l *leaving) stop(why error) {
	if l != nil {
		l.cancel(why)
	}
}

// over tells that the member is none any more.
func (l *leaving) over() {
	if l != nil {
		close(l.left)
	}
}

func (l *leaving) wake() {
	if l != nil {
		wake(l.news)
	}
}

// departed has the names of members that have left, and are still described as such. They are not to join again.
type departed map[ClusterName]struct{}

// forgetDepartedLocked lets a name that has left be a member again.
func (f *Fleet) forgetDepartedLocked(name ClusterName) {
	if _, ok := f.departed[name]; ok {
		delete(f.departed, name)
		f.problems.set(f.opts.Logger, leavingProblem(name))
	}
}

// leavingProblem returns what ends the problem of a member.
func leavingProblem(name ClusterName) Problem {
	return Problem{Provider: fleetItself, About: "leaving", Member: name}
}

func (f *Fleet) leave(described Member) (left <-chan struct{}, err error) {
	if err := described.Validate(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	described.Labels = f.ownLabelsLocked(described.Labels)
	if f.stopped {
		return nil, fmt.Errorf("letting cluster %q leave: %w", described.Name, ErrStopped)
	}
	if m, ok := f.members[described.Name]; ok {
		return m.leaveLocked(described).left, nil
	}
	if _, ok := f.departed[described.Name]; ok {
		return closed.Channel(), nil
	}
	l := f.room.waiting[described.Name].leaving
	if l == nil {
		l = newLeaving()
	}
	f.joinLocked(report{described, l})
	return l.left, nil
}

// leaveLocked takes over what a provider reports of a member that is about to leave.
func (m *member) leaveLocked(described Member) *leaving {
	if !m.withdrawn {
		m.describeLocked(described)
		if m.leaving == nil {
			m.beginLeavingLocked(newLeaving())
		}
		m.leaving.held = false
		if m.leaving.done {
			m.departs = true
			m.withdrawLocked()
		}
		return m.leaving
	}
	if m.leaving != nil && m.successor == nil {
		return m.leaving
	}
	next := &report{Member: described}
	if m.successor != nil {
		next.leaving = m.successor.leaving
	}
	if next.leaving == nil {
		next.leaving = newLeaving()
	}
	m.successor = next
	return next.leaving
}

// stayLocked takes over what a provider reports of a member that stays.
func (m *member) stayLocked(described Member) {
	if m.withdrawn {
		m.successor = &report{Member: described}
		return
	}
	switch {
	case m.leaving == nil:
	case m.hold.Leave:
		m.leaving.held = true
	default:
		m.endLeavingLocked()
	}
	m.describeLocked(described)
}

// endLeavingLocked lets a member stay after all.
func (m *member) endLeavingLocked() {
	m.leaving.stop(errStays)
	m.leaving = nil
	m.tellLeaving()
	m.fleet.problems.set(m.fleet.opts.Logger, leavingProblem(m.name))
	m.logger().Info("The member stays, which was about to leave")
}

// beginLeavingLocked lets a member that is not withdrawn leave.
func (m *member) beginLeavingLocked(l *leaving) {
	m.leaving = l
	m.tellLeaving()
	m.departLocked()
}

// departLocked asks the controllers about a member that leaves, if that is this replica's to do.
func (m *member) departLocked() {
	l := m.leaving
	if l == nil || l.done || !m.ownedLocked() || m.endsLocked() {
		return
	}
	var ctx context.Context
	ctx, l.cancel = context.WithCancelCause(m.fleet.ctx)
	m.fleet.running.Go(func() { m.depart(ctx, l) }) // ends when it has left, or with ctx
}

// tellLeaving tells reconcilers, and whoever follows changes, whether the member is about to leave. The caller holds the
// fleet's lock.
func (m *member) tellLeaving() {
	if m.engagement != nil {
		m.engagement.leaving.Store(m.leaving != nil)
	}
	m.fleet.changedLocked(m.name)
}

// dropSuccessorLocked forgets what was reported while the member was being drained.
func (m *member) dropSuccessorLocked() {
	if m.successor != nil {
		m.successor.leaving.over()
	}
	m.successor = nil
}

// leftLocked tells that the member is drained. If that is since the fleet has ended, it has not left.
func (m *member) leftLocked() {
	if m.stopped || m.leaving == nil {
		return
	}
	if m.departs && m.successor == nil {
		m.fleet.departed[m.name] = struct{}{} // with its problem, if there is one
	} else {
		m.fleet.problems.set(m.fleet.opts.Logger, leavingProblem(m.name))
	}
	m.leaving.over()
}
