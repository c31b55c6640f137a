package fleet

import (
	"context"
	"iter"
	"sync"
)

// Change is what holds for a member at one moment.
type Change struct {
	// Status has the member's name. Its State is empty if it is no member any more. Leaving says then that it was about to leave
	// when it went, of the last thousand or so that went.
	Status Status
	// Engagement is that of a member that is [Ready] or [Unreachable], and nil for any other. Sources attach to it: their
	// watches outlast a time in which the member cannot be reached. Requests need [Fleet.Engagement].
	Engagement *Engagement
}

// Changes yields every member that there is and then, until ctx is done, every member that changed: one that was reported,
// engaged, removed, began to leave, or whose state, reason, labels or kinds that are not synced are others now. Changes that follow each
// other quickly are yielded once, with what holds then.
//
// Each loop is told on its own, and may be as slow as it likes. A member is not yielded while the body for it runs.
func (f *Fleet) Changes(ctx context.Context) iter.Seq[Change] { return f.changes(ctx, false) }

// changes is Changes, if wanted with the local cluster where that has an owner.
func (f *Fleet) changes(ctx context.Context, withLocal bool) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		s := f.subscribe(withLocal)
		defer f.unsubscribe(s)
		for {
			for name, ok := s.next(); ok; name, ok = s.next() {
				if ctx.Err() != nil || !yield(f.now(name)) {
					return
				}
			}
			select {
			case <-s.wake:
			case <-ctx.Done():
				return
			}
		}
	}
}

// now returns what holds for a member now.
func (f *Fleet) now(name ClusterName) Change {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.memberLocked(name)
	if m == nil {
		left, _ := f.gone.Get(name)
		return Change{Status: Status{Name: name, Leaving: left == true}}
	}
	now := Change{Status: m.statusLocked()}
	if now.Status.Engaged() && !m.endsLocked() {
		now.Engagement = m.engagement
	}
	return now
}

// subscription collects the names that one loop over Changes has yet to see, each once, in order.
type subscription struct {
	wake      chan struct{} // has a token when names may be waiting
	withLocal bool

	mu    sync.Mutex // guards what follows
	dirty map[ClusterName]struct{}
	order []ClusterName
}

func (s *subscription) add(name ClusterName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waiting := s.dirty[name]; waiting {
		return
	}
	s.dirty[name] = struct{}{}
	s.order = append(s.order, name)
	wake(s.wake)
}

func (s *subscription) next() (ClusterName, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.order) == 0 {
		return "", false
	}
	name := s.order[0]
	s.order = s.order[1:]
	delete(s.dirty, name)
	return name, true
}

func (f *Fleet) subscribe(withLocal bool) *subscription {
	s := &subscription{wake: make(chan struct{}, 1), withLocal: withLocal, dirty: map[ClusterName]struct{}{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subscriptions[s] = struct{}{}
	for name := range f.members {
		s.add(name)
	}
	if f.home != nil && withLocal {
		s.add(localName)
	}
	return s
}

func (f *Fleet) unsubscribe(s *subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.subscriptions, s)
}

// changedLocked tells every subscription. The caller holds f.mu.
func (f *Fleet) changedLocked(name ClusterName) {
	for s := range f.subscriptions {
		if name != localName || s.withLocal {
			s.add(name)
		}
	}
}

// wake leaves a token in c, a channel of capacity one, unless one is there.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
