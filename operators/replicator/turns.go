package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// mostTurns is how many workers evaluate overrides of one tenant at once. The others of 16 are for other tenants.
	mostTurns = 4
	// mostWait is how long a worker waits for a turn. Overrides take microseconds, but for those that somebody wrote to take long.
	mostWait = 100 * time.Millisecond
)

// turns keeps the overrides of one tenant from holding all workers. The zero value is ready, and may be used by several workers at once.
type turns struct {
	mu sync.Mutex // guards what follows
	of map[string]*tenantTurns
}

// tenantTurns are kept while somebody has one, or waits for one.
type tenantTurns struct {
	free  *semaphore.Weighted
	users int
}

// take waits for a turn of the tenant that has a namespace. The caller must end it, if there is no error.
func (t *turns) take(ctx context.Context, namespace string) (end func(), err error) {
	free := t.join(namespace)
	waiting, cancel := context.WithTimeout(ctx, mostWait)
	defer cancel()
	if err := free.Acquire(waiting, 1); err != nil {
		t.leave(namespace)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("overrides of namespace %s take long, and %d are evaluated at once: %w", namespace, mostTurns, err)
	}
	return func() {
		free.Release(1)
		t.leave(namespace)
	}, nil
}

func (t *turns) join(namespace string) *semaphore.Weighted {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]*tenantTurns{}
	}
	if t.of[namespace] == nil {
		t.of[namespace] = &tenantTurns{free: semaphore.NewWeighted(mostTurns)}
	}
	t.of[namespace].users++
	return t.of[namespace].free
}

func (t *turns) leave(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[namespace].users--; t.of[namespace].users == 0 {
		delete(t.of, namespace)
	}
}
