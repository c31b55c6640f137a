package delivery_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fleet-runtime/fleet-runtime/internal/delivery"
)

// told notes what a handler was told. It is safe for concurrent use.
type told struct {
	mu     sync.Mutex // guards what follows
	events []string
}

func (h *told) notef(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, fmt.Sprintf(format, args...))
}

func (h *told) OnAdd(obj any, initial bool) { h.notef("added %v initial=%t", obj, initial) }
func (h *told) OnUpdate(old, obj any)       { h.notef("updated %v to %v", old, obj) }
func (h *told) OnDelete(obj any)            { h.notef("deleted %v", obj) }

func (h *told) want(t *testing.T, want ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.events, want) {
		t.Errorf("the handler was told %q, want %q", h.events, want)
	}
	h.events = nil
}

// goroutines counts those that were started. All end before the test does.
type goroutines struct {
	sync.WaitGroup
	started int // by Add, which a test calls from one goroutine
}

func (g *goroutines) spawn(f func()) {
	g.started++
	g.Go(f)
}

// register returns a registration of a handler. It is removed when the test ends, and what delivers must end then.
func register(t *testing.T, h toolscache.ResourceEventHandler, resyncs bool) (*delivery.Registration, *goroutines) {
	t.Helper()
	g := &goroutines{}
	r := delivery.New(h, logr.Discard(), resyncs, g.spawn)
	t.Cleanup(func() {
		r.Remove()
		g.Wait()
	})
	return r, g
}

func added(obj any) delivery.Event { return delivery.Event{What: delivery.Added, Obj: obj} }

func TestEventsAreToldInOrder(t *testing.T) {
	h := &told{}
	synctest.Test(t, func(t *testing.T) {
		r, _ := register(t, h, true)
		r.Add(added("a"))
		r.Add(delivery.Event{What: delivery.Updated, Old: "a", Obj: "b"})
		synctest.Wait()
		r.Add(delivery.Event{What: delivery.Deleted, Obj: "b"})
		synctest.Wait()
		h.want(t, "added a initial=false", "updated a to b", "deleted b")
	})
}

func TestOneGoroutineDeliversABurst(t *testing.T) {
	for _, apart := range []time.Duration{time.Millisecond, 99 * time.Millisecond} {
		h := &told{}
		synctest.Test(t, func(t *testing.T) {
			r, g := register(t, h, true)
			want := make([]string, 0, 100)
			for i := range 100 {
				r.Add(added(i))
				want = append(want, fmt.Sprintf("added %d initial=false", i))
				<-time.After(apart)
			}
			if g.started != 1 {
				t.Errorf("100 events, %v apart, took %d goroutines, want 1", apart, g.started)
			}
			synctest.Wait()
			h.want(t, want...)
		})
	}
}

func TestNoGoroutineIsKeptForLong(t *testing.T) {
	h := &told{}
	synctest.Test(t, func(t *testing.T) {
		r, g := register(t, h, true)
		for _, obj := range []string{"a", "b"} {
			r.Add(added(obj))
			g.Wait() // it ends by itself
			h.want(t, "added "+obj+" initial=false")
		}
		if g.started != 2 {
			t.Errorf("two events, far apart, took %d goroutines, want 2", g.started)
		}
	})
}

func TestRemoveEndsWhatDelivers(t *testing.T) {
	h := &told{}
	synctest.Test(t, func(t *testing.T) {
		r, g := register(t, h, true)
		begin := time.Now()
		r.Add(added("a"))
		synctest.Wait()
		r.Remove()
		g.Wait()
		if took := time.Since(begin); took != 0 {
			t.Errorf("the goroutine stayed for %v after Remove", took)
		}
		r.Add(added("b"))
		synctest.Wait()
		h.want(t, "added a initial=false")
	})
}

// slow is a handler that takes a minute for what is added.
type slow struct{ told }

func (h *slow) OnAdd(obj any, initial bool) {
	h.told.OnAdd(obj, initial)
	<-time.After(time.Minute)
}

func TestNothingIsToldAfterRemove(t *testing.T) {
	h := &slow{}
	synctest.Test(t, func(t *testing.T) {
		r, g := register(t, h, true)
		r.Add(added("a"))
		r.Add(added("b"))
		synctest.Wait()
		r.Remove()
		g.Wait()
		h.want(t, "added a initial=false")
	})
}

func TestItIsSyncedWhenTheHandlerHasSeenTheInitialList(t *testing.T) {
	h := &slow{}
	synctest.Test(t, func(t *testing.T) {
		r, _ := register(t, h, true)
		r.Add(delivery.Event{What: delivery.Added, Obj: "a", Initial: true})
		r.Listed()
		synctest.Wait()
		if r.HasSynced() {
			t.Error("it is synced while the handler is at the first object")
		}
		select {
		case <-r.Done():
		case <-time.After(2 * time.Minute):
			t.Error("it is not synced although the handler has seen all")
		}
	})
}

func TestAnEmptyListIsSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := register(t, &told{}, true)
		if r.HasSynced() {
			t.Error("it is synced before the list is complete")
		}
		r.Listed()
		if !r.HasSynced() || g.started != 0 {
			t.Errorf("synced: %t, with %d goroutines; want true, and none", r.HasSynced(), g.started)
		}
	})
}

func TestResyncsAreForThoseWhoWantThem(t *testing.T) {
	for _, resyncs := range []bool{true, false} {
		t.Run(fmt.Sprint(resyncs), func(t *testing.T) {
			h := &told{}
			synctest.Test(t, func(t *testing.T) {
				r, _ := register(t, h, resyncs)
				r.Add(delivery.Event{What: delivery.Updated, Old: "a", Obj: "a", Resync: true})
				synctest.Wait()
				if resyncs {
					h.want(t, "updated a to a")
				} else {
					h.want(t)
				}
			})
		})
	}
}

// TestNoEventIsLost adds events at all moments of the goroutine that delivers. They come in order, and each once.
func TestNoEventIsLost(t *testing.T) {
	const events = 20_000
	var running sync.WaitGroup
	seen := make(chan any, events)
	r := delivery.New(toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { seen <- obj }}, logr.Discard(), true, running.Go)
	patience := time.After(time.Minute) // to end a test that fails
	next := 0
	come := func() {
		select {
		case got := <-seen:
			if want := added(next).Obj; got != want {
				t.Fatalf("event %v, want %v", got, want)
			}
			next++
		case <-patience:
			t.Fatalf("event %d is lost", next)
		}
	}
	for i := range events {
		r.Add(added(i))
		if i%3 == 0 {
			come() // so that it has nothing to do in the end
		}
	}
	for next < events {
		come()
	}
	r.Remove()
	running.Wait()
}
