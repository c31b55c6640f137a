package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/informer"
)

// kindsWorld is a cache whose kinds fail as a test says.
type kindsWorld struct {
	*kinds
	unmapped  atomic.Pointer[error] // why kinds cannot be mapped
	conflict  atomic.Pointer[error] // why indexes cannot be added
	opened    atomic.Int32
	changes   atomic.Int32
	linesMu   sync.Mutex
	lines     []string
	informers map[informer.Key]*stillInformer
	answers   chan struct{} // if it is set, attempts wait for it
}

// stillInformer is synced when a test says so.
type stillInformer struct {
	cache.Informer
	synced chan struct{}
}

// logged returns what was logged once nothing is under way.
func (w *kindsWorld) logged() []string {
	synctest.Wait()
	w.linesMu.Lock()
	defer w.linesMu.Unlock()
	return slices.Clone(w.lines)
}

// changed returns how often followers were told, once nothing is under way.
func (w *kindsWorld) changed() int {
	synctest.Wait()
	return int(w.changes.Load())
}

func (i *stillInformer) HasSynced() bool {
	select {
	case <-i.synced:
		return true
	default:
		return false
	}
}

func (i *stillInformer) HasSyncedChecker() toolscache.DoneChecker { return i }
func (i *stillInformer) Name() string                             { return "still" }
func (i *stillInformer) Done() <-chan struct{}                    { return i.synced }

func keyOfPods() informer.Key {
	return informer.Key{GVK: corev1.SchemeGroupVersion.WithKind("Pod")}
}

func (w *kindsWorld) lister(key informer.Key) *retrying {
	return &retrying{key: key, kind: w.stateOf(key), kinds: w.kinds}
}

func newKindsWorld(ctx context.Context) *kindsWorld {
	w := &kindsWorld{kinds: newKinds(ctx, "a"), informers: map[informer.Key]*stillInformer{}}
	w.most = 10 * time.Second
	w.onChange = func() { w.changes.Add(1) }
	w.log = funcr.New(func(_, line string) {
		w.linesMu.Lock()
		defer w.linesMu.Unlock()
		w.lines = append(w.lines, line)
	}, funcr.Options{})
	w.open = func(_ context.Context, key informer.Key) (cache.Informer, error) {
		w.opened.Add(1)
		if w.answers != nil {
			<-w.answers
		}
		if err := w.unmapped.Load(); err != nil {
			return nil, *err
		}
		w.informers[key] = &stillInformer{synced: make(chan struct{})}
		return w.informers[key], nil
	}
	w.index = func(context.Context, *index) error {
		if err := w.conflict.Load(); err != nil {
			return *err
		}
		return nil
	}
	return w
}

var errNo = errors.New("no")

func TestAllThatAskForAKindShareOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKindsWorld(t.Context())
		w.answers = make(chan struct{})
		w.unmapped.Store(&errNo)
		results := make(chan error, 10)
		for range 10 {
			go func() { results <- w.ensure(t.Context(), keyOfPods()) }()
		}
		impatient, leave := context.WithCancelCause(t.Context())
		left := make(chan error, 1)
		go func() { left <- w.ensure(impatient, keyOfPods()) }()
		synctest.Wait()
		leave(errors.New("tired"))
		if err := <-left; err == nil || !strings.Contains(err.Error(), `Pod of cluster "a": tired`) {
			t.Errorf("one that does not wait for the attempt is told %v", err)
		}
		close(w.answers)
		for range 10 {
			if err := <-results; !errors.Is(err, errNo) || !errors.Is(err, ErrNotReady) {
				t.Errorf("ensure() = %v", err)
			}
		}
		if w.opened.Load() != 1 || w.changed() != 1 {
			t.Errorf("%d attempts and %d changes, want one of each", w.opened.Load(), w.changed())
		}
	})
}

