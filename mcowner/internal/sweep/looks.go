package sweep

import (
	"sync"
	"time"

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

// Look has a cluster swept soon, by what its cache has: at once if that was not asked for lately, and otherwise the later the more often
// it was. It does not wait for that, and may be called by any goroutine.
func (s *Sweeper) Look(in mcreconcile.ClusterName) {
	s.looks.mu.Lock()
	defer s.looks.mu.Unlock()
	if _, asked := s.looks.names[in]; asked {
		return
	}
	s.looks.putLocked(in)
	select {
	case s.looks.wakeLocked() <- struct{}{}:
	default: // it is awake
	}
}

func (l *looks) putLocked(in mcreconcile.ClusterName) {
	if l.names == nil {
		l.names = map[mcreconcile.ClusterName]struct{}{}
	}
	l.names[in] = struct{}{}
}

// putBack notes a cluster that is to be looked at later, and wakes nobody.
func (l *looks) putBack(in mcreconcile.ClusterName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.putLocked(in)
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

// mostBetweenLooks is the longest pause between looks at a cluster that is looked at again and again. Whoever writes references to owners
// that are not there asks for a look by each, and a look reads all that the cache has.
const mostBetweenLooks = 30 * time.Second

// quietPauses is after how many of its pauses without a look a cluster is looked at as soon as at first.
const quietPauses = 10

// lookPace says how soon after one look at a cluster the next one may be.
type lookPace struct {
	last  time.Time
	pause time.Duration
}

// left returns how long it is until the next look may be.
func (p *lookPace) left() time.Duration { return p.pause - time.Since(p.last) }

// looked notes a look. The pause after it is longer than the one before, unless the cluster was left alone for long.
func (p *lookPace) looked() {
	if time.Since(p.last) > quietPauses*p.pause {
		p.pause = gatherLooks
	} else {
		p.pause = min(2*p.pause, mostBetweenLooks)
	}
	p.last = time.Now()
}
