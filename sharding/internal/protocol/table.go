package protocol

import (
	"maps"
	"slices"
)

// Bounds of a table. What Decode accepts is within them, and so is what it costs.
const (
	DefaultBuckets = 1024
	MaxBuckets     = 16384
	MaxSessions    = 1000
	// MaxCapacity bounds what a replica can say of itself. It keeps loads times capacities far from the end of an int64.
	MaxCapacity = 1000
)

// Table says which session owns which bucket. It is what all replicas agree on: each reads it, clones it with Next, changes
// the clone by transitions, and writes that at the resourceVersion that was read.
//
// Readers may share a table that nobody changes.
type Table struct {
	// Gen counts the writes. A reader never goes back to a table of a smaller one.
	Gen int64
	// Sessions are in order of joining. The first live one plans.
	Sessions []Member
	// Owner is the session that owns a bucket, empty if none does.
	Owner []string
	// Moving is the session that is to own a bucket, once its owner has acknowledged. Only buckets with an owner move.
	Moving map[int]string
	// Epoch grows with each new owner of a bucket.
	Epoch []int64
}

// Member is what a session said of itself when it joined.
type Member struct {
	Session string
	// Revision tells the versions of the manager apart during a rolling update.
	Revision string
	// Capacity is the share of the load that the session takes, relative to the others. Zero counts as 1.
	Capacity int
}

// New returns a table of which nobody owns anything. Its Gen and its epochs begin at start. With the time in milliseconds, a table
// that replaces one that was deleted is newer than that, and so are its epochs.
func New(buckets int, start int64) *Table {
	t := &Table{Gen: start, Owner: make([]string, buckets), Moving: map[int]string{}, Epoch: make([]int64, buckets)}
	for b := range t.Epoch {
		t.Epoch[b] = start
	}
	return t
}

// Clone returns a copy that shares nothing with t.
func (t *Table) Clone() *Table {
	return &Table{
		Gen:      t.Gen,
		Sessions: slices.Clone(t.Sessions),
		Owner:    slices.Clone(t.Owner),
		Moving:   maps.Clone(t.Moving),
		Epoch:    slices.Clone(t.Epoch),
	}
}

// Next returns the copy of t that is to be changed and written: its Gen is one greater.
func (t *Table) Next() *Table {
	next := t.Clone()
	next.Gen++
	return next
}

// AtLeast returns a copy whose Gen and epochs are start where they are less. So a table goes on after another that was lost: nobody had a
// bucket with one of its epochs before.
func (t *Table) AtLeast(start int64) *Table {
	raised := t.Clone()
	raised.Gen = max(raised.Gen, start)
	for b := range raised.Epoch {
		raised.Epoch[b] = max(raised.Epoch[b], start)
	}
	return raised
}

// Buckets is how many there are. It stays the same for as long as a table lives.
func (t *Table) Buckets() int { return len(t.Owner) }

// Newer tells whether t is to replace what a replica goes by. Nil is older than any table. What a watch or an answer brings late
// is not newer.
func (t *Table) Newer(than *Table) bool { return than == nil || t.Gen > than.Gen }

// Has tells whether a session has joined, and has neither left nor been buried.
func (t *Table) Has(session string) bool {
	return slices.ContainsFunc(t.Sessions, func(m Member) bool { return m.Session == session })
}

// Holds tells whether the table lets a session work on a bucket: the session owns it, and need not give it up.
// The session must be valid besides.
func (t *Table) Holds(session string, b int) bool {
	_, moving := t.Moving[b]
	return session != "" && t.Owner[b] == session && !moving
}

// Rank returns how many live sessions have joined before this one. Rank 0 plans at once, and each further one waits a little
// longer, in case those before it do not. The rank of a session that has not joined is -1.
func (t *Table) Rank(session string, live func(session string) bool) int {
	rank := 0
	for _, m := range t.Sessions {
		switch {
		case m.Session == session:
			return rank
		case live(m.Session):
			rank++
		}
	}
	return -1
}

// Due returns the buckets that a session has to drain and then to acknowledge, in ascending order: those that are moving away,
// and if the session leaves, all that it owns.
func (t *Table) Due(session string, leaving bool) []int {
	var due []int
	for b, owner := range t.Owner {
		if owner == session && (leaving || !t.Holds(session, b)) {
			due = append(due, b)
		}
	}
	return due
}