func TestAFailedAttemptAnswersUntilTheNextIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKindsWorld(t.Context())
		w.unmapped.Store(&errNo)
		for n := time.Duration(0); n < 30*time.Second; n += 100 * time.Millisecond {
			if err := w.serve(t.Context(), keyOfPods()); !errors.Is(err, errNo) {
				t.Fatal(err)
			}
			<-time.After(100 * time.Millisecond)
		}
		if n := w.opened.Load(); n < 5 || n > 9 {
			t.Errorf("%d attempts in 30 seconds", n)
		}
		w.unmapped.Store(nil)
		<-time.After(w.most)
		if err := w.ensure(t.Context(), keyOfPods()); err != nil {
			t.Error(err)
		}
		if w.status() != nil || w.changed() != 2 || len(w.logged()) != 2 {
			t.Errorf("status is %v after %d changes, and the log\n%s", w.status(), w.changed(), strings.Join(w.logged(), "\n"))
		}
		for i, want := range []string{"Cannot list or watch; trying again", "Listing and watching works again"} {
			if !strings.Contains(w.logged()[i], want) || !strings.Contains(w.logged()[i], `"kind"="Pod"`) {
				t.Errorf("the log has %s, want %s", w.logged()[i], want)
			}
		}
	})
}

func TestAMemberThatIsRestoredIsAskedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKindsWorld(t.Context())
		restored := make(chan struct{})
		w.restored = func() <-chan struct{} { return restored }
		w.unmapped.Store(&errNo)
		done := make(chan error, 1)
		go func() { done <- w.await(t.Context(), keyOfPods()) }()
		<-time.After(25 * time.Second) // the pauses are long by now
		synctest.Wait()
		w.unmapped.Store(nil)
		before := time.Now()
		close(restored)
		if err := <-done; err != nil || time.Since(before) > 0 {
			t.Errorf("await() = %v, after %s", err, time.Since(before))
		}
	})
}

func TestAFailureIsForgottenAMinuteAfterItWasLastWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKindsWorld(t.Context())
		w.unmapped.Store(&errNo)
		_ = w.ensure(t.Context(), keyOfPods())
		<-time.After(40 * time.Second)
		_ = w.ensure(t.Context(), keyOfPods())
		<-time.After(59 * time.Second)
		if len(w.status()) != 1 {
			t.Error("it is forgotten too early")
		}
		<-time.After(2 * time.Second)
		if w.status() != nil || len(w.of) != 0 || w.changed() != 2 {
			t.Errorf("status is %v of %d kinds after %d changes", w.status(), len(w.of), w.changed())
		}
		if strings.Contains(strings.Join(w.logged(), " "), "works again") {
			t.Errorf("the log says that it works: %s", w.logged())
		}
		w.most = time.Hour // a source may ask less often than once a minute
		ctx, leave := context.WithCancel(t.Context())
		go func() { _ = w.await(ctx, keyOfPods()) }()
		<-time.After(time.Hour)
		if len(w.status()) != 1 || w.changed() != 3 {
			t.Errorf("status is %v after %d changes: it is forgotten while a source waits for it", w.status(), w.changed())
		}
		leave()
		<-time.After(3 * time.Minute)
		if w.status() != nil {
			t.Error("it is not forgotten when the source has left")
		}
	})
}

// TestAnIndexThatNobodyWantsIsForgotten, and nothing else of its kind: the informers, and what they report.
func TestAnIndexThatNobodyWantsIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKindsWorld(t.Context())
		key := keyOfPods()
		w.indexes.add(key, &index{field: "bad"})
		w.conflict.Store(&errNo)
		if err := w.ensure(t.Context(), key, "bad"); !errors.Is(err, errNo) {
			t.Error(err)
		}
		lists := w.lister(key)
		w.report(lists, listing, context.DeadlineExceeded)
		w.report(lists, watching, context.DeadlineExceeded)
		<-time.After(2 * forgetAfter)
		synctest.Wait()
		failing := w.of[key].failing
		if _, ok := failing[step{what: indexing, field: "bad"}]; ok || len(failing) != 2 || w.missing.down.Load() != 0 {
			t.Errorf("%v fail, want that it cannot be listed and watched", failing)
		}
		if s := w.status(); len(s) != 1 || s[0].Reason != ReasonTimeout {
			t.Errorf("status is %v, want a time-out", s)
		}
		w.report(lists, listing, nil)
		w.report(lists, watching, nil)
		if err := w.ensure(t.Context(), key); err != nil || w.opened.Load() != 1 {
			t.Errorf("ensure() = %v; informers were made %d times", err, w.opened.Load())
		}
	})
}

func TestAnAttemptThatTakesLongIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKindsWorld(t.Context())
		w.unmapped.Store(&errNo)
		_ = w.ensure(t.Context(), keyOfPods())
		<-time.After(w.most)
		w.answers = make(chan struct{})
		results := make(chan error, 2)
		ask := func() { results <- w.ensure(t.Context(), keyOfPods()) }
		go ask()
		<-time.After(3 * forgetAfter)
		go ask()
		synctest.Wait()
		if len(w.status()) != 1 || w.opened.Load() != 2 {
			t.Errorf("status is %v after %d attempts, want one that failed and one that is under way", w.status(), w.opened.Load())
		}
		close(w.answers)
		for range 2 {
			if err := <-results; !errors.Is(err, errNo) {
				t.Error(err)
			}
		}
		<-time.After(3 * forgetAfter)
		if w.status() != nil || w.missing.down.Load() != 0 {
			t.Errorf("status is %v, and %d are missing", w.status(), w.missing.down.Load())
		}
	})
}

// TestWhatWasRemovedForgetsNothingThatCameAfterIt: the time of the failure before is not over.
func TestWhatWasRemovedForgetsNothingThatCameAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKindsWorld(t.Context())
		key := keyOfPods()
		w.unmapped.Store(&errNo)
		_ = w.ensure(t.Context(), key)
		if err := w.remove(t.Context(), key, func() error { return nil }); err != nil {
			t.Error(err)
		}
		if w.knows(key) || w.status() != nil {
			t.Errorf("it is known: %t, and its status is %v", w.knows(key), w.status())
		}
		w.unmapped.Store(nil)
		if err := w.ensure(t.Context(), key); err != nil {
			t.Error(err)
		}
		<-time.After(2 * forgetAfter)
		if !w.knows(key) {
			t.Error("what came after it was forgotten")
		}
	})
}

func TestRemovingWaitsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKindsWorld(t.Context())
		w.answers = make(chan struct{})
		go func() { _ = w.ensure(t.Context(), keyOfPods()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		removed := false
		if err := w.remove(ctx, keyOfPods(), func() error { removed = true; return nil }); !errors.Is(err, context.DeadlineExceeded) || removed {
			t.Errorf("remove() = %v; it was removed: %t", err, removed)
		}
		close(w.answers)
	})
}

