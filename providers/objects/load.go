package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// errOutdated says that a config cannot be made any more of what an object says. The fleet is about to hear of that.
var errOutdated = errors.New("the object that describes the member has changed meanwhile")

// loading returns the member without its config, which can be made of the object again. Without a revision nobody could tell whether
// it is the same.
func (w *worker[T]) loading(key client.ObjectKey, m fleet.Member) fleet.Member {
	if m.Config == nil || m.Revision == "" {
		return m
	}
	name, revision := m.Name, m.Revision
	m.Config = nil
	m.Load = func() (*rest.Config, error) { return w.load(key, name, revision) }
	return m
}

// load makes the config of a member of the object as it is kept.
func (w *worker[T]) load(key client.ObjectKey, name fleet.ClusterName, revision string) (*rest.Config, error) {
	ctx, cancel := context.WithTimeout(context.Background(), w.provider.Timeout)
	defer cancel()
	obj := w.provider.Object.DeepCopyObject().(T)
	if err := w.own.Get(ctx, key, obj); err != nil {
		return nil, fmt.Errorf("reading %s, which describes it: %w", w.about(key), err)
	}
	members, err := w.callMembers(ctx, key, obj, w.also)
	if err != nil {
		return nil, fmt.Errorf("reading %s, which describes it: %w", w.about(key), err)
	}
	for _, m := range members {
		if m.Name == name && m.Revision == revision && m.Config != nil {
			return m.Config, nil
		}
	}
	return nil, errOutdated
}

// turns lets calls for one object follow each other. The zero value has none.
type turns struct {
	mu    sync.Mutex // guards of
	taken map[client.ObjectKey]chan struct{}
}

// take waits until no other has the turn of a key. It returns what ends this one, or why it did not come.
func (t *turns) take(ctx context.Context, key client.ObjectKey) (end func(), err error) {
	for {
		before := t.takeNow(key)
		if before == nil {
			return func() { t.end(key) }, nil
		}
		select {
		case <-before:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// takeNow takes the turn, or returns what is closed when the one of now ends.
func (t *turns) takeNow(key client.ObjectKey) (before <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if over, taken := t.taken[key]; taken {
		return over
	}
	if t.taken == nil {
		t.taken = map[client.ObjectKey]chan struct{}{}
	}
	t.taken[key] = make(chan struct{})
	return nil
}

func (t *turns) end(key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.taken[key])
	delete(t.taken, key)
}
