package mcbuilder_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// noting is middleware that notes when it is called, and by what.
func noting(name string, note func(string)) mcbuilder.Middleware {
	return func(next mcreconcile.Reconciler) mcreconcile.Reconciler {
		return mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			call, ok := mcbuilder.CallFrom(ctx)
			at, _ := mcreconcile.ClusterNameFrom(ctx)
			if !ok || at != req.ClusterName || call.Waited <= 0 {
				note("wrong: " + string(at) + " " + call.Controller)
			}
			note(name + " of " + call.Controller)
			defer note("after " + name)
			return next.Reconcile(ctx, req)
		})
	}
}

func TestMiddlewareIsCalledInOrderWithWhatTheReconcileIs(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	var mu sync.Mutex
	notes := map[string][]string{}
	const name = "middle"
	mgr := newManager(t, f, members(f), logr.Discard())
	namespace := everywhere(t, f, name)
	notingAt := func(what string) mcbuilder.Middleware {
		return func(next mcreconcile.Reconciler) mcreconcile.Reconciler {
			return mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
				if req.Namespace != namespace {
					return next.Reconcile(ctx, req)
				}
				return noting(what, func(line string) {
					mu.Lock()
					defer mu.Unlock()
					notes[string(req.ClusterName)] = append(notes[string(req.ClusterName)], line)
				})(next).Reconcile(ctx, req)
			})
		}
	}
	var s seen
	s.namespace = namespace
	err := mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}, mcbuilder.InLocalCluster, mcbuilder.InMembers(labels.Everything())).Named("noted").
		WithMiddleware(notingAt("first"), notingAt("second")).WithMiddleware(notingAt("third")).Complete(&s)
	if err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	member := f.Members[0].Name
	s.become(t, "/"+name, member+"/"+name)
	want := []string{"first of noted", "second of noted", "third of noted", "after third", "after second", "after first"}
	eventually(t, "the middleware was called", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(notes[""]) >= len(want) && len(notes[member]) >= len(want)
	})
	mu.Lock()
	defer mu.Unlock()
	for _, at := range []string{"", member} {
		if diff := cmp.Diff(want, notes[at][:len(want)]); diff != "" {
			t.Errorf("in cluster %q (-want, +got):\n%s", at, diff)
		}
		if slices.ContainsFunc(notes[at], func(line string) bool { return strings.HasPrefix(line, "wrong") }) {
			t.Errorf("in cluster %q: %q", at, notes[at])
		}
	}
}

func TestMiddlewareThatIsNoneIsAnErrorOfBuild(t *testing.T) {
	t.Parallel()
	f := pool.Share(t, mctest.Options{})
	for says, middleware := range map[string]mcbuilder.Middleware{
		"a middleware is nil":                 nil,
		"a middleware returned no reconciler": func(mcreconcile.Reconciler) mcreconcile.Reconciler { return nil },
	} {
		mgr := newManager(t, &mctest.Fleet{Local: f}, nil, logr.Discard())
		err := mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).WithMiddleware(middleware).Complete(&seen{})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Complete() = %v, want %q", err, says)
		}
	}
}

func TestCallIsNotKnownOutsideOfAReconcile(t *testing.T) {
	t.Parallel()
	if call, ok := mcbuilder.CallFrom(t.Context()); ok {
		t.Errorf("CallFrom() = %v", call)
	}
}
