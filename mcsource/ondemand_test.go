package mcsource

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// demands is a fleet with a source on demand, and what was started for it.
type demands struct {
	t      *testing.T
	fleet  fleettest.Running
	demand *OnDemand
	ctx    context.Context // the controller's
	stop   context.CancelFunc

	mu    sync.Mutex // guards what follows
	lifes []context.Context
	over  chan struct{} // sources end when it is closed; nil for at once
}

// newDemands is called within synctest. The controller is not started.
func newDemands(t *testing.T) *demands {
	t.Helper()
	f, end := fleettest.Run(t, fleet.Options{})
	d := &demands{t: t, fleet: f, demand: NewOnDemand(f.Fleet)}
	d.ctx, d.stop = context.WithCancel(t.Context())
	t.Cleanup(func() {
		end()
		synctest.Wait()
		if len(d.demand.watches) > 0 {
			t.Errorf("%d watches are left of engagements that are over", len(d.demand.watches))
		}
	})
	return d
}

func (d *demands) start() {
	d.t.Helper()
	if err := d.demand.Start(d.ctx, nil); err != nil {
		d.t.Fatal(err)
	}
	synctest.Wait()
}

// set engages a member, anew if it is one.
func (d *demands) set(name fleet.ClusterName) {
	d.t.Helper()
	if err := d.fleet.Set(fleet.Member{Name: name, Cluster: &made{}}); err != nil {
		d.t.Fatal(err)
	}
	synctest.Wait()
}

func (d *demands) remove(name fleet.ClusterName) (drained <-chan struct{}) {
	drained = d.fleet.Remove(name)
	synctest.Wait()
	return drained
}

// in returns the context of a reconcile of a member, as it is engaged now.
func (d *demands) in(name fleet.ClusterName) context.Context {
	d.t.Helper()
	e, err := d.fleet.Engagement(name)
	if err != nil {
		d.t.Fatal(err)
	}
	return mcreconcile.WithCluster(d.t.Context(), name, e.Cluster())
}

// watch asks for a watch, which must be possible.
func (d *demands) watch(ctx context.Context, name string) {
	d.t.Helper()
	if err := d.demand.Watch(ctx, name, TypedFunc[mcreconcile.Request](d.source)); err != nil {
		d.t.Error(err)
	}
}

// source is what is watched.
func (d *demands) source(
	context.Context, mcreconcile.ClusterName, cluster.Cluster,
) (source.TypedSource[mcreconcile.Request], error) {
	return demanded{d}, nil
}

type demanded struct{ *demands }

// Start implements source.TypedSource.
func (d demanded) Start(ctx context.Context, _ workqueue.TypedRateLimitingInterface[mcreconcile.Request]) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lifes = append(d.lifes, ctx)
	return nil
}

// Wait is called when the source shall have ended.
func (d demanded) Wait() {
	if d.over != nil {
		<-d.over
	}
}

// is fails the test unless so many sources were started, and so many of them run.
func (d *demands) is(ever, run int) {
	d.t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	running := 0
	for _, ctx := range d.lifes {
		if ctx.Err() == nil {
			running++
		}
	}
	if len(d.lifes) != ever || running != run {
		d.t.Errorf("%d sources were started, and %d run, want %d and %d", len(d.lifes), running, ever, run)
	}
}

// TestAWatchOnDemandBeginsOnceInEachEngagement, however many reconciles ask for it, in the member alone in which they ask.
func TestAWatchOnDemandBeginsOnceInEachEngagement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDemands(t)
		d.start()
		d.set("a")
		d.set("b")
		d.is(0, 0)
		first := d.in("a")
		var asking sync.WaitGroup
		for range 100 {
			asking.Go(func() { d.watch(first, "nodes") })
		}
		asking.Wait()
		d.is(1, 1)
		d.watch(first, "pods")
		d.watch(d.in("b"), "nodes")
		d.is(3, 3)

		d.set("a")
		d.is(3, 1)
		if err := d.demand.Watch(first, "nodes", TypedFunc[mcreconcile.Request](d.source)); !errors.Is(err, fleet.ErrDisengaged) {
			t.Errorf("asked from an engagement that is over: %v", err)
		}
		d.watch(d.in("a"), "nodes")
		d.is(4, 2)
		d.demand.Unwatch(first, "nodes")
		d.is(4, 2) // a reconcile of an engagement that is over ends nothing of this one
		d.stop()
		d.is(4, 0)
	})
}

