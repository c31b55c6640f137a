package namespaces

import (
	"context"
	"sync"
	"time"
)

// failureLife is how long a failure is answered to all who ask. Without that, a kind that cannot be had, such as one
// whose CRD is missing, would be looked for once for each member, again and again.
const failureLife = time.Second

// memo makes a value for each key, once for all who ask for it. The zero value is empty.
type memo[K comparable, V any] struct {
	mu      sync.Mutex // guards entries; nothing is made under it
	entries map[K]*entry[V]
}

// entry is a value, or the attempt to make it. What follows done is set when that is closed.
type entry[V any] struct {
	done  chan struct{}
	value V
	err   error
	until time.Time // how long err counts
}

// get returns the value of the key. It has it made, or waits for who does that, until ctx is done.
func (m *memo[K, V]) get(ctx context.Context, key K, produce func() (V, error)) (V, error) {
	e, mine := m.entry(key)
	if mine {
		e.value, e.err = produce()
		e.until = time.Now().Add(failureLife)
		close(e.done)
		return e.value, e.err
	}
	select {
	case <-e.done:
		return e.value, e.err
	case <-ctx.Done():
		var none V
		return none, context.Cause(ctx)
	}
}

// entry returns the entry of a key, and whether it is the caller's to fill.
func (m *memo[K, V]) entry(key K) (e *entry[V], mine bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[key]; e != nil && !e.outdated() {
		return e, false
	}
	e = &entry[V]{done: make(chan struct{})}
	if m.entries == nil {
		m.entries = map[K]*entry[V]{}
	}
	m.entries[key] = e
	return e, true
}

func (e *entry[V]) outdated() bool {
	select {
	case <-e.done:
		return e.err != nil && time.Now().After(e.until)
	default:
		return false
	}
}
