package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
)

func TestInformerTellsWhatHappensInOrder(t *testing.T) {
	source, i := startInformer(t, "a")
	told := newListener(t, i)
	told.waitFor("add a=1 initial")
	told.waitForSync()

	source.Add(configMap("b", "1"))
	source.Modify(configMap("b", "2"))
	source.Delete(configMap("b", "2"))
	told.waitFor("add a=1 initial", "add b=1", "update b=1 to b=2", "delete b=2")
}

func TestInformerTellsALateHandlerOfEachObjectOnce(t *testing.T) {
	source, i := startInformer(t, "a")
	newListener(t, i).waitForSync()
	source.Add(configMap("b", "1"))
	waitUntil(t, "b is stored", func() bool { return len(i.GetStore().ListKeys()) == 2 })

	late := newListener(t, i)
	late.waitForSync()
	source.Modify(configMap("a", "2"))
	late.waitForEvents(3)
	if n := len(late.until("update a=1 to a=2")); n != 3 {
		t.Errorf("%d events, want one for each of two objects and the update", n)
	}
}

func TestInformerTellsTheDifferenceThatANewListMakes(t *testing.T) {
	i, _ := New(nil, &corev1.ConfigMap{}, 0, toolscache.Indexers{}).(*Informer)
	in := intake{i}
	told := newListener(t, i)
	replace(t, in, "1", configMap("gone", "1"), configMap("kept", "1"), configMap("changed", "1"))
	told.waitForEvents(3)

	replace(t, in, "2", configMap("kept", "1"), withVersion(configMap("changed", "2"), "2"), configMap("new", "1"))
	told.waitForEvents(6)
	want := []string{"delete of unknown time gone=1", "update changed=1 to changed=2", "add new=1"}
	if diff := cmp.Diff(want, told.all()[3:]); diff != "" {
		t.Errorf("events after the second list (-want, +got):\n%s", diff)
	}
}

func TestInformerTellsOfAllThatANewListLacks(t *testing.T) {
	i, _ := New(nil, &corev1.ConfigMap{}, 0, toolscache.Indexers{}).(*Informer)
	told := newListener(t, i)
	kept := configMap("kept", "1")
	first := make([]any, 0, 21)
	for n := range cap(first) - 1 {
		first = append(first, configMap(fmt.Sprint("gone-", n), "1"))
	}
	first = append(first, kept)
	if err := (intake{i}).Replace(first, "1"); err != nil {
		t.Fatal(err)
	}
	told.waitForEvents(21)
	replace(t, intake{i}, "2", kept)
	told.waitForEvents(41)
}

func TestInformerRefusesObjectsThatCannotBeTransformed(t *testing.T) {
	i, _ := New(nil, &corev1.ConfigMap{}, 0, toolscache.Indexers{}).(*Informer)
	broken := errors.New("it is broken")
	if err := i.SetTransform(func(any) (any, error) { return nil, broken }); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"Add":     (intake{i}).Add(configMap("a", "1")),
		"Update":  (intake{i}).Update(configMap("a", "1")),
		"Delete":  (intake{i}).Delete(configMap("a", "1")),
		"Replace": (intake{i}).Replace([]any{configMap("a", "1")}, "1"),
	} {
		if !errors.Is(err, broken) {
			t.Errorf("%s() = %v: the reflector takes it for done", what, err)
		}
	}
	if i.HasSynced() {
		t.Error("it is synced without a list")
	}
}

// TestInformerRefusesWhatComesTooLate: what it did not do would go unnoticed.
func TestInformerRefusesWhatComesTooLate(t *testing.T) {
	_, i := startInformer(t)
	newListener(t, i).waitForSync()
	if err := i.SetTransform(func(obj any) (any, error) { return obj, nil }); err == nil {
		t.Error("a transform is set while it runs")
	}
	if i.SetWatchErrorHandler(nil) == nil || i.SetWatchErrorHandlerWithContext(nil) == nil {
		t.Error("a watch error handler is set that is never called")
	}
	byValue := toolscache.Indexers{"value": func(obj any) ([]string, error) { return []string{obj.(*corev1.ConfigMap).Data["value"]}, nil }}
	if err := i.AddIndexers(byValue); err != nil {
		t.Error(err)
	}
	if err := i.AddIndexers(byValue); err == nil {
		t.Error("an index is added twice")
	}
	if err := i.RemoveEventHandler(nil); err == nil {
		t.Error("a handler is removed that is not one of this informer")
	}
	stopped, _ := New(nil, &corev1.ConfigMap{}, 0, toolscache.Indexers{}).(*Informer)
	stopped.stop()
	if err := stopped.AddIndexers(byValue); err == nil {
		t.Error("an index is added to an informer that has stopped")
	}
}

