package fleet

import (
	"context"
	"iter"
	"sync"
)

// Changes yields the name of every member that there is and then, until ctx is done, of every member that changed: one
// that was reported, engaged, removed, or whose state or labels are others now. Changes that follow each other quickly
// are yielded once, so the loop's body looks up what holds now, with [Fleet.Engagement] and [Fleet.Status].
//
// Each loop is told on its own, and may be as slow as it likes. A name is not yielded while the body for it runs.
func (f *Fleet) Changes(ctx context.Context) iter.Seq[ClusterName] {
	return func(yield func(ClusterName) bool) {
		s := f.subscribe()
		defer f.unsubscribe(s)
		for {
			for name, ok := s.next(); ok; name, ok = s.next() {
				if ctx.Err() != nil || !yield(name) {
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

// subscription collects the names that one loop over Changes has yet to see, each once, in order.
type subscription struct {
	wake chan struct{} // has a token when names may be waiting

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

func (f *Fleet) subscribe() *subscription {
	s := &subscription{wake: make(chan struct{}, 1), dirty: map[ClusterName]struct{}{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subscriptions[s] = struct{}{}
	for name := range f.members {
		s.add(name)
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
		s.add(name)
	}
}

// wake leaves a token in c, a channel of capacity one, unless one is there.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
