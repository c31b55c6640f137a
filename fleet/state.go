package fleet

import (
	"errors"
	"fmt"
	"time"
)

// State is a stage in the life of a member:
//
//	Pending → Connecting → Ready ⇄ Unreachable → Draining → gone
//
// Where several replicas share the members, those of others are NotOwned, and Suspended are those that are owned perhaps. Drained
// are those that people hold back.
type State string

const (
	// Pending members are known but cannot be connected yet: their description is broken.
	Pending State = "Pending"
	// Connecting members are being connected for the first time, with retries.
	Connecting State = "Connecting"
	// Ready members are engaged and reachable.
	Ready State = "Ready"
	// Unreachable members are engaged, but their API server does not answer, or refuses the credentials.
	Unreachable State = "Unreachable"
	// Suspended members are engaged, but this replica cannot prove now that it owns them, as while the local cluster does not
	// answer. Nothing is reconciled; their caches and connections stay.
	Suspended State = "Suspended"
	// Draining members were removed, or go to another replica, or another cluster is about to take their place; what still runs
	// for them is ending.
	Draining State = "Draining"
	// Drained members are known, and not connected, since people hold them back: see [Hold].
	Drained State = "Drained"
	// NotOwned members are worked on by another replica, or by none. Of them this one has the description alone.
	NotOwned State = "NotOwned"
)

// allStates are the states in the order of a life.
func allStates() []State {
	return []State{Pending, Connecting, Ready, Unreachable, Suspended, Draining, Drained, NotOwned}
}

// Status is what the fleet knows of a member at one moment.
type Status struct {
	Name   ClusterName       `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	State  State             `json:"state"`
	// Owner is the replica that works on the member, where several share the members. It is empty while there is none.
	Owner string `json:"owner,omitempty"`
	// Epoch is that of this replica's [Tenure], zero if it does not own the member.
	Epoch int64 `json:"epoch,omitempty"`
	// Leaving says that the member is about to leave: see [Members.Leave]. It is engaged as before meanwhile.
	Leaving bool `json:"leaving,omitempty"`
	// Paused says that no reconcile of the member begins, as people want it: see [Hold].
	Paused bool `json:"paused,omitempty"`
	// Server is the address of the API server that the provider has described, if it has.
	Server string `json:"server,omitempty"`
	// Identity tells which cluster it is: see [Engagement.Identity]. It is that of the last engagement.
	Identity string `json:"identity,omitempty"`
	// Duplicates are the other members that have the same identity: they are the same cluster. Of more than ten, these are
	// the first by name.
	Duplicates []ClusterName `json:"duplicates,omitempty"`
	// Expires is when the credentials end, if the provider knows.
	Expires time.Time `json:"expires,omitzero"`
	// Reason is one CamelCase word for what keeps the member from being Ready, or what is wrong with it while it is.
	Reason string `json:"reason,omitempty"`
	// Message is the reason in full, without secrets.
	Message string `json:"message,omitempty"`
	// Since is when State last changed.
	Since time.Time `json:"since"`
	// Attempts counts the attempts to connect since the member was last connected.
	Attempts int `json:"attempts,omitempty"`
	// NotSynced says what kinds that a controller watches or reads cannot be listed, watched or indexed, ordered by kind.
	NotSynced []NotSynced `json:"notSynced,omitempty"`
}

// Engaged reports whether the member has an engagement: whether it is [Ready], [Unreachable] or [Suspended].
func (s Status) Engaged() bool {
	return s.State == Ready || s.State == Unreachable || s.State == Suspended
}

// What the fleet answers when it is asked for a member that cannot be used. [StateError] wraps one of these.
var (
	// ErrUnknown says that no provider has reported the member. It may come yet: unknown is not gone.
	ErrUnknown = errors.New("no provider has reported this cluster")
	// ErrNotReady says that the member is known but cannot be used now.
	ErrNotReady = errors.New("the cluster is not ready")
	// ErrGone says that the member was removed.
	ErrGone = errors.New("the cluster was removed")
	// ErrNotOwned says that another replica works on the member, or none. [Fleet.Guest] reaches it all the same.
	ErrNotOwned = errors.New("another replica works on the cluster")
)

// ErrStopped is returned for a fleet that has ended.
var ErrStopped = errors.New("the fleet has stopped")

// ErrDisengaged is the cause with which contexts of an engagement end; the error that wraps it says why it ended.
var ErrDisengaged = errors.New("the cluster was disengaged")

// StateError says why a member cannot be used. It wraps one of [ErrUnknown], [ErrNotReady], [ErrGone] and [ErrNotOwned].
type StateError struct {
	Err error
	// Status has the member's name, and the rest of what is known of it.
	Status Status
}

func (e *StateError) Error() string {
	text := fmt.Sprintf("cluster %q: %v", e.Status.Name, e.Err)
	if e.Status.State != "" {
		text += fmt.Sprintf(" (%s since %s", e.Status.State, e.Status.Since.UTC().Format(time.RFC3339))
		if e.Status.Reason != "" {
			text += ": " + e.Status.Reason
		}
		if e.Status.Message != "" {
			text += ": " + e.Status.Message
		}
		text += ")"
	}
	return text
}

// Unwrap returns the sentinel.
func (e *StateError) Unwrap() error { return e.Err }