// TestInformersAreReleasedThatNobodyUses: the caller says by retire whether there is anything else that keeps them.
func TestInformersAreReleasedThatNobodyUses(t *testing.T) {
	free := func() bool { return true }
	for name, c := range map[string]struct {
		use    func(w *kindsWorld, s *kind)
		retire func() bool
		want   bool
	}{
		"nobody has used them": {func(*kindsWorld, *kind) {}, free, true},
		"retire says no":       {func(*kindsWorld, *kind) {}, func() bool { return false }, false},
		"they were read":       {func(w *kindsWorld, _ *kind) { _ = w.serve(w.ctx, keyOfPods()) }, free, false},
		"a source waits":       {func(w *kindsWorld, _ *kind) { w.beginWaiting(keyOfPods()) }, free, false},
		"an index is added":    {func(_ *kindsWorld, s *kind) { s.trying = make(chan struct{}) }, free, false},
		"there are none":       {func(_ *kindsWorld, s *kind) { s.mapped = false }, free, false},
		"they stay":            {func(*kindsWorld, *kind) {}, free, false},
	} {
		var fails error
		if name == "they stay" {
			fails = errNo
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newKindsWorld(t.Context())
				key := keyOfPods()
				if err := w.ensure(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				close(w.informers[key].synced)
				_ = w.serve(t.Context(), key)
				s := w.of[key]
				s.read.Store(false)
				c.use(w, s)
				mapped := s.mapped
				released, err := w.release(key, c.retire, func() error {
					if w.knows(key) {
						t.Error("they are handed out while they are released")
					}
					return fails
				})
				if released != c.want || !errors.Is(err, fails) || (w.of[key] == nil) != c.want {
					t.Errorf("they were released: %t, want %t; %v", released, c.want, err)
				}
				if !released && (w.of[key] != s || s.mapped != mapped) {
					t.Errorf("what stays is not as before: %+v", w.of[key])
				}
				if s.trying != nil != (name == "an index is added") || w.status() != nil {
					t.Error("something is still under way")
				}
			})
		})
	}
	w := newKindsWorld(t.Context())
	if released, err := w.release(keyOfPods(), nil, nil); !released || err != nil {
		t.Errorf("what is not known was released: %t, %v", released, err)
	}
}

// TestKindsThatAreMissingInManyMembersAreAskedForAtARateOfTheFleet: it is as high for ten thousand as for one thousand.
func TestKindsThatAreMissingInManyMembersAreAskedForAtARateOfTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKindsWorld(t.Context())
		w.missing.down.Add(9999)
		w.unmapped.Store(&errNo)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		go func() { _ = w.await(ctx, keyOfPods()) }()
		<-time.After(time.Hour)
		if asked := w.opened.Load(); asked < 30 || asked > 60 {
			t.Errorf("one of ten thousand was asked for %d times in an hour, want about every 100 seconds", asked)
		}
	})
}

// TestAKindIsCountedWhileItIsMissing: what is mapped, forgotten or of an engagement that is over counts no more.
func TestAKindIsCountedWhileItIsMissing(t *testing.T) {
	for name, tc := range map[string]func(w *kindsWorld, end func()){
		"until it is mapped": func(w *kindsWorld, _ func()) {
			w.unmapped.Store(nil)
			<-time.After(w.most)
			_ = w.ensure(w.ctx, keyOfPods())
		},
		"until it is forgotten":        func(*kindsWorld, func()) { <-time.After(2 * forgetAfter) },
		"until its engagement is over": func(_ *kindsWorld, end func()) { end(); <-time.After(2 * forgetAfter) },
		"until it is removed": func(w *kindsWorld, _ func()) {
			_ = w.remove(w.ctx, keyOfPods(), func() error { return nil })
			<-time.After(2 * forgetAfter)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				defer end()
				w := newKindsWorld(ctx)
				w.unmapped.Store(&errNo)
				_ = w.ensure(ctx, keyOfPods())
				if n := w.missing.down.Load(); n != 1 {
					t.Errorf("%d kinds are missing, want one", n)
				}
				tc(w, end)
				synctest.Wait()
				if n := w.missing.down.Load(); n != 0 {
					t.Errorf("%d kinds are missing, want none", n)
				}
			})
		})
	}
}

// TestAKindIsMissingOnlyWhileItFails, however often it failed and worked before.
func TestAKindIsMissingOnlyWhileItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKindsWorld(t.Context())
		key := keyOfPods()
		add := func(field string, why *error, missing int64) {
			t.Helper()
			w.conflict.Store(why)
			w.indexes.add(key, &index{field: field})
			err := w.ensure(t.Context(), key, field)
			if n := w.missing.down.Load(); n != missing || (err != nil) != (why != nil) {
				t.Errorf("field %s: %v, and %d are missing, want %d", field, err, n, missing)
			}
			<-time.After(w.most)
		}
		add("a", nil, 0)
		for range 2 {
			add("b", &errNo, 1)
			add("b", nil, 0)
			add("c", nil, 0)
			delete(w.indexes.of[key], "b")
			delete(w.of[key].indexed, "b")
		}
	})
}

