package namespaces

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fleet-runtime/fleet-runtime/internal/delivery"
)

// told is a handler that notes what it is told.
type told struct {
	mu    sync.Mutex
	notes []string
}

func (h *told) notef(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, fmt.Sprintf(format, args...))
}

func (h *told) OnAdd(obj any, initial bool) { h.notef("add %s, initial %t", text(obj), initial) }
func (h *told) OnUpdate(before, after any)  { h.notef("update %s to %s", text(before), text(after)) }
func (h *told) OnDelete(obj any)            { h.notef("delete %s", text(obj)) }

// want fails the test unless the handler was told exactly this. It forgets it then.
func (h *told) want(t *testing.T, want ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if diff := cmp.Diff(want, h.notes); diff != "" {
		t.Errorf("the handler was told otherwise (-want, +got):\n%s", diff)
	}
	h.notes = nil
}

func text(obj any) string {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		return "tombstone of " + gone.Key
	}
	cm := obj.(*corev1.ConfigMap)
	return fmt.Sprintf("%s/%s@%s", cm.Namespace, cm.Name, cm.ResourceVersion)
}

func configMap(namespace, name, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: version}}
}

func newFeed() *feed { return &feed{zones: map[string]*zone{}} }

// register adds a handler that notes.
func register(t *testing.T, f *feed, where string) (*told, *delivery.Registration) {
	t.Helper()
	h := &told{}
	r, err := f.add(where, h, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	return h, r.(*delivery.Registration)
}

func TestAHandlerIsToldOfItsNamespaceAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed()
		defer f.close()
		a, _ := register(t, f, "a")
		b, _ := register(t, f, "b")
		f.OnAdd(configMap("a", "x", "1"), true)
		f.OnUpdate(configMap("a", "x", "1"), configMap("a", "x", "2"))
		f.OnDelete(configMap("a", "x", "2"))
		f.OnAdd(configMap("b", "y", "3"), false)
		f.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "b/y"})
		f.OnAdd(configMap("c", "z", "4"), false)
		synctest.Wait()
		a.want(t, "add a/x@1, initial true", "update a/x@1 to a/x@2", "delete a/x@2")
		b.want(t, "add b/y@3, initial false", "delete tombstone of b/y")
	})
}

func TestALateHandlerIsToldFirstWhatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed()
		defer f.close()
		f.OnAdd(configMap("a", "gone", "1"), true)
		f.OnAdd(configMap("a", "x", "2"), true)
		f.OnUpdate(configMap("a", "x", "2"), configMap("a", "x", "3"))
		f.OnDelete(configMap("a", "gone", "1"))
		late, _ := register(t, f, "a")
		f.OnUpdate(configMap("a", "x", "3"), configMap("a", "x", "4"))
		synctest.Wait()
		late.want(t, "add a/x@3, initial true", "update a/x@3 to a/x@4")
	})
}

func TestAHandlerHasSyncedOnceItHasSeenTheInitialList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed()
		defer f.close()
		release := make(chan struct{})
		added, err := f.add("a", toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-release }}, logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		empty, err := f.add("b", &told{}, logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		f.OnAdd(configMap("a", "x", "1"), true)
		synctest.Wait()
		if added.HasSynced() || empty.HasSynced() {
			t.Error("handlers have synced before the list was complete")
		}
		f.listed()
		synctest.Wait()
		if added.HasSynced() || !empty.HasSynced() {
			t.Errorf("synced: %t while the handler still works, %t of a namespace without objects", added.HasSynced(), empty.HasSynced())
		}
		release <- struct{}{}
		<-added.HasSyncedChecker().Done()

		late, err := f.add("a", toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-release }}, logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if late.HasSynced() {
			t.Error("a late handler has synced before it has seen what there was")
		}
		release <- struct{}{}
		<-late.HasSyncedChecker().Done()
	})
}

func TestASlowHandlerHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed()
		defer f.close()
		release := make(chan struct{})
		if _, err := f.add("a", toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-release }}, logr.Discard()); err != nil {
			t.Fatal(err)
		}
		sibling, _ := register(t, f, "a")
		other, _ := register(t, f, "b")
		f.OnAdd(configMap("a", "x", "1"), false)
		f.OnAdd(configMap("b", "y", "2"), false)
		synctest.Wait()
		sibling.want(t, "add a/x@1, initial false")
		other.want(t, "add b/y@2, initial false")
		close(release)
	})
}

func TestARemovedHandlerIsToldNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed()
		defer f.close()
		release := make(chan struct{})
		var calls int
		r, err := f.add("a", toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) {
			calls++
			<-release
		}}, logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		f.OnAdd(configMap("a", "x", "1"), false)
		f.OnAdd(configMap("a", "y", "2"), false) // waits behind the first
		synctest.Wait()
		f.remove("a", r.(*delivery.Registration))
		f.OnAdd(configMap("a", "z", "3"), false)
		close(release)
		synctest.Wait()
		if calls != 1 {
			t.Errorf("the handler was called %d times, want the once before it was removed", calls)
		}
	})
}

func TestCloseReturnsAfterTheLastHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed()
		release := make(chan struct{})
		if _, err := f.add("a", toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-release }}, logr.Discard()); err != nil {
			t.Fatal(err)
		}
		f.OnAdd(configMap("a", "x", "1"), false)
		synctest.Wait()
		closed := make(chan struct{})
		go func() {
			f.close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("close has returned while a handler runs")
		default:
		}
		close(release)
		<-closed
		if _, err := f.add("a", &told{}, logr.Discard()); err == nil {
			t.Error("a handler could be added after the end")
		}
	})
}

func TestNothingIsKeptOfANamespaceWithoutObjectsAndHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed()
		defer f.close()
		_, r := register(t, f, "a")
		f.OnAdd(configMap("a", "x", "1"), false)
		f.OnDelete(configMap("a", "x", "1"))
		f.remove("a", r)
		f.OnAdd(configMap("b", "y", "2"), false)
		f.OnDelete(configMap("b", "y", "2"))
		if len(f.zones) != 0 {
			t.Errorf("%d namespaces are kept", len(f.zones))
		}
	})
}
