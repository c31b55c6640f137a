package fleet

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/fleet-runtime/fleet-runtime/internal/informer"
)

// TestTheSameClusterAloneLeavesWhatWasLost: what was in another cluster is no news of this one. Where an identity is not known, an
// object that stays shows that it is the same.
func TestTheSameClusterAloneLeavesWhatWasLost(t *testing.T) {
	for name, c := range map[string]struct {
		before, after, stays string
		told                 bool
	}{
		"Same": {before: "x", after: "x", told: true}, "Another": {before: "x", after: "y", stays: "stays"},
		"Unknown": {before: "x"}, "UnknownAndTheSame": {before: "x", stays: "stays", told: true},
		"Known": {after: "y"}, "KnownAndTheSame": {after: "y", stays: "stays", told: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				before, e := newEngagement(ctx, "a"), newEngagement(ctx, "a")
				before.identity, e.identity = c.before, c.after
				runInformer(ctx, t, before, "goes", c.stays)
				synctest.Wait()
				e.inherit(before)
				heir := runInformer(ctx, t, e, c.stays)
				synctest.Wait()
				e.takesOver(before)
				e.informers.Open(ctx)
				var told []string
				if _, err := heir.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
					key, _ := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj)
					told = append(told, key)
				}}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if slices.Contains(told, "goes") != c.told {
					t.Errorf("the handler was told that %q are gone", told)
				}
				stop()
				synctest.Wait()
			})
		})
	}
}

// runInformer runs an informer of an engagement in which there are these objects, whose names are their UIDs; none without a name.
func runInformer(ctx context.Context, t *testing.T, e *Engagement, objects ...string) *informer.Informer {
	t.Helper()
	source := fcache.NewFakeControllerSource()
	context.AfterFunc(ctx, source.Shutdown)
	for _, name := range objects {
		if name != "" {
			source.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
		}
	}
	i, ok := informer.New(source, &corev1.ConfigMap{}, 0, toolscache.Indexers{}).(*informer.Informer)
	if !ok {
		t.Fatal("it is not the fleet's informer")
	}
	e.informers.Add(informer.Key{}, i)
	go i.RunWithContext(ctx)
	return i
}

// TestAnEngagementThatFellSilentIsNotReady: its probes failed while its caches were filled.
func TestAnEngagementThatFellSilentIsNotReady(t *testing.T) {
	f := New(Options{})
	m := newMember(f, Member{Name: "a"})
	e := newEngagement(t.Context(), "a")
	m.health(e, Unreachable, context.DeadlineExceeded)
	if err := m.engaged(m.described, e); err != nil {
		t.Fatal(err)
	}
	if m.state != Unreachable || m.reason != ReasonTimeout {
		t.Errorf("it is %s (%s), want Unreachable (Timeout)", m.state, m.reason)
	}
	m.health(e, Ready, nil)
	if m.state != Ready || m.reason != "" {
		t.Errorf("it is %s (%s), want Ready", m.state, m.reason)
	}
}

// TestTheNextEngagementHasTheKindsOfTheOneBefore when it takes its place, if its cache is the fleet's.
func TestTheNextEngagementHasTheKindsOfTheOneBefore(t *testing.T) {
	for name, c := range map[string]struct {
		wire   *wire
		before bool
		want   int
	}{
		"the cache is the fleet's": {&wire{}, true, 1}, "the cache is the provider's": {nil, true, 0}, "it is the first": {&wire{}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				var before *Engagement
				if c.before {
					before = newEngagement(ctx, "a")
					runInformer(ctx, t, before, "x")
				}
				e, w := newEngagement(ctx, "a"), newKindsWorld(ctx)
				e.wire, e.kinds = c.wire, w.kinds
				w.unmapped.Store(&errNo) // it is not waited for
				e.inherit(before)
				e.syncBeside(ctx, before)
				if n := int(w.opened.Load()); n != c.want {
					t.Errorf("%d kinds were asked for, want %d", n, c.want)
				}
				synctest.Wait() // a source that is shut down lets no list end
				stop()
				synctest.Wait()
			})
		})
	}
}

// TestHealthIsLoggedWhenItChanges, and that another cluster answers is told once, until the member is Ready again.
func TestHealthIsLoggedWhenItChanges(t *testing.T) {
	var lines []string
	f := New(Options{Logger: funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})})
	m := newMember(f, Member{Name: "a"})
	e := newEngagement(t.Context(), "a")
	if err := m.engaged(m.described, e); err != nil {
		t.Fatal(err)
	}
	lines = nil
	another := &anotherClusterError{known: "x", now: "y"}
	for n, c := range []struct {
		state State
		why   error
		lines int
		told  bool // to look for an engagement of its own
	}{
		{Unreachable, context.DeadlineExceeded, 1, false},
		{Unreachable, context.DeadlineExceeded, 1, false},
		{Unreachable, another, 2, true},
		{Unreachable, another, 2, false},
		{Ready, nil, 3, false},
		{Ready, nil, 3, false},
		{Unreachable, another, 4, true},
	} {
		select {
		case <-m.news:
		default:
		}
		m.health(e, c.state, c.why)
		if len(lines) != c.lines || (len(m.news) > 0) != c.told || m.impostor != errors.Is(c.why, ErrAnotherCluster) {
			t.Errorf("%d: %d lines; it is told: %t; another cluster answers: %t", n, len(lines), len(m.news) > 0, m.impostor)
		}
		if why := m.unreachable(); (why != nil) != (c.state == Unreachable) {
			t.Errorf("%d: requests are told %v", n, why)
		}
	}
}
