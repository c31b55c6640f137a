package dependents_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// gate lets nobody through while it is closed.
type gate struct {
	mu     sync.Mutex // guards closed
	closed chan struct{}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

func (g *gate) pass(ctx context.Context) {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed == nil {
		return
	}
	select {
	case <-closed:
	case <-ctx.Done():
	}
}

// TestStatusSaysPendingUntilAClusterWasLookedAt, after a start and after a change of the owner: what was so before is no news.
func TestStatusSaysPendingUntilAClusterWasLookedAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	slow := mcreconcile.ClusterName(w.Members[1].Name)
	var g gate
	t.Cleanup(g.open)
	run := func() (*process, *outcomes) {
		r := w.spread()
		desired := r.Desired
		r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
			if target.Cluster == slow {
				g.pass(ctx)
			}
			return desired(ctx, owner, target)
		}
		told := listen(r)
		return w.run(r), told
	}
	is := func(told *outcomes, done, pending int) func() bool {
		return func() bool {
			results := told.of("a")
			s := dependents.Summarize(results)
			isPending := func(r dependents.Result) bool { return r.Cluster == slow && errors.Is(r.Err, dependents.ErrPending) }
			return s.Done == done && s.Pending == pending && slices.ContainsFunc(results, isPending) == (pending > 0)
		}
	}
	g.close()
	p, told := run()
	w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name))
	eventually(t, "the second one is pending", is(told, 1, 1))
	g.open()
	eventually(t, "both are done", is(told, 2, 0))
	g.close()
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "after a change the second one is pending", is(told, 1, 1))
	g.open()
	eventually(t, "both are done again", is(told, 2, 0))
	p.stop()
	g.close()
	_, told = run()
	eventually(t, "after a start the second one is pending", is(told, 1, 1))
	g.open()
	eventually(t, "both are done at last", is(told, 2, 0))
}

// TestStatusSaysPendingForAnOwnerThatCannotBePlanned: what is there is not what it asks for now, until it asks for what it did before.
func TestStatusSaysPendingForAnOwnerThatCannotBePlanned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	r := w.planless()
	told := listen(r)
	p := w.run(r)
	is := func(done, pending int) func() bool {
		return func() bool {
			s := dependents.Summarize(told.of("a"))
			return s.Done == done && s.Pending == pending
		}
	}
	w.create(w.Local, w.owner("a", w.Members[0].Name))
	eventually(t, "it is done, and all is written", func() bool { return is(1, 0)() && p.isAtRest() })
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "it is pending, and all is written", func() bool { return is(0, 1)() && p.isAtRest() })
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "1" })
	eventually(t, "it is done again", is(1, 0))
}
