package objects

import (
	"maps"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// seen keeps which objects there are in each namespace, for when the labels of the namespace change. It is safe for
// concurrent use.
type seen struct {
	mu   sync.Mutex // guards keys
	keys map[string]map[client.ObjectKey]struct{}
}

func (s *seen) add(key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[key.Namespace] == nil {
		if s.keys == nil {
			s.keys = map[string]map[client.ObjectKey]struct{}{}
		}
		s.keys[key.Namespace] = map[client.ObjectKey]struct{}{}
	}
	s.keys[key.Namespace][key] = struct{}{}
}

func (s *seen) drop(key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys[key.Namespace], key)
	if len(s.keys[key.Namespace]) == 0 {
		delete(s.keys, key.Namespace)
	}
}

func (s *seen) in(namespace string) []client.ObjectKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.keys[namespace]))
}
