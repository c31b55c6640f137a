package namespaces

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// failureLife is for how long a failure is the answer to everybody. Without that, a kind that cannot be had, such as one
// whose CRD is missing, would be looked for once for each member, again and again.
const failureLife = time.Second

// memo keeps a value for each key, which is produced once. Keys that are different must be printed differently. The zero value is
// empty.
type memo[K comparable, V any] struct {
	flights singleflight.Group

	mu       sync.Mutex // guards outcomes; nothing is produced under it
	outcomes map[K]outcome[V]
}

// outcome is a value, or why there is none.
type outcome[V any] struct {
	value V
	err   error
	until time.Time // how long err counts
}

// get returns the value of the key. It produces it, or waits for the caller that does so, until ctx is done.
func (m *memo[K, V]) get(ctx context.Context, key K, produce func() (V, error)) (V, error) {
	if known, ok := m.known(key); ok {
		return known.value, known.err
	}
	made := m.flights.DoChan(fmt.Sprint(key), func() (any, error) {
		known, ok := m.known(key) // another call may have ended this very moment
		if !ok {
			known = m.produce(key, produce)
		}
		return known.value, known.err
	})
	select {
	case result := <-made:
		value, _ := result.Val.(V)
		return value, result.Err
	case <-ctx.Done():
		var none V
		return none, context.Cause(ctx)
	}
}

func (m *memo[K, V]) known(key K) (known outcome[V], ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok = m.outcomes[key]
	return known, ok && (known.err == nil || time.Now().Before(known.until))
}

func (m *memo[K, V]) produce(key K, produce func() (V, error)) outcome[V] {
	value, err := produce()
	made := outcome[V]{value, err, time.Now().Add(failureLife)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.outcomes == nil {
		m.outcomes = map[K]outcome[V]{}
	}
	m.outcomes[key] = made
	return made
}
