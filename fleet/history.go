package fleet

import (
	"slices"
	"strings"
	"time"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

// Transition is what a member became at one moment: a state, or another reason for being in it.
type Transition struct {
	Time   time.Time `json:"time"`
	State  State     `json:"state"`
	Reason string    `json:"reason,omitempty"`
	// Message is that of the moment, shortened to 256 bytes, without secrets.
	Message string `json:"message,omitempty"`
}

const (
	// mostTransitions are remembered of each member, and mostTransitionMessage bytes of each message: with the 72 bytes of a
	// Transition that is 5.2 KB of a member at most, and 0.3 KB of one that became Ready at once and stayed so.
	mostTransitions       = 16
	mostTransitionMessage = 256
)

// history has the last transitions of a member, the oldest first.
type history []Transition

func (h *history) add(t Transition) {
	t.Message = strings.Clone(oneline.Text(t.Message, mostTransitionMessage)) // what was cut off is not kept
	if len(*h) == mostTransitions {
		*h = slices.Delete(*h, 0, 1)
	}
	*h = append(*h, t)
}

// History returns the last transitions of a member, at most 16, the oldest first. It is nil for what is no member, and for one
// that another replica works on: what this one remembers goes when it gives the member up.
func (f *Fleet) History(name ClusterName) []Transition {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m, ok := f.members[name]; ok {
		return slices.Clone(m.history)
	}
	return nil
}

// rememberLocked adds what the member is now to its history, or forgets that of one that is another replica's.
func (m *member) rememberLocked() {
	if m.state == NotOwned {
		m.history = nil
		return
	}
	m.history.add(Transition{Time: time.Now(), State: m.state, Reason: m.reason, Message: m.message})
}
