package sharding

import (
	"math/rand/v2"
	"time"

	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
)

// progress is how far a session is, from joining to leaving. The goroutine that serves the session has it.
type progress struct {
	*Replica
	done   <-chan struct{} // the replica is to end; nil once that was heard
	begun  instant
	joined bool
	// declined is set when the session is to end without having joined, and nobody can let it join any more.
	declined bool
	left     bool // the session is in no table any more, or cannot wait for that
	told     bool // it has left, and the others know

	readySince instant // since when buckets can be acknowledged, the zero value if there are none
	drainedAt  instant // since when nothing runs any more, of a replica that is to end

	conflicts int // writes of the table in succession in which another was faster

	allowance protocol.Allowance // of moves, where costs are measured

	reviewAt   time.Duration         // by the monotonic clock: when to plan again although nothing has changed
	mixedSince instant               // since when several revisions are in the table, the zero value if there is one
	kept       map[int]time.Duration // until when buckets stay where they are, that were not given up when they were to move
}

// keep notes that a bucket stays where it is until then.
func (l *progress) keep(b int, until time.Duration) {
	if l.kept == nil {
		l.kept = map[int]time.Duration{}
	}
	l.kept[b] = until
}

// keeps returns the buckets that stay where they are now.
func (l *progress) keeps(now instant) map[int]bool {
	keeps := make(map[int]bool, len(l.kept))
	for b, until := range l.kept {
		if now.mono < until {
			keeps[b] = true
		} else {
			delete(l.kept, b)
		}
	}
	return keeps
}

// backOff counts a write in which another was faster.
func (l *progress) backOff() { l.conflicts = min(l.conflicts+1, 16) }

// breathe returns the pause before the next turn: a short one, and where many replicas write at once, a random one that is longer
// with each attempt.
func (l *progress) breathe() time.Duration {
	if l.conflicts == 0 {
		return breath
	}
	longest := min(breath<<l.conflicts, l.times.step, 2*batch)
	return breath + rand.N(longest) //nolint:gosec // nobody gains by guessing a pause
}

// await waits until there is something to decide, or that long.
func (l *progress) await(s *session, atMost time.Duration) {
	pause := timer(l.clock, l.breathe())
	select { // so that a burst of news is one
	case <-pause.C:
	case <-l.done:
	}
	pause.Stop()
	t := timer(l.clock, atMost)
	defer t.Stop()
	select {
	case <-l.work:
	case <-t.C:
	case <-l.done:
		l.begin(s)
	}
	if l.done == nil {
		l.look(s)
	}
}

// begin gives up everything that the session owns.
func (l *progress) begin(s *session) {
	l.done = nil
	l.mu.Lock()
	defer l.mu.Unlock()
	s.draining.Store(true)
	if l.table.content != nil {
		l.applyLocked()
	}
	s.hurry.send()
}

// look finds out whether the session has left. If the API server does not answer, the session does not wait for it for ever once
// nothing runs any more: others fence it then.
func (l *progress) look(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.now()
	if l.table.content != nil && l.table.problem == nil && !l.table.content.Has(s.name) && (l.joined || l.declined) {
		l.left, l.told = true, true
		return
	}
	if l.tenures > 0 {
		l.drainedAt = instant{}
		return
	}
	if l.drainedAt == (instant{}) {
		l.drainedAt = now
	}
	if now.since(l.drainedAt) > l.times.renew {
		l.left = true
		l.log.Info("This replica ends without telling the others, as the local cluster does not answer; they take over when its session is silent")
	}
}
