package fleet

import (
	"errors"
	"fmt"
	"time"

	"github.com/fleet-runtime/fleet-runtime/internal/gate"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// localName is the name of the local cluster.
const localName = mcreconcile.LocalCluster

// ReasonUnproved is for members that are [Suspended].
const ReasonUnproved = "OwnershipUnproved"

// ReasonHandedOver is for members that are [Draining] since another replica is to work on them.
const ReasonHandedOver = "HandedOver"

// errRelabelled is why a tenure ends whose member has other labels now.
var errRelabelled = errors.New("by its labels, another replica may be the one to work on it")

// share is what a replica has of a member, where several share them. The fleet's lock guards it.
type share struct {
	tenure    Tenure              // nil if the member is not owned, or all are
	spent     func(time.Duration) // as Owner has it
	owner     string
	why       string // it is not owned
	over      error  // why the member is given up, nil unless it is
	suspended bool
}

// tell adds to a status of the member.
func (s *share) tell(status *Status) {
	status.Owner = s.owner
	if s.tenure != nil {
		status.Epoch = s.tenure.Epoch()
	}
}

// Shared reports whether several replicas share the members: whether [Options.Ownership] is set.
func (f *Fleet) Shared() bool { return f.opts.Ownership != nil }

// ownershipChanged looks at each member anew.
func (f *Fleet) ownershipChanged() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return // all are about to be drained, once
	}
	for _, m := range f.members {
		m.reviewLocked()
	}
	if f.home != nil {
		f.home.reviewLocked()
	}
}

func (m *member) reviewLocked() {
	switch {
	case m.endsLocked(): // it asks again when it is drained
	case m.share.tenure == nil:
		m.claimLocked()
	case m.share.tenure.Over() != nil:
		m.disownLocked(m.share.tenure.Over())
	default:
		m.suspendLocked(m.share.tenure.Remaining() <= 0)
	}
}

// ownedLocked reports whether this replica owns the member, perhaps without a proof at the moment.
func (m *member) ownedLocked() bool { return !m.fleet.Shared() || m.share.tenure != nil }

// endsLocked reports whether the member is being drained, or about to be.
func (m *member) endsLocked() bool { return m.withdrawn || m.share.over != nil }

// claimLocked begins to work on a member, if this replica is the one.
func (m *member) claimLocked() {
	if !m.takeLocked() {
		m.resting = true
		return
	}
	m.resting = false
	m.measured = measured{reported: time.Now()}
	if m != m.fleet.home {
		m.fleet.series.addLocked(m, m.fleet.opts.MaxMemberSeries)
	}
	m.setStateLocked(Pending, "", "")
	m.fleet.runLocked(m)
	m.departLocked()
}

func (m *member) takeLocked() (taken bool) {
	if !m.fleet.Shared() {
		return true
	}
	owner := m.fleet.opts.Ownership.Own(m.name, m.described.Labels)
	before := m.share
	m.share = share{tenure: owner.Tenure, spent: owner.Spent, owner: owner.Replica, why: owner.Why}
	if owner.Tenure != nil {
		m.share.suspended = owner.Tenure.Remaining() <= 0
		m.fleet.endSharedGuestLocked(m.name)
		m.visited = visited{} // the engagement tells from now on
		return true
	}
	m.setStateLocked(NotOwned, "", m.share.explain())
	if before.owner != owner.Replica {
		m.fleet.changedLocked(m.name)
	}
	return false
}

// explain says where a member is that is not owned.
func (s *share) explain() string {
	switch {
	case s.why != "":
		return s.why
	case s.owner == "":
		return "no replica works on it now"
	}
	return fmt.Sprintf("replica %s works on it", s.owner)
}

// disownLocked starts the drain of a member that this replica gives up.
func (m *member) disownLocked(why error) {
	m.share.over = why
	m.leaving.stop(why)
	m.setStateLocked(Draining, ReasonHandedOver, message(why))
	m.interrupt()
	m.tellLocked(m.news)
}

// relabelledLocked asks whether a member is still this replica's that has other labels, or has become so.
func (m *member) relabelledLocked() {
	switch {
	case !m.fleet.Shared() || m.endsLocked() || m.fleet.stopped:
	case m.share.tenure == nil:
		m.claimLocked()
	case !m.share.tenure.Covers(m.described.Labels):
		m.disownLocked(errRelabelled)
	default:
		m.fleet.opts.Ownership.Own(m.name, m.described.Labels) // which may weigh something else now
	}
}

// releaseLocked ends the work of this replica on a member that is drained.
func (m *member) releaseLocked() {
	if m.ownedLocked() && m != m.fleet.home {
		m.fleet.series.removeLocked(m)
	}
	if m.share.tenure != nil {
		m.share.tenure.Release()
	}
	m.disengagedLocked()
	m.rotations = 0
}

// disengagedLocked forgets the engagement, which is drained.
func (m *member) disengagedLocked() {
	m.engagement, m.engagedAs, m.impostor, m.problem = nil, nil, false, problem{}
	m.attempts, m.interrupt, m.forgetServer = 0, func() {}, func() {}
}

// suspendLocked stops the reconciles of a member as long as this replica cannot prove that it owns it.
func (m *member) suspendLocked(suspended bool) {
	if m.share.suspended == suspended {
		return
	}
	m.share.suspended = suspended
	switch e := m.engagement; {
	case e == nil:
	case suspended:
		m.pauseLocked(e)
	default:
		e.resume()
		m.healthLocked(e)
	}
}

func (m *member) pauseLocked(e *Engagement) {
	m.setStateLocked(Suspended, ReasonUnproved, unproved)
	e.suspend(m.stateErrorLocked())
}

// publishLocked shows the state of a new engagement, and lets its reconciles begin.
func (m *member) publishLocked(e *Engagement) {
	if m.share.suspended {
		m.pauseLocked(e)
		return
	}
	e.resume()
	m.setStateLocked(e.state, classify(e.why), message(e.why))
}

const unproved = "this replica cannot prove that it owns the member, as the local cluster does not answer in time"

// stateErrorLocked says why the member cannot be used.
func (m *member) stateErrorLocked() *StateError {
	err := &StateError{Err: ErrNotReady, Status: m.statusLocked()}
	if m.state == NotOwned || m.share.over != nil {
		err.Err = ErrNotOwned
	}
	return err
}

// currentGate returns what lets requests pass while this replica owns the member, in which epoch it does, and what is told how
// long reconciles take. They are zero if that is always so.
func (m *member) currentGate() (*gate.Gate, int64, func(time.Duration)) {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	tenure := m.share.tenure
	if tenure == nil {
		return nil, 0, nil
	}
	return &gate.Gate{Remaining: tenure.Remaining, Refusal: func() error { return m.refusal(tenure) }}, tenure.Epoch(), m.share.spent
}

// refusal says why nothing may be sent on behalf of the member.
func (m *member) refusal(tenure Tenure) error {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	status := Status{Name: m.name, State: Suspended, Reason: ReasonUnproved, Message: unproved, Since: m.since, Owner: m.share.owner}
	if over := tenure.Over(); over != nil {
		status.State, status.Reason, status.Message = Draining, ReasonHandedOver, message(over)
		return &StateError{Err: ErrNotOwned, Status: status}
	}
	return &StateError{Err: ErrNotReady, Status: status}
}