// TestInformerTellsAHandlerNothingOnceItWasRemoved, although events wait for it.
func TestInformerTellsAHandlerNothingOnceItWasRemoved(t *testing.T) {
	i, _ := New(nil, &corev1.ConfigMap{}, 0, toolscache.Indexers{}).(*Informer)
	var told atomic.Int64
	begun, proceed := make(chan struct{}), make(chan struct{})
	registration, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) {
		if told.Add(1) == 1 {
			close(begun)
		}
		<-proceed
	}})
	if err != nil {
		t.Fatal(err)
	}
	replace(t, intake{i}, "1", configMap("a", "1"), configMap("b", "1"))
	<-begun
	if err := i.RemoveEventHandler(registration); err != nil {
		t.Fatal(err)
	}
	close(proceed)
	i.stop()
	if n := told.Load(); n != 1 {
		t.Errorf("it was told %d times, want once", n)
	}
}

func TestInformerIsSyncedOnceTheFirstListWasHandled(t *testing.T) {
	i, _ := New(nil, &corev1.ConfigMap{}, 0, toolscache.Indexers{}).(*Informer)
	proceed := make(chan struct{})
	registration, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-proceed }})
	if err != nil {
		t.Fatal(err)
	}
	if i.HasSynced() || registration.HasSynced() {
		t.Error("synced before the first list")
	}
	replace(t, intake{i}, "1", configMap("a", "1"))
	if !i.HasSynced() {
		t.Error("the informer is not synced although its store has the list")
	}
	if registration.HasSynced() {
		t.Error("the handler is synced although it has not seen the list")
	}
	close(proceed)
	<-registration.HasSyncedChecker().Done()
}

func TestInformerOfNothingIsSynced(t *testing.T) {
	_, i := startInformer(t)
	newListener(t, i).waitForSync()
	<-i.HasSyncedChecker().Done()
}

func TestInformerDoesNotLetOneHandlerWaitForAnother(t *testing.T) {
	source, i := startInformer(t)
	stuck := make(chan struct{})
	defer close(stuck)
	if _, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-stuck }}); err != nil {
		t.Fatal(err)
	}
	told := newListener(t, i)
	source.Add(configMap("a", "1"))
	source.Add(configMap("b", "1"))
	told.waitForEvents(2)
}

func TestInformerHandlerMayReadTheStoreAndAddHandlers(t *testing.T) {
	source, i := startInformer(t, "a")
	var inner *listener
	added := make(chan struct{})
	_, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) {
		if _, exists, err := i.GetStore().GetByKey("default/a"); !exists || err != nil {
			t.Errorf("the object of the event is not in the store (%v)", err)
		}
		if !i.HasSynced() {
			t.Error("not synced: a handler that reads from the cache would wait for ever")
		}
		inner = newListener(t, i)
		close(added)
	}})
	if err != nil {
		t.Fatal(err)
	}
	<-added
	source.Modify(configMap("a", "2"))
	inner.waitFor("add a=1 initial", "update a=1 to a=2")
}

func TestInformerTellsARemovedHandlerNothing(t *testing.T) {
	source, i := startInformer(t, "a")
	removed, kept := newListener(t, i), newListener(t, i)
	removed.waitForSync()
	if err := i.RemoveEventHandler(removed.registration); err != nil {
		t.Fatal(err)
	}
	source.Add(configMap("b", "1"))
	kept.waitForEvents(2)
	if diff := cmp.Diff([]string{"add a=1 initial"}, removed.all()); diff != "" {
		t.Errorf("events (-want, +got):\n%s", diff)
	}
}

func TestInformerResyncsThoseWhoWant(t *testing.T) {
	i, _ := New(nil, &corev1.ConfigMap{}, time.Hour, toolscache.Indexers{}).(*Informer)
	told := newListener(t, i)
	never := &listener{t: t}
	if _, err := i.AddEventHandlerWithResyncPeriod(never, 0); err != nil {
		t.Fatal(err)
	}
	replace(t, intake{i}, "1", configMap("a", "1"))
	if err := (intake{i}).Resync(); err != nil {
		t.Fatal(err)
	}
	if err := (intake{i}).Delete(configMap("a", "1")); err != nil {
		t.Fatal(err)
	}
	told.waitFor("add a=1 initial", "update a=1 to a=1", "delete a=1")
	never.waitFor("add a=1 initial", "delete a=1")
}

