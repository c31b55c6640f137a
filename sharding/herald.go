package sharding

import (
	"context"
	"time"
)

// herald tells the fleet when it is to ask again, until ctx ends.
func (r *Replica) herald(ctx context.Context, changed func()) {
	for {
		news := false
		t := timer(r.clock, r.untilNews())
		select {
		case <-r.news:
			news = true
		case <-r.arm:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
		if r.isNews() || news {
			changed()
		}
	}
}

// untilNews returns when time alone may bring news: the session lapses, or is valid again, or a member may be taken.
func (r *Replica) untilNews() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := time.Hour
	switch {
	case !r.isOpenLocked():
	case r.suspendedSince.IsZero():
		wait = r.session.remaining() // at once if it has lapsed, which is to be noted
	default:
		wait = r.times.renew // a clock that was set may be set back, and nobody tells
	}
	if r.wakeAt > 0 {
		wait = min(wait, r.wakeAt-r.clock.now().mono)
	}
	return wait
}

// isNews reports whether time alone has brought news, also that which a clock has that was set.
func (r *Replica) isNews() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	news := r.noteSuspensionLocked()
	if r.wakeAt > 0 && r.clock.now().mono >= r.wakeAt {
		r.wakeAt = 0
		return true
	}
	return news
}

// isOpenLocked reports whether there is a session that was opened, and is not lost.
func (r *Replica) isOpenLocked() bool {
	return r.session != nil && r.session.sent.Load() != nil && r.session.over() == nil
}

func (r *Replica) isSuspendedLocked() bool { return r.isOpenLocked() && r.session.remaining() <= 0 }

// noteSuspensionLocked notes whether the session is suspended, and reports whether that is new.
func (r *Replica) noteSuspensionLocked() (news bool) {
	is, s := r.isSuspendedLocked(), r.session
	if is == !r.suspendedSince.IsZero() {
		return false
	}
	if is {
		r.suspendedSince = r.clock.now().wall
		r.count.suspended.Inc()
		r.log.Info("This replica is suspended, as it cannot renew its session: it sends nothing to its members", "session", s.name)
		return true
	}
	if s != nil && s.over() == nil {
		r.log.Info("This replica is suspended no more", "session", s.name, "since", r.suspendedSince)
	}
	r.suspendedSince = time.Time{}
	return true
}

// waitLocked makes the fleet ask again then.
func (r *Replica) waitLocked(at time.Duration) {
	if r.wakeAt == 0 || at < r.wakeAt {
		r.wakeAt = at
		r.arm.send()
	}
}
