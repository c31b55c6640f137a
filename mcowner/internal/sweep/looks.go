package sweep

import (
	"sync"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// looks are the clusters that are to be swept before their time.
type looks struct {
	mu    sync.Mutex // guards what follows
	names map[mcreconcile.ClusterName]struct{}
	wake  chan struct{}
}

func (l *looks) wakeLocked() chan struct{} {
	if l.wake == nil {
		l.wake = make(chan struct{}, 1)
	}
	return l.wake
}

// Look has a cluster swept soon, by what its cache has. It does not wait for that, and may be called by any goroutine.
func (s *Sweeper) Look(in mcreconcile.ClusterName) {
	s.looks.mu.Lock()
	defer s.looks.mu.Unlock()
	if s.looks.names == nil {
		s.looks.names = map[mcreconcile.ClusterName]struct{}{}
	}
	s.looks.names[in] = struct{}{}
	select {
	case s.looks.wakeLocked() <- struct{}{}:
	default: // it is awake
	}
}

// awake returns what receives when there are clusters to look at.
func (l *looks) awake() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wakeLocked()
}

// take returns the clusters to look at, once. Those that are busy are to be looked at later.
func (l *looks) take() map[mcreconcile.ClusterName]struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := l.names
	l.names = nil
	return names
}
