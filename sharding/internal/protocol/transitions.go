package protocol

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Join adds a session behind those that are there. Its Lease must exist before.
func (t *Table) Join(m Member) error {
	switch {
	case t.Has(m.Session):
		return fmt.Errorf("session %q has joined before", m.Session)
	case len(t.Sessions) >= MaxSessions:
		return fmt.Errorf("session %q cannot join: the table has %d sessions, and cannot have more", m.Session, MaxSessions)
	}
	if err := m.validate(); err != nil {
		return err
	}
	t.Sessions = append(t.Sessions, m)
	return nil
}

// Claim gives a bucket that nobody owns to a session.
func (t *Table) Claim(b int, to string) error {
	if err := t.exists(b); err != nil {
		return err
	}
	if owner := t.Owner[b]; owner != "" {
		return fmt.Errorf("bucket %d cannot be claimed for session %q: session %q owns it", b, to, owner)
	}
	if !t.Has(to) {
		return fmt.Errorf("bucket %d cannot be claimed for session %q: it has not joined", b, to)
	}
	t.give(b, to)
	return nil
}

// Move asks the owner of a bucket to drain it, so that another session can own it.
func (t *Table) Move(b int, to string) error {
	if err := t.exists(b); err != nil {
		return err
	}
	target, moving := t.Moving[b]
	switch {
	case t.Owner[b] == "":
		return fmt.Errorf("bucket %d cannot move to session %q: nobody owns it, so it can be claimed", b, to)
	case moving:
		return fmt.Errorf("bucket %d cannot move to session %q: it moves to session %q", b, to, target)
	case t.Owner[b] == to:
		return fmt.Errorf("bucket %d cannot move to session %q: that owns it", b, to)
	case !t.Has(to):
		return fmt.Errorf("bucket %d cannot move to session %q: it has not joined", b, to)
	}
	t.Moving[b] = to
	return nil
}

// Acknowledge gives a bucket up. Only its owner may do that, after everything that ran for the bucket has ended. The bucket
// belongs to the session that it was moving to, or to nobody if there was none.
func (t *Table) Acknowledge(b int, by string) (to string, err error) {
	if err := t.exists(b); err != nil {
		return "", err
	}
	if owner := t.Owner[b]; owner != by || by == "" {
		return "", fmt.Errorf("bucket %d cannot be given up by session %q: session %q owns it", b, by, owner)
	}
	to = t.Moving[b]
	t.give(b, to)
	return to, nil
}

// Cancel lets the owner of a bucket keep it.
func (t *Table) Cancel(b int) error {
	if _, moving := t.Moving[b]; !moving {
		return fmt.Errorf("the move of bucket %d cannot be cancelled: it is not moving", b)
	}
	delete(t.Moving, b)
	return nil
}

// Bury removes a session that can never work again: nobody owns what it owned, and nothing moves to it. It is allowed only when
// Judge said so of the session's Lease, as a live read found it, or as the write left it that fenced it.
func (t *Table) Bury(session string) error {
	if !t.Has(session) {
		return fmt.Errorf("session %q cannot be buried: it is not in the table", session)
	}
	for b, owner := range t.Owner {
		if owner == session {
			t.give(b, "")
		}
	}
	t.remove(session)
	return nil
}

// Leave removes a session that owns nothing. That is what a session does last.
func (t *Table) Leave(session string) error {
	if !t.Has(session) {
		return fmt.Errorf("session %q cannot leave: it is not in the table", session)
	}
	if due := t.Due(session, true); len(due) > 0 {
		return fmt.Errorf("session %q cannot leave: it owns %d buckets, such as %d", session, len(due), due[0])
	}
	t.remove(session)
	return nil
}

// give makes a session the owner of a bucket. Nobody is the empty session, which needs no epoch.
func (t *Table) give(b int, to string) {
	t.Owner[b] = to
	if to != "" {
		t.Epoch[b]++
	}
	delete(t.Moving, b)
}

func (t *Table) remove(session string) {
	maps.DeleteFunc(t.Moving, func(_ int, to string) bool { return to == session })
	t.Sessions = slices.DeleteFunc(t.Sessions, func(m Member) bool { return m.Session == session })
}

func (t *Table) exists(b int) error {
	if b < 0 || b >= len(t.Owner) {
		return fmt.Errorf("there is no bucket %d: the table has %d", b, len(t.Owner))
	}
	return nil
}

const (
	maxSession  = 253 // The name of an object.
	maxRevision = 63  // The value of a label.
)

// isNoPart reports whether a character is in no name: names are shown in lines of logs and of pages.
func isNoPart(c rune) bool { return c <= ' ' || c > '~' }

func (m Member) validate() error {
	switch {
	case m.Session == "":
		return errors.New("a session needs a name")
	case len(m.Session) > maxSession:
		return fmt.Errorf("the name of a session has at most %d bytes, and this one %d", maxSession, len(m.Session))
	case strings.ContainsFunc(m.Session+m.Revision, isNoPart):
		return fmt.Errorf("session %q of revision %q: a name has no spaces, and no characters but those of ASCII", m.Session, m.Revision)
	case len(m.Revision) > maxRevision:
		return fmt.Errorf("session %q: a revision has at most %d bytes, and this one %d", m.Session, maxRevision, len(m.Revision))
	case m.Capacity < 0 || m.Capacity > MaxCapacity:
		return fmt.Errorf("session %q: a capacity is between 0 and %d, and this one is %d", m.Session, MaxCapacity, m.Capacity)
	}
	return nil
}