// TestMembersThatAreOneClusterAreWatchedEach: a provider may report the same cluster for two of them, or for one again.
func TestMembersThatAreOneClusterAreWatchedEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDemands(t)
		d.start()
		same := &made{}
		engage := func(name fleet.ClusterName) {
			if err := d.fleet.Set(fleet.Member{Name: name, Cluster: same}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			d.watch(d.in(name), "nodes")
		}
		engage("a")
		engage("b")
		d.is(2, 2)
		d.demand.Unwatch(d.in("a"), "nodes")
		d.is(2, 1)
		<-d.remove("b")
		d.is(2, 0)
		engage("b")
		d.is(3, 1)
	})
}

// TestAWatchOnDemandIsRefusedWhereItWouldNotLast: in a member that leaves or has left, and where there is none. The drain waits
// for those that there are.
func TestAWatchOnDemandIsRefusedWhereItWouldNotLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDemands(t)
		d.over = make(chan struct{})
		d.start()
		d.set("a")
		ctx := d.in("a")
		reconcile, returned := context.WithCancel(ctx)
		d.watch(ctx, "nodes")
		d.is(1, 1)
		drained := d.remove("a")
		d.is(1, 0)
		select {
		case <-drained:
			t.Error("the member is drained while its source still adds to the queue")
		default:
		}
		each := TypedFunc[mcreconcile.Request](d.source)
		for _, name := range []string{"nodes", "pods"} {
			if err := d.demand.Watch(ctx, name, each); !errors.Is(err, fleet.ErrNotReady) {
				t.Errorf("asked for %s in a member that leaves: %v", name, err)
			}
		}
		close(d.over)
		<-drained
		if err := d.demand.Watch(ctx, "pods", each); !errors.Is(err, fleet.ErrGone) {
			t.Errorf("asked in a member that has left: %v", err)
		}
		returned()
		if err := d.demand.Watch(reconcile, "pods", each); !errors.Is(err, context.Canceled) {
			t.Errorf("asked by a reconcile that has ended: %v", err)
		}
		if err := d.demand.Watch(t.Context(), "pods", each); err == nil {
			t.Error("asked without a cluster: no error")
		}
		if err := d.demand.Watch(ctx, "", each); err == nil {
			t.Error("asked without a name: no error")
		}
		d.is(1, 0)
	})
}

func TestAWatchOnDemandNeedsANameASourceAndAMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDemands(t)
		d.start()
		d.set("a")
		each := TypedFunc[mcreconcile.Request](d.source)
		local := mcreconcile.WithCluster(t.Context(), mcreconcile.LocalCluster, &made{})
		for what, err := range map[string]error{
			"name":   d.demand.Watch(d.in("a"), "", each),
			"source": d.demand.Watch(d.in("a"), "nodes", nil),
			"member": d.demand.Watch(local, "nodes", each),
		} {
			if err == nil || !strings.Contains(err.Error(), "needs a name, a source, and a context that carries a member") {
				t.Errorf("without a %s: %v", what, err)
			}
		}
		d.is(0, 0)
	})
}

// TestAWatchOnDemandBeginsWithTheController if it was asked for before, and its member has not left. A second controller needs
// one of its own.
func TestAWatchOnDemandBeginsWithTheController(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDemands(t)
		for _, name := range []fleet.ClusterName{"a", "b", "c"} {
			d.set(name)
			d.watch(d.in(name), "nodes")
		}
		<-d.remove("b")
		d.demand.Unwatch(d.in("c"), "nodes")
		d.is(0, 0)
		d.start()
		d.is(1, 1)
		if err := d.demand.Start(d.ctx, nil); err == nil {
			t.Error("it was started twice")
		}
	})
}

// TestAWatchOnDemandCanBeEnded: alone, and begun again.
func TestAWatchOnDemandCanBeEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDemands(t)
		d.start()
		d.set("a")
		d.watch(d.in("a"), "nodes")
		d.watch(d.in("a"), "pods")
		d.is(2, 2)
		d.demand.Unwatch(d.in("a"), "nodes")
		d.demand.Unwatch(d.in("a"), "nodes")
		d.demand.Unwatch(t.Context(), "nodes")
		d.is(2, 1)
		d.watch(d.in("a"), "nodes")
		d.is(3, 2)
		<-d.remove("a")
		d.is(3, 0)
	})
}
