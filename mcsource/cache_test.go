package mcsource

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scripted is a cache whose informers come when there is no error left.
type scripted struct {
	cache.Cache
	cache.Informer
	errs   []error
	refuse error

	mu       sync.Mutex // guards handlers
	handlers map[*gate]bool
}

// GetInformer implements cache.Cache.
func (s *scripted) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return nil, err
	}
	return s, nil
}

// AddEventHandlerWithOptions implements cache.Informer. The gate is its own registration.
func (s *scripted) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, _ toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	if s.refuse != nil {
		return nil, s.refuse
	}
	g, _ := h.(*gate)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[g] = true
	return registered{gate: g}, nil
}

// AddEventHandler implements cache.Informer.
func (s *scripted) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (s *scripted) AddEventHandlerWithResyncPeriod(
	h toolscache.ResourceEventHandler, period time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &period})
}

// RemoveEventHandler implements cache.Informer.
func (s *scripted) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	r, _ := handle.(registered)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.handlers, r.gate)
	return nil
}

type registered struct {
	toolscache.ResourceEventHandlerRegistration
	gate *gate
}

// TestAViewEndsWhenTheLastEventIsHandled: none begins after that, and its handler is removed from the cache, which goes on.
func TestAViewEndsWhenTheLastEventIsHandled(t *testing.T) {
	t.Parallel()
	events := map[string]func(h toolscache.ResourceEventHandler){
		"Add":    func(h toolscache.ResourceEventHandler) { h.OnAdd(nil, false) },
		"Update": func(h toolscache.ResourceEventHandler) { h.OnUpdate(nil, nil) },
		"Delete": func(h toolscache.ResourceEventHandler) { h.OnDelete(nil) },
	}
	for name, event := range events {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				c := &scripted{handlers: map[*gate]bool{}}
				view := newEngagedCache(ctx, c)
				informer, err := view.GetInformer(ctx, &corev1.ConfigMap{})
				if err != nil {
					t.Fatal(err)
				}
				var n atomic.Int64
				goOn := make(chan struct{})
				handle := func() {
					n.Add(1)
					<-goOn
				}
				registration, err := informer.AddEventHandlerWithOptions(toolscache.ResourceEventHandlerFuncs{
					AddFunc: func(any) { handle() }, UpdateFunc: func(any, any) { handle() }, DeleteFunc: func(any) { handle() },
				}, toolscache.HandlerOptions{})
				if err != nil || !registration.HasSynced() || len(c.handlers) != 1 {
					t.Fatalf("%d handlers, error %v", len(c.handlers), err)
				}
				var g *gate
				for g = range c.handlers { //nolint:revive // there is one
				}
				go event(g)
				synctest.Wait()
				ended := make(chan struct{})
				cancel()
				go func() {
					defer close(ended)
					view.wait()
				}()
				synctest.Wait()
				select {
				case <-ended:
					t.Error("the view has ended while an event is being handled")
				default:
				}
				event(g)
				close(goOn)
				<-ended
				synctest.Wait()
				if n.Load() != 1 || len(c.handlers) != 0 {
					t.Errorf("%d events were handled, and %d handlers are left, want one and none", n.Load(), len(c.handlers))
				}
				if _, err := informer.AddEventHandlerWithOptions(toolscache.ResourceEventHandlerFuncs{}, toolscache.HandlerOptions{}); !errors.Is(err, context.Canceled) {
					t.Errorf("a handler that comes after the end: %v, want the cause", err)
				}
			})
		})
	}
}

// TestAHandlerThatIsRefusedHoldsUpNothing: the view ends all the same.
func TestAHandlerThatIsRefusedHoldsUpNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		refused := errors.New("the informer has stopped")
		view := newEngagedCache(ctx, &scripted{refuse: refused})
		informer, err := view.GetInformer(ctx, &corev1.ConfigMap{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := informer.AddEventHandlerWithOptions(toolscache.ResourceEventHandlerFuncs{}, toolscache.HandlerOptions{}); !errors.Is(err, refused) {
			t.Errorf("the error is %v", err)
		}
		cancel()
		view.wait()
	})
}

// TestAViewGuardsEachWayToAddAHandler: whichever of them the kind source of another version calls, the handler is removed from
// the cache when the view ends, and nobody waits for the registration to sync.
func TestAViewGuardsEachWayToAddAHandler(t *testing.T) {
	t.Parallel()
	none := toolscache.ResourceEventHandlerFuncs{}
	ways := map[string]func(i cache.Informer) (toolscache.ResourceEventHandlerRegistration, error){
		"AddEventHandler": func(i cache.Informer) (toolscache.ResourceEventHandlerRegistration, error) {
			return i.AddEventHandler(none)
		},
		"AddEventHandlerWithResyncPeriod": func(i cache.Informer) (toolscache.ResourceEventHandlerRegistration, error) {
			return i.AddEventHandlerWithResyncPeriod(none, time.Hour)
		},
		"AddEventHandlerWithOptions": func(i cache.Informer) (toolscache.ResourceEventHandlerRegistration, error) {
			return i.AddEventHandlerWithOptions(none, toolscache.HandlerOptions{})
		},
	}
	for name, add := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				c := &scripted{handlers: map[*gate]bool{}}
				view := newEngagedCache(ctx, c)
				informer, err := view.GetInformer(ctx, &corev1.ConfigMap{})
				if err != nil {
					t.Fatal(err)
				}
				removed, err := add(informer)
				if err != nil {
					t.Fatal(err)
				}
				if err := informer.RemoveEventHandler(removed); err != nil || len(c.handlers) != 0 {
					t.Errorf("%d handlers are left of one that was removed, error %v", len(c.handlers), err)
				}
				registration, err := add(informer)
				if err != nil {
					t.Fatal(err)
				}
				if !registration.HasSynced() || !toolscache.IsDone(registration.HasSyncedChecker()) {
					t.Error("something may wait for the registration to sync")
				}
				for g := range c.handlers {
					if g == nil {
						t.Error("the handler has no gate before it")
					}
				}
				cancel()
				view.wait()
				if len(c.handlers) != 0 {
					t.Errorf("%d handlers are left", len(c.handlers))
				}
				if _, err := add(informer); !errors.Is(err, context.Canceled) {
					t.Errorf("a handler that comes after the end: %v, want the cause", err)
				}
			})
		})
	}
}
