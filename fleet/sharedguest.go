package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleet-runtime/fleet-runtime/internal/pulse"
)

const (
	// guestStays is how long a shared guest is kept that nobody uses.
	guestStays = time.Minute
	// mostIdleGuests is how many of them are kept.
	mostIdleGuests = 64
	// guestPause is how long nobody tries again to connect a shared guest after that has failed.
	guestPause = 2 * time.Second
)

// errOwnedHere ends the guests that are shared: the member has an engagement now.
var errOwnedHere = errors.New("this replica works on the member now")

// sharedGuest is a guest that several use. The fleet's lock guards it.
type sharedGuest struct {
	connected chan struct{} // closed when there is a guest, or an error
	guest     *Guest        // set before connected is closed
	err       error
	users     int
	idle      time.Time   // since when nobody uses it
	stay      *time.Timer // ends it; nil while it is used
}

// SharedGuest is [Fleet.Guest] for callers that come again and again: they share one guest of a member. The caller must call leave,
// once, when it needs the guest no more. A guest that nobody uses is kept for a minute, and there are at most 64 of these. It ends
// as others do, when the fleet ends, and when this replica begins to work on the member. For two seconds after a failure to connect, it
// is not tried again. ctx bounds the wait for the connection alone.
func (f *Fleet) SharedGuest(ctx context.Context, name ClusterName) (g *Guest, leave func(), err error) {
	s, err := f.shareGuest(name)
	if err != nil {
		return nil, nil, err
	}
	reconcile := pulse.From(ctx)
	reconcile.Wait(string(name))
	defer reconcile.Heard(string(name))
	select {
	case <-s.connected:
	case <-ctx.Done():
		f.leaveGuest(name, s)
		return nil, nil, fmt.Errorf("connecting to cluster %q as a guest: %w", name, context.Cause(ctx))
	}
	if s.err != nil {
		return nil, nil, s.err // it is forgotten, or about to be
	}
	return s.guest, func() { f.leaveGuest(name, s) }, nil
}

// shareGuest returns what is there of a member's shared guest, and has it connected if nothing is.
func (f *Fleet) shareGuest(name ClusterName) (*sharedGuest, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.guests[name]; s != nil {
		s.users++
		if s.stay != nil && s.err == nil {
			s.stay.Stop()
			s.stay = nil
		}
		return s, nil
	}
	if f.ctx == nil || f.stopped {
		return nil, fmt.Errorf("connecting to cluster %q as a guest: %w", name, ErrStopped)
	}
	s := &sharedGuest{connected: make(chan struct{}), users: 1}
	if f.guests == nil {
		f.guests = map[ClusterName]*sharedGuest{}
	}
	f.guests[name] = s
	f.running.Go(func() { f.connectGuest(name, s) }) // for at most ConnectTimeout
	return s, nil
}

func (f *Fleet) connectGuest(name ClusterName, s *sharedGuest) {
	before := f.visitable(name)
	g, err := f.Guest(f.ctx, name)
	f.mu.Lock()
	defer f.mu.Unlock()
	s.guest, s.err = g, err
	// Closed once it is noted which cluster it is: those that wait may end the guest at once.
	defer close(s.connected)
	if now := f.visitableLocked(name); err != nil && now != nil && now == before { // else that says nothing of the member there is now
		s.stay = time.AfterFunc(guestPause, func() { f.forgetGuest(name, s) })
		return
	}
	if err != nil {
		f.forgetGuestLocked(name, s)
		return
	}
	if f.guests[name] != s {
		g.cancel(errIdle) // whoever has asked for it is long gone
		return
	}
	context.AfterFunc(g.ctx, func() { f.forgetGuest(name, s) })
	switch m := f.members[name]; {
	case m == nil || g.ctx.Err() != nil:
	case !m.ownedLocked():
		m.visited = visited{identity: g.identity, by: g}
	case f.Shared():
		g.cancel(fmt.Errorf("%w: %w", ErrDisengaged, errOwnedHere)) // since it was asked for
	}
}

func (f *Fleet) visitable(name ClusterName) *member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.visitableLocked(name)
}

// visitableLocked returns a member, nil if it is to be removed, or is not known.
func (f *Fleet) visitableLocked(name ClusterName) *member {
	if m := f.members[name]; m != nil && !m.withdrawn {
		return m
	}
	return nil
}

func (f *Fleet) forgetGuest(name ClusterName, s *sharedGuest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetGuestLocked(name, s)
}

// retryGuestLocked lets a guest be connected at once that could not be: there is news of how to reach the member.
func (f *Fleet) retryGuestLocked(name ClusterName) {
	if s := f.guests[name]; s != nil && s.err != nil {
		f.forgetGuestLocked(name, s)
	}
}

// forgetGuestLocked has the next one who asks connect anew.
func (f *Fleet) forgetGuestLocked(name ClusterName, s *sharedGuest) {
	if s.stay != nil {
		s.stay.Stop()
		s.stay = nil
	}
	if f.guests[name] == s {
		delete(f.guests, name)
	}
}

// leaveGuest lets a guest go that nobody uses, after a while, or now the one that nobody has used for longest, if there are many.
func (f *Fleet) leaveGuest(name ClusterName, s *sharedGuest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.users--
	if s.users > 0 || s.err != nil || f.guests[name] != s {
		return
	}
	s.idle = time.Now()
	s.stay = time.AfterFunc(guestStays, func() { f.endGuest(name, s) })
	idle, oldest := 0, s
	for _, other := range f.guests {
		if other.users > 0 {
			continue
		}
		idle++
		if other.idle.Before(oldest.idle) {
			oldest = other
		}
	}
	if idle > mostIdleGuests && oldest.guest != nil {
		oldest.guest.cancel(errIdle)
	}
}

// errIdle ends a guest that nobody uses.
var errIdle = fmt.Errorf("%w: nobody has used the connection lately", ErrDisengaged)

// endGuest ends a guest that nobody uses.
func (f *Fleet) endGuest(name ClusterName, s *sharedGuest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.users > 0 || f.guests[name] != s {
		return
	}
	f.forgetGuestLocked(name, s)
	if s.guest != nil {
		s.guest.cancel(errIdle)
	}
}

// endSharedGuestLocked ends the shared guest of a member that this replica is about to work on.
func (f *Fleet) endSharedGuestLocked(name ClusterName) {
	if s := f.guests[name]; s != nil && s.guest != nil {
		s.guest.cancel(fmt.Errorf("%w: %w", ErrDisengaged, errOwnedHere))
		f.forgetGuestLocked(name, s)
	}
}
