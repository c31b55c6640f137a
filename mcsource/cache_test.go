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
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	synced chan struct{} // closed when handlers have had what there was

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
	return registered{gate: g, synced: s.synced}, nil
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
	gate   *gate
	synced chan struct{}
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

// succession is a cache of the fleet whose informers are removed one after the other.
type succession struct {
	cache.Cache
	informers []*scripted
	err       error // when there is none left
}

// AwaitInformer is how the fleet's caches are asked.
func (s *succession) AwaitInformer(context.Context, client.Object) (cache.Informer, error) {
	if len(s.informers) == 0 {
		return nil, s.err
	}
	next := s.informers[0]
	s.informers = s.informers[1:]
	return next, nil
}

// TestAHandlerIsAddedToTheInformerThatFollowsOneThatWasRemoved, however often that happens, and it is removed from that one.
func TestAHandlerIsAddedToTheInformerThatFollowsOneThatWasRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		removed, last := &scripted{refuse: errors.New("the informer has stopped")}, &scripted{handlers: map[*gate]bool{}}
		another := &scripted{refuse: removed.refuse}
		view := newEngagedCache(ctx, &succession{informers: []*scripted{removed, another, last}})
		informer, err := view.GetInformer(ctx, &corev1.ConfigMap{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := informer.AddEventHandlerWithOptions(toolscache.ResourceEventHandlerFuncs{}, toolscache.HandlerOptions{}); err != nil {
			t.Fatal(err)
		}
		if len(last.handlers) != 1 {
			t.Errorf("%d handlers are on the informer that is there, want one", len(last.handlers))
		}
		cancel()
		view.wait()
		if len(last.handlers) != 0 {
			t.Errorf("%d handlers are left", len(last.handlers))
		}
	})
}

// plain is such a cache of a cluster that a provider made.
type plain struct {
	cache.Cache
	of succession
}

// GetInformer implements cache.Cache.
func (p *plain) GetInformer(ctx context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return p.of.AwaitInformer(ctx, obj)
}

// TestAClusterOfAProviderIsAskedForOneOtherInformer: it may make others for ever, also once it has stopped.
func TestAClusterOfAProviderIsAskedForOneOtherInformer(t *testing.T) {
	t.Parallel()
	for removed, want := range []bool{true, true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			c := &plain{}
			for range removed {
				c.of.informers = append(c.of.informers, &scripted{refuse: errors.New("the informer has stopped")})
			}
			c.of.informers = append(c.of.informers, &scripted{handlers: map[*gate]bool{}})
			view := newEngagedCache(ctx, c)
			informer, err := view.GetInformer(ctx, &corev1.ConfigMap{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); (err == nil) != want {
				t.Errorf("after %d that were removed: %v", removed, err)
			}
			cancel()
			view.wait()
		})
	}
}

// TestWhyThereIsNoOtherInformerIsSaid when the kind's was removed.
func TestWhyThereIsNoOtherInformerIsSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		why := errors.New("the engagement has ended")
		view := newEngagedCache(ctx, &succession{informers: []*scripted{{refuse: errors.New("the informer has stopped")}}, err: why})
		informer, err := view.GetInformer(ctx, &corev1.ConfigMap{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); !errors.Is(err, why) {
			t.Errorf("the error is %v, want %v", err, why)
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

// Done implements toolscache.DoneChecker: the handler of a test has had what there was when its synced is closed.
func (r registered) Done() <-chan struct{} { return r.synced }

// Name implements toolscache.DoneChecker.
func (registered) Name() string { return "test" }

// HasSyncedChecker implements ResourceEventHandlerRegistration.
func (r registered) HasSyncedChecker() toolscache.DoneChecker { return r }

// TestAViewIsSyncedWhenItsHandlerHasHadWhatThereWas: not before the source has added one, and never when the view has ended.
func TestAViewIsSyncedWhenItsHandlerHasHadWhatThereWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &scripted{handlers: map[*gate]bool{}, synced: make(chan struct{})}
		view := newEngagedCache(ctx, c)
		impatient := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return view.sync(ctx)
		}
		if err := impatient(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a handler, sync() = %v", err)
		}
		done := make(chan error, 1)
		go func() { done <- view.sync(t.Context()) }()
		synctest.Wait()
		informer, err := view.GetInformer(ctx, &corev1.ConfigMap{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); err != nil {
			t.Fatal(err)
		}
		if err := impatient(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a handler that has had nothing, sync() = %v", err)
		}
		close(c.synced)
		if err := <-done; err != nil {
			t.Errorf("sync() = %v", err)
		}
		if err := impatient(); err != nil {
			t.Errorf("once more, sync() = %v", err)
		}
		cancel()
		if err := impatient(); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end, sync() = %v", err)
		}
		view.wait()
	})
}

// RemoveInformer implements cache.Cache.
func (s *scripted) RemoveInformer(context.Context, client.Object) error { return s.refuse }

// IndexField implements cache.Cache.
func (s *scripted) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return s.refuse
}

// GetInformerForKind implements cache.Cache.
func (s *scripted) GetInformerForKind(context.Context, schema.GroupVersionKind, ...cache.InformerGetOption) (cache.Informer, error) {
	return s, s.refuse
}

// AddIndexers implements cache.Informer.
func (s *scripted) AddIndexers(toolscache.Indexers) error { return s.refuse }

// HasSynced implements cache.Informer.
func (s *scripted) HasSynced() bool { return s.refuse == nil }

// IsStopped implements cache.Informer.
func (s *scripted) IsStopped() bool { return s.refuse != nil }

// TestAViewAnswersAsItsCacheDoes, but that it waits for nothing and is not started.
func TestAViewAnswersAsItsCacheDoes(t *testing.T) {
	t.Parallel()
	for _, want := range []error{nil, errors.New("refused")} {
		view := newEngagedCache(t.Context(), &scripted{refuse: want})
		informer, err := view.GetInformer(t.Context(), &corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		_, forKind := view.GetInformerForKind(t.Context(), corev1.SchemeGroupVersion.WithKind("Pod"))
		for what, got := range map[string]error{
			"RemoveInformer":     view.RemoveInformer(t.Context(), &corev1.Pod{}),
			"IndexField":         view.IndexField(t.Context(), &corev1.Pod{}, "field", nil),
			"GetInformerForKind": forKind,
			"AddIndexers":        informer.AddIndexers(nil),
		} {
			if !errors.Is(got, want) {
				t.Errorf("%s() = %v, want %v", what, got, want)
			}
		}
		if informer.HasSynced() != (want == nil) || informer.IsStopped() != (want != nil) {
			t.Errorf("synced: %t, stopped: %t", informer.HasSynced(), informer.IsStopped())
		}
		if !view.WaitForCacheSync(t.Context()) || view.Start(t.Context()) == nil {
			t.Error("the view waits, or was started")
		}
	}
}
