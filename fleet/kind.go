package fleet

import (
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// kind is what is known of one kind.
type kind struct {
	mapped   bool
	served   bool        // it was synced once
	read     atomic.Bool // since it was last to be released
	informer cache.Informer
	indexed  map[string]struct{} // the fields that the fleet indexes, and that have been added
	waiting  int                 // sources that wait until it is mapped
	wanted   time.Time           // when somebody last asked for it before it was mapped, or for an index before it was there
	trying   chan struct{}       // closed when the attempt is over that is under way; nil if none is
	again    *again              // nil if no attempt failed
	failing  map[step]failure    // nil if nothing ever failed
	stirred  chan struct{}       // closed at the next change; nil if nobody waits for one
}

// step is one thing about a kind that can fail.
type step struct {
	what  stage
	by    *retrying // of several informers of the kind, the one that lists or watches
	field string    // that is indexed
}

type stage int

const (
	mapping stage = iota
	listing
	watching
	indexing
)

type failure struct {
	why   error
	since time.Time
}

// missing returns why an attempt failed that is needed to read by these fields.
func (s *kind) missing(fields []string) *failure {
	if f, failed := s.failing[step{what: mapping}]; failed {
		return &f
	}
	for _, field := range fields {
		if f, failed := s.failing[step{what: indexing, field: field}]; failed {
			return &f
		}
	}
	return nil
}

func (s *kind) noteLocked(at step, err error) {
	if err == nil {
		delete(s.failing, at)
		return
	}
	f, failed := s.failing[at]
	if !failed {
		f.since = time.Now()
	}
	if s.failing == nil {
		s.failing = map[step]failure{}
	}
	f.why = err
	s.failing[at] = f
	s.stirLocked()
}

// overLocked ends an attempt.
func (s *kind) overLocked() {
	close(s.trying)
	s.trying = nil
	s.stirLocked()
}

func (s *kind) stirLocked() {
	if s.stirred != nil {
		close(s.stirred)
		s.stirred = nil
	}
}

func (s *kind) stirredLocked() <-chan struct{} {
	if s.stirred == nil {
		s.stirred = make(chan struct{})
	}
	return s.stirred
}
