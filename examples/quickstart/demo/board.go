package demo

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// stateGone is shown for members that were there before.
const stateGone fleet.State = "Gone"

// board keeps what is known of the members.
type board struct {
	mu      sync.Mutex // guards what follows, and the members
	members members
	changed chan struct{} // closed at the next change
}

type members map[fleet.ClusterName]*member

type member struct {
	state           fleet.State
	reason, message string
	owner           string // the replica that works on it, "" where one process works on all
	epoch           int64
	objects         map[types.NamespacedName]string // the version that was reconciled last, "" once it is gone
	reconciles      int
	event           string
	at              time.Time // of the event
}

// row is what the table shows of a member.
type row struct {
	name                fleet.ClusterName
	state               string
	owner               string
	objects, reconciles int
	event               string
	at                  time.Time
}

func newBoard() *board {
	return &board{members: members{}, changed: make(chan struct{})}
}

// audience is told what happens to members. A board is, and what tells the board of another process.
type audience interface {
	note(s fleet.Status)
	reconciled(req mcreconcile.Request, version string)
}

// follow tells of the states of the members until ctx is done.
func follow(ctx context.Context, f *fleet.Fleet, to audience) {
	for change := range f.Changes(ctx) {
		if change.Status.State == "" {
			change.Status.State = stateGone
		}
		to.note(change.Status)
	}
}

func (b *board) note(s fleet.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.memberLocked(s.Name)
	if s.State == fleet.NotOwned || s.Epoch < m.epoch && s.State != stateGone {
		return // its owner tells
	}
	if m.state == s.State && m.reason == s.Reason && m.message == s.Message && m.epoch == s.Epoch {
		return
	}
	event := "is " + string(s.State)
	if s.Message != "" {
		event += ": " + s.Message
	}
	if s.State == stateGone {
		clear(m.objects)
	}
	m.state, m.reason, m.message, m.owner, m.epoch = s.State, s.Reason, s.Message, s.Owner, s.Epoch
	b.happenedLocked(m, event)
}

// reconciled notes a reconcile, with the version that the object has, "" for none.
func (b *board) reconciled(req mcreconcile.Request, version string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.memberLocked(req.ClusterName)
	before := m.objects[req.NamespacedName]
	m.objects[req.NamespacedName] = version
	m.reconciles++
	event := "changed "
	switch {
	case version == "":
		event = "removed "
	case before == "":
		event = "found "
	case before == version:
		event = "unchanged "
	}
	b.happenedLocked(m, event+req.NamespacedName.String())
}

// ended notes that a replica is no more, so that nobody works on what it owned.
func (b *board) ended(replica, how string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.members {
		if m.owner == replica {
			m.state, m.reason, m.message, m.owner = fleet.NotOwned, "", "", ""
			b.happenedLocked(m, replica+" "+how)
		}
	}
}

func (b *board) memberLocked(name fleet.ClusterName) *member {
	m, ok := b.members[name]
	if !ok {
		m = &member{objects: map[types.NamespacedName]string{}}
		b.members[name] = m
	}
	return m
}

func (b *board) happenedLocked(m *member, event string) {
	m.event, m.at = event, time.Now()
	close(b.changed)
	b.changed = make(chan struct{})
}

// rows returns what is known now, by name, and a channel that is closed at the next change.
func (b *board) rows() ([]row, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rows := make([]row, 0, len(b.members))
	for name, m := range b.members {
		rows = append(rows, m.row(name))
	}
	slices.SortFunc(rows, func(x, y row) int { return cmp.Compare(x.name, y.name) })
	return rows, b.changed
}

func (m *member) row(name fleet.ClusterName) row {
	r := row{name: name, state: string(m.state), owner: m.owner, reconciles: m.reconciles, event: m.event, at: m.at}
	if m.reason != "" {
		r.state += " (" + m.reason + ")"
	}
	for version := range maps.Values(m.objects) {
		if version != "" {
			r.objects++
		}
	}
	return r
}

// ask calls question with the members, and returns a channel that is closed at the next change. question must not keep
// them.
func (b *board) ask(question func(members)) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	question(b.members)
	return b.changed
}

// showEvery is the least time between two pictures of the board.
const showEvery = 100 * time.Millisecond

// display shows the board whenever it changed, until ctx is done.
func (b *board) display(ctx context.Context, screen screen) {
	pause := time.NewTicker(showEvery)
	defer pause.Stop()
	for {
		rows, changed := b.rows()
		screen.show(rows)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}
