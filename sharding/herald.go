package sharding

import (
	"context"
	"time"
)

// herald tells the fleet when it is to ask again, until ctx ends.
func (r *Replica) herald(ctx context.Context, changed func()) {
	for ctx.Err() == nil {
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
		if r.isNews() || news {
			changed()
		}
	}
}

// untilNews returns when time alone may bring news: the session lapses, or a member may be taken.
func (r *Replica) untilNews() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isSuspendedLocked() != r.isNotedLocked() {
		return 0
	}
	wait := time.Hour
	if r.session != nil {
		if remaining := r.session.remaining(); remaining > 0 {
			wait = remaining
		}
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

func (r *Replica) isSuspendedLocked() bool {
	s := r.session
	return s != nil && s.sent.Load() != nil && s.over() == nil && s.remaining() <= 0
}

// isNotedLocked reports whether the session was suspended when that was noted last.
func (r *Replica) isNotedLocked() bool { return !r.suspendedSince.IsZero() }

// noteSuspensionLocked notes whether the session is suspended, and reports whether that is new.
func (r *Replica) noteSuspensionLocked() (news bool) {
	is, s := r.isSuspendedLocked(), r.session
	if is == r.isNotedLocked() {
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