func TestInformerTransforms(t *testing.T) {
	i, _ := New(nil, &corev1.ConfigMap{}, 0, toolscache.Indexers{}).(*Informer)
	shout := func(obj any) (any, error) {
		object, ok := obj.(*corev1.ConfigMap)
		if !ok {
			return nil, fmt.Errorf("%T is no ConfigMap", obj)
		}
		object.Data["value"] += "!"
		return object, nil
	}
	if err := i.SetTransform(shout); err != nil {
		t.Fatal(err)
	}
	told := newListener(t, i)
	replace(t, intake{i}, "1", configMap("a", "1"))
	if err := (intake{i}).Update(withVersion(configMap("a", "2"), "2")); err != nil {
		t.Fatal(err)
	}
	told.waitFor("add a=1! initial", "update a=1! to a=2!")
}

func TestInformerWaitsForItsHandlersWhenItStops(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	source := fcache.NewFakeControllerSource()
	defer source.Shutdown()
	source.Add(configMap("a", "1"))
	i := New(source, &corev1.ConfigMap{}, 0, toolscache.Indexers{})
	handling, proceed := make(chan struct{}), make(chan struct{})
	_, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { close(handling); <-proceed }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { defer close(stopped); i.RunWithContext(ctx) }()
	<-handling
	cancel()
	waitUntil(t, "the informer stops", i.IsStopped)
	select {
	case <-stopped:
		t.Error("Run has returned while a handler was running")
	default:
	}
	close(proceed)
	<-stopped
	if _, err := i.AddEventHandler(&listener{t: t}); err == nil {
		t.Error("a handler was added to an informer that has stopped")
	}
}

// TestInformerAgreesWithThatOfClientGo runs both on one random history: every handler, early or late, must end with what
// the source has, and have been told of changes that lead there one by one.
func TestInformerAgreesWithThatOfClientGo(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	source := fcache.NewFakeControllerSource()
	defer source.Shutdown()
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	informers := []toolscache.SharedIndexInformer{
		New(source, &corev1.ConfigMap{}, 0, toolscache.Indexers{}),
		toolscache.NewSharedIndexInformer(source, &corev1.ConfigMap{}, 0, toolscache.Indexers{}),
	}
	for _, i := range informers {
		running.Go(func() { i.RunWithContext(ctx) })
	}
	exists, views := map[string]string{}, []*view{}
	for step := range 2000 {
		if step%200 == 0 {
			for _, i := range informers {
				views = append(views, newView(t, i))
			}
		}
		name := fmt.Sprint(random.IntN(20))
		value := fmt.Sprint(step)
		switch _, there := exists[name]; {
		case !there:
			source.Add(configMap(name, value))
			exists[name] = value
		case random.IntN(3) == 0:
			source.Delete(configMap(name, value))
			delete(exists, name)
		default:
			source.Modify(configMap(name, value))
			exists[name] = value
		}
	}
	for n, v := range views {
		waitUntil(t, fmt.Sprintf("view %d shows what there is", n), func() bool { return cmp.Equal(exists, v.read()) })
	}
}

// view is what a handler knows.
type view struct {
	t  *testing.T
	mu sync.Mutex
	m  map[string]string
}

func newView(t *testing.T, i toolscache.SharedIndexInformer) *view {
	t.Helper()
	v := &view{t: t, m: map[string]string{}}
	set := func(obj any) {
		if object, ok := obj.(*corev1.ConfigMap); ok {
			v.m[object.Name] = object.Data["value"]
		}
	}
	name := func(obj any) string {
		key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj)
		if err != nil {
			t.Error(err)
		}
		return key[len("default/"):]
	}
	_, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			v.mu.Lock()
			defer v.mu.Unlock()
			if _, known := v.m[name(obj)]; known {
				t.Errorf("%s was added twice", name(obj))
			}
			set(obj)
		},
		UpdateFunc: func(old, obj any) {
			v.mu.Lock()
			defer v.mu.Unlock()
			if before, ok := old.(*corev1.ConfigMap); ok && v.m[before.Name] != before.Data["value"] {
				t.Errorf("%s was updated from %q, which was not told of", before.Name, before.Data["value"])
			}
			set(obj)
		},
		DeleteFunc: func(obj any) {
			v.mu.Lock()
			defer v.mu.Unlock()
			if _, known := v.m[name(obj)]; !known {
				t.Errorf("%s was deleted, and not there", name(obj))
			}
			delete(v.m, name(obj))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *view) read() map[string]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.m)
}

