package fleet

import (
	"cmp"
	"context"
	"errors"
)

// ReasonPaused is for members that are Ready and paused: see [Hold].
const ReasonPaused = "Paused"

// ReasonDrained is for members that are [Draining], or cannot be visited, since they are held back so: see [Hold].
const ReasonDrained = "Drained"

// Hold is how people hold a member back, which its provider reports as ever. The zero value does not.
type Hold struct {
	// Paused lets no reconcile of the member begin. It stays engaged, its caches go on, and requests wait until the pause is over.
	Paused bool
	// Drained disengages the member, and keeps it so: see [Drained]. There are no guests of it either.
	Drained bool
	// Leave lets controllers take back first what they have put there, as [Members] does by Leave, and then drains the member. Until
	// then it is neither paused nor drained. What controllers had put there comes back when it is over.
	Leave bool
	// Reason says to people why.
	Reason string
}

// errDrained is why an engagement ends whose member is held back.
var errDrained = errors.New("the member is held back: it is to be drained")

// HoldBy lets a function say which members are held back, and how. It is asked when a member is reported, and when
// [Fleet.HoldChanged] is called, under a lock of the fleet: it must not wait for anything, nor call the fleet. HoldBy is called
// once, before [Fleet.Run].
func (f *Fleet) HoldBy(holds func(ClusterName) Hold) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holds = holds
}

// HoldChanged tells that a name may be held back otherwise than before. It may be that of no member.
func (f *Fleet) HoldChanged(name ClusterName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m, ok := f.members[name]; ok {
		m.holdLocked(f.holdOfLocked(name))
	}
}

func (f *Fleet) holdOfLocked(name ClusterName) Hold {
	if f.holds == nil || name == localName {
		return Hold{}
	}
	return f.holds(name)
}

// holdLocked takes over how the member is held back.
func (m *member) holdLocked(now Hold) {
	before, drained := m.hold, m.isHeldDrainedLocked()
	if now == before {
		return
	}
	m.hold = now
	m.fleet.changedLocked(m.name)
	if now.Paused != before.Paused || now.Drained != before.Drained || now.Leave != before.Leave {
		m.logger().Info("The member is held back otherwise", "paused", now.Paused, "drained", now.Drained, "leave", now.Leave,
			"reason", message(errors.New(now.Reason)))
	}
	if now.Leave != before.Leave {
		m.holdLeavingLocked()
	}
	if m.isHeldDrainedLocked() != drained {
		m.holdDrainedLocked()
	}
}

// holdLeavingLocked lets a member leave as people say, or stay again. What its provider says of that goes before.
func (m *member) holdLeavingLocked() {
	switch {
	case m.withdrawn:
	case m.hold.Leave && m.leaving == nil:
		m.beginLeavingLocked(newHeldLeaving())
	case !m.hold.Leave && m.leaving.isHeld():
		m.endLeavingLocked()
	}
}

// holdDrainedLocked begins or ends that the member is kept drained.
func (m *member) holdDrainedLocked() {
	if m.isHeldDrainedLocked() {
		m.dismissLocked(errDrained)
	}
	m.interrupt()
	m.tellLocked(m.news)
}

// stayDrained disengages a member that is held back so. What it is this replica's own by stays, so that it is no other's.
func (m *member) stayDrained(ctx context.Context) {
	if e := m.giveUpEngagement(); e != nil {
		m.awaitDrain(context.WithoutCancel(ctx), e)
	}
	m.replaced.Wait()
	m.forgetServer()

	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if m.engagement != nil {
		m.logger().Info("Disengaged", "why", errDrained.Error())
		m.fleet.notIdentifiedLocked(m.engagement)
	}
	m.disengagedLocked()
	if !m.endsLocked() && m.isHeldDrainedLocked() {
		m.setStateLocked(Drained, "", m.hold.message())
	}
}

// giveUpEngagement ends the engagement of a member that is to be drained, and returns it, or nil if there is none.
func (m *member) giveUpEngagement() *Engagement {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if m.engagement != nil {
		if !m.endsLocked() {
			m.setStateLocked(Draining, ReasonDrained, "")
		}
		m.engagement.end(errDrained)
	}
	return m.engagement
}

// message says to people why a member is held back.
func (h Hold) message() string {
	return message(errors.New(cmp.Or(h.Reason, "no reason was given")))
}

// isHeldDrained reports whether the member is to be drained, and stay so.
func (m *member) isHeldDrained() bool {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	return m.isHeldDrainedLocked()
}

func (m *member) isHeldDrainedLocked() bool {
	if m.hold.Leave {
		return m.leaving.isHeld() && m.leaving.done
	}
	return m.hold.Drained
}

func (m *member) isPausedLocked() bool { return m.hold.Paused && !m.hold.Leave }