func TestAReaderWaitsUntilTheKindIsSyncedOrFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKindsWorld(t.Context())
		key := keyOfPods()
		results := make(chan error, 1)
		read := func() { results <- w.serve(t.Context(), key) }
		go read()
		synctest.Wait()
		if len(results) != 0 {
			t.Fatalf("the reader does not wait: %v", <-results)
		}
		lists := w.lister(key)
		w.report(lists, watching, nil)
		w.report(lists, listing, errNo)
		if err := <-results; !errors.Is(err, errNo) {
			t.Errorf("serve() = %v, want what failed", err)
		}
		if err := w.serve(t.Context(), key); !errors.Is(err, errNo) {
			t.Errorf("serve() = %v while it fails", err)
		}
		w.report(lists, listing, nil)
		go read()
		synctest.Wait()
		close(w.informers[key].synced)
		if err := <-results; err != nil {
			t.Error(err)
		}
		w.report(lists, watching, errNo)
		if err := w.serve(t.Context(), key); err != nil {
			t.Errorf("serve() = %v: what is synced can be read", err)
		}
		if len(w.status()) != 1 {
			t.Error("the watch that fails does not show")
		}
	})
}

// TestAnErrorSaysWhetherASourceGoesOnTrying, so that whoever waits for the kind is told.
func TestAnErrorSaysWhetherASourceGoesOnTrying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKindsWorld(t.Context())
		w.unmapped.Store(&errNo)
		mustBeTried := func(what string, want bool) {
			t.Helper()
			err, is := errors.AsType[*notSyncedError](w.serve(t.Context(), keyOfPods()))
			if !is || err.IsTried() != want {
				t.Errorf("%s: it is tried: %t, want %t (%v)", what, !want, want, err)
			}
		}
		_ = w.ensure(t.Context(), keyOfPods())
		mustBeTried("read alone", false)
		ctx, end := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { defer close(over); _ = w.await(ctx, keyOfPods()) }()
		synctest.Wait()
		mustBeTried("with a source", true)
		end()
		<-over
		mustBeTried("after the source", false)
		w.unmapped.Store(nil)
		<-time.After(w.most)
		_ = w.ensure(t.Context(), keyOfPods())
		w.report(w.lister(keyOfPods()), listing, errNo)
		mustBeTried("listed by an informer", true)
	})
}

func TestAKindFailsWhileOneThatListsItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKindsWorld(t.Context())
		a, b := w.lister(keyOfPods()), w.lister(keyOfPods())
		began := time.Now()
		w.report(a, listing, errNo)
		<-time.After(time.Second)
		w.report(b, listing, apierrors.NewForbidden(schema.GroupResource{}, "", errNo))
		w.report(b, watching, errNo)
		w.report(b, listing, nil)
		want := []NotSynced{{Kind: metav1.GroupKind{Kind: "Pod"}, Reason: ReasonError, Since: began, Message: "no"}}
		if diff := cmp.Diff(want, w.status()); diff != "" {
			t.Errorf("status (-want, +got):\n%s", diff)
		}
		w.report(a, listing, nil)
		if len(w.status()) != 1 || w.changed() != 1 {
			t.Errorf("status is %v after %d changes: one watch fails, for the same reason", w.status(), w.changed())
		}
		w.report(b, watching, context.DeadlineExceeded)
		w.report(b, watching, fmt.Errorf("another text: %w", context.DeadlineExceeded))
		if w.changed() != 2 || w.status()[0].Reason != ReasonTimeout {
			t.Errorf("status is %v after %d changes, want one for another reason", w.status(), w.changed())
		}
		w.report(b, watching, nil)
		if w.status() != nil || w.changed() != 3 || len(w.logged()) != 3 {
			t.Errorf("status is %v after %d changes and %d lines", w.status(), w.changed(), len(w.logged()))
		}
	})
}