// startInformer runs an informer of a source that has these objects.
func startInformer(t *testing.T, names ...string) (*fcache.FakeControllerSource, *Informer) {
	t.Helper()
	source := fcache.NewFakeControllerSource()
	for _, name := range names {
		source.Add(configMap(name, "1"))
	}
	i, ok := New(source, &corev1.ConfigMap{}, 0, toolscache.Indexers{}).(*Informer)
	if !ok {
		t.Fatal("not the fleet's informer")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { i.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); running.Wait(); source.Shutdown() }) // which keeps the lock that a list or a watch needs
	return source, i
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: "1"},
		Data:       map[string]string{"value": value},
	}
}

func withVersion(object *corev1.ConfigMap, version string) *corev1.ConfigMap {
	object.ResourceVersion = version
	return object
}

func replace(t *testing.T, in intake, version string, objects ...any) {
	t.Helper()
	if err := in.Replace(objects, version); err != nil {
		t.Fatal(err)
	}
}

// listener notes what it is told.
type listener struct {
	t            *testing.T
	registration toolscache.ResourceEventHandlerRegistration

	mu     sync.Mutex
	events []string
}

func newListener(t *testing.T, i toolscache.SharedIndexInformer) *listener {
	t.Helper()
	l := &listener{t: t}
	var err error
	if l.registration, err = i.AddEventHandler(l); err != nil {
		t.Error(err)
	}
	return l
}

func (l *listener) notef(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, fmt.Sprintf(format, args...))
}

func (l *listener) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.events...)
}

// OnAdd implements toolscache.ResourceEventHandler.
func (l *listener) OnAdd(obj any, isInInitialList bool) {
	if isInInitialList {
		l.notef("add %s initial", sayObject(obj))
		return
	}
	l.notef("add %s", sayObject(obj))
}

// OnUpdate implements toolscache.ResourceEventHandler.
func (l *listener) OnUpdate(old, obj any) { l.notef("update %s to %s", sayObject(old), sayObject(obj)) }

// OnDelete implements toolscache.ResourceEventHandler.
func (l *listener) OnDelete(obj any) {
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		l.notef("delete of unknown time %s", sayObject(unknown.Obj))
		return
	}
	l.notef("delete %s", sayObject(obj))
}

func sayObject(obj any) string {
	object, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return fmt.Sprintf("%T", obj)
	}
	return object.Name + "=" + object.Data["value"]
}

func (l *listener) waitForSync() {
	l.t.Helper()
	select {
	case <-l.registration.HasSyncedChecker().Done():
	case <-time.After(time.Minute):
		l.t.Fatal("the handler does not sync")
	}
}

func (l *listener) waitForEvents(n int) {
	l.t.Helper()
	waitUntil(l.t, fmt.Sprintf("%d events", n), func() bool { return len(l.all()) >= n })
}

func (l *listener) waitFor(want ...string) {
	l.t.Helper()
	l.waitForEvents(len(want))
	if diff := cmp.Diff(want, l.all()); diff != "" {
		l.t.Fatalf("events (-want, +got):\n%s", diff)
	}
}

// until returns the events up to the one given, which must have come.
func (l *listener) until(last string) []string {
	l.t.Helper()
	events := l.all()
	for n, event := range events {
		if event == last {
			return events[:n+1]
		}
	}
	l.t.Fatalf("%q has not come: %q", last, events)
	return nil
}

func waitUntil(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// TestWhatWaitsForAnInformerEndsWithIt: controller-runtime waits in a goroutine, which would keep an engagement that is over
// in memory if it never had its first list.
func TestWhatWaitsForAnInformerEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := addInformer(t, &Set{}, Key{})
		registration, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{})
		if err != nil {
			t.Fatal(err)
		}
		i.stop()
		<-i.HasSyncedChecker().Done()
		<-registration.HasSyncedChecker().Done()
		if i.HasSynced() || registration.HasSynced() {
			t.Error("it claims to be synced")
		}
	})
}
