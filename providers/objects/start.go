package objects

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// start tells when each object that was there at first has been looked at once. A name that is reported before might
// belong to an older object.
type start struct {
	over chan struct{} // closed then

	mu       sync.Mutex // guards what follows
	expected map[client.ObjectKey]struct{}
	complete bool // nothing more is expected
}

func newStart() *start {
	return &start{over: make(chan struct{}), expected: map[client.ObjectKey]struct{}{}}
}

// expect notes an object that is there at first.
func (s *start) expect(key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.complete {
		s.expected[key] = struct{}{}
	}
}

// noMore says that all objects were expected. It is called once.
func (s *start) noMore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complete = true
	if len(s.expected) == 0 {
		close(s.over)
	}
}

// looked notes that an object was looked at, or takes too long to be waited for.
func (s *start) looked(key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.expected[key]; !ok {
		return
	}
	delete(s.expected, key)
	if s.complete && len(s.expected) == 0 {
		s.expected = nil // it has room for many
		close(s.over)
	}
}