// TestEachKindThatFailsIsTold, although another one fails for the same reason, and longer. The status has them in order.
func TestEachKindThatFailsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKindsWorld(t.Context())
		kinds := []string{"Pod", "Secret", "ConfigMap", "Event", "Service"}
		listers := make([]*retrying, len(kinds))
		for i, kind := range kinds {
			listers[i] = w.lister(informer.Key{GVK: corev1.SchemeGroupVersion.WithKind(kind)})
			w.report(listers[i], listing, errNo)
			if w.changed() != i+1 || len(w.status()) != i+1 {
				t.Errorf("status is %v after %d changes, want %d kinds and as many changes", w.status(), w.changed(), i+1)
			}
			<-time.After(time.Second)
		}
		names := make([]string, 0, len(kinds))
		for _, failing := range w.status() {
			names = append(names, failing.Name())
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(kinds)), names); diff != "" {
			t.Errorf("the kinds of the status (-want, +got):\n%s", diff)
		}
		if got, want := notSyncedMessage(w.status()[:2]), "ConfigMap: Error: no; Event: Error: no"; got != want {
			t.Errorf("the message is %q, want %q", got, want)
		}
		w.report(listers[0], listing, nil)
		if len(w.status()) != len(kinds)-1 || w.changed() != len(kinds)+1 {
			t.Errorf("status is %v after %d changes, want that one kind works", w.status(), w.changed())
		}
	})
}

func TestAnIndexThatFailsBlocksReadsByItAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKindsWorld(t.Context())
		key := keyOfPods()
		w.indexes.add(key, &index{field: "good"})
		if err := w.ensure(t.Context(), key, "good"); err != nil {
			t.Fatal(err)
		}
		close(w.informers[key].synced)
		w.conflict.Store(&errNo)
		w.indexes.add(key, &index{field: "bad"})
		for range 2 {
			if err := w.serve(t.Context(), key, "bad"); !errors.Is(err, errNo) {
				t.Errorf("a read by what has no index says %v", err)
			}
		}
		for _, by := range [][]string{nil, {"good"}, {"unknown"}} {
			if err := w.serve(t.Context(), key, by...); err != nil {
				t.Errorf("a read by %q says %v", by, err)
			}
		}
		if len(w.status()) != 1 || w.opened.Load() != 1 {
			t.Errorf("status is %v after %d attempts to make informers", w.status(), w.opened.Load())
		}
		w.conflict.Store(nil)
		<-time.After(w.most)
		if err := w.serve(t.Context(), key, "bad", "good"); err != nil || w.status() != nil {
			t.Errorf("serve() = %v, status is %v", err, w.status())
		}
	})
}

func TestInformersThatAreRemovedSayNothingAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKindsWorld(t.Context())
		key := keyOfPods()
		results := make(chan error, 1)
		go func() { results <- w.serve(t.Context(), key) }()
		synctest.Wait()
		before := w.lister(key)
		w.report(before, watching, errNo)
		if err := <-results; !errors.Is(err, errNo) {
			t.Error(err)
		}
		removing := make(chan struct{})
		removed := make(chan error, 1)
		go func() { removed <- w.remove(t.Context(), key, func() error { <-removing; return nil }) }()
		synctest.Wait()
		go func() { results <- w.serve(t.Context(), key) }()
		go func() { results <- w.remove(t.Context(), key, func() error { return errNo }) }()
		synctest.Wait()
		if w.opened.Load() != 1 {
			t.Error("informers are made while others are removed")
		}
		close(removing)
		if err := errors.Join(<-removed); err != nil {
			t.Error(err)
		}
		if err := <-results; !errors.Is(err, errNo) {
			t.Errorf("remove() = %v, want what went wrong", err)
		}
		w.report(before, listing, errNo)
		if w.status() != nil || w.opened.Load() > 2 {
			t.Errorf("status is %v", w.status())
		}
	})
}

func TestNobodyWaitsForAnEngagementThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancelCause(t.Context())
		w := newKindsWorld(ctx)
		results := make(chan error, 3)
		go func() { results <- w.serve(t.Context(), keyOfPods()) }()
		synctest.Wait()
		w.unmapped.Store(&errNo)
		other := informer.Key{GVK: corev1.SchemeGroupVersion.WithKind("Secret")}
		go func() { results <- w.await(t.Context(), other) }()
		synctest.Wait()
		stop(ErrDisengaged)
		if err := <-results; !errors.Is(err, ErrDisengaged) {
			t.Error(err)
		}
		if err := <-results; !errors.Is(err, ErrDisengaged) {
			t.Error(err)
		}
		changes := w.changed()
		<-time.After(time.Hour)
		if w.changed() != changes {
			t.Error("followers are told of an engagement that is over")
		}
	})
}

// TestKindsAgreeWithAModel: whatever happens in whatever order, the status and what readers are told is what the sum of the
// reports says.
func TestKindsAgreeWithAModel(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			w := newKindsWorld(t.Context())
			random := rand.New(rand.NewPCG(seed, 0))
			key := keyOfPods()
			if err := w.ensure(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			listers := []*retrying{w.lister(key), w.lister(key)}
			model := map[step]error{}
			visible, changes := "", 0
			for range 60 {
				at := step{what: []stage{listing, watching}[random.IntN(2)], by: listers[random.IntN(2)]}
				err := []error{nil, nil, errNo, context.DeadlineExceeded}[random.IntN(4)]
				<-time.After(time.Second)
				w.report(at.by, at.what, err)
				model[at] = err
				if err == nil {
					delete(model, at)
				}
				now := ""
				if status := w.status(); len(status) == 1 {
					now = status[0].Reason
				}
				if now != visible {
					visible, changes = now, changes+1
				}
				if (len(model) == 0) != (now == "") || w.changed() != changes || len(w.logged()) != changes {
					t.Fatalf("seed %d: %v fail, and the status is %v after %d changes and %d lines, want %d",
						seed, model, w.status(), w.changed(), len(w.logged()), changes)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				if err := w.serve(ctx, key); errors.Is(err, ErrNotReady) != (len(model) > 0) {
					t.Fatalf("seed %d: %v fail, and a reader is told %v", seed, model, err)
				}
				cancel()
			}
		})
	}
}

func TestAFieldIsIndexedOnceUnlessItIsShared(t *testing.T) {
	f := New(Options{})
	extract := func(client.Object) []string { return nil }
	if err := f.EnsureIndex(t.Context(), &corev1.Pod{}, "a", extract); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		obj   client.Object
		field string
		want  error
	}{
		"Same":         {&corev1.Pod{}, "a", ErrIndexExists},
		"AnotherField": {&corev1.Pod{}, "b", nil},
		"AnotherKind":  {&corev1.Secret{}, "a", nil},
		"AnotherForm":  {&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}, "a", nil},
	} {
		if err := f.IndexField(t.Context(), c.obj, c.field, extract); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err := f.EnsureIndex(t.Context(), c.obj, c.field, extract); err != nil {
			t.Errorf("%s, shared: %v", name, err)
		}
	}
}

// TestASourceWaitsWhileAReaderTriesAgain: the reader's attempt notes when the next is due, which the source waits for.
func TestASourceWaitsWhileAReaderTriesAgain(t *testing.T) {
	w := newKindsWorld(t.Context())
	w.conflict.Store(&errNo)
	key := keyOfPods()
	w.indexes.add(key, &index{field: "bad"})
	over := make(chan error, 1)
	ctx, leave := context.WithCancel(t.Context())
	go func() { over <- w.await(ctx, key, "bad") }()
	waits := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.of[key] != nil && w.of[key].stirred != nil
	}
	for n := range 100 {
		for !waits() {
			runtime.Gosched()
		}
		field := fmt.Sprint(n)
		w.indexes.add(key, &index{field: field})
		_ = w.ensure(t.Context(), key, field)
	}
	leave()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
