package e2e

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestRequestsOfAnUnreachableMemberWait: they hold no worker, are not lost, and run when the member is back. Its watches
// go on where they were.
func TestRequestsOfAnUnreachableMemberWait(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 2})
	ns := inAll(t, f)
	m := newManager(t, f.Local)
	seen := newRecord()
	outside := make(chan mcsource.ClusterEvent[client.Object])
	if err := mcbuilder.ControllerManagedBy(m).For(&corev1.ConfigMap{}).Named(controllerName(t)).
		WatchesRawSource(mcsource.Channel(m.GetFleet(), outside, mchandler.EnqueueRequestForObject)).Complete(seen); err != nil {
		t.Fatal(err)
	}
	m.join("away", f.Members[0].Config())
	m.join("here", f.Members[1].Config())
	m.start()
	eventually(t, "both are reconciled", func() bool { return seen.count("away", ns, "a") > 0 && seen.count("here", ns, "a") > 0 })

	f.Members[0].Stop(t)
	m.isBecause("away", fleet.Unreachable, fleet.ReasonRefused)
	event := mcsource.ClusterEvent[client.Object]{ClusterName: "away"}
	event.Object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "from-outside"}}
	outside <- event
	configMap(t, f.Members[1], ns, "b")
	eventually(t, "the other member is reconciled meanwhile", func() bool { return seen.count("here", ns, "b") > 0 })
	for controller, queue := range m.GetFleet().Queues("away") {
		if !queue.Paused || queue.Depth == 0 || queue.InFlight > 0 {
			t.Errorf("the queue of controller %s has %+v of the member, want requests that are parked", controller, queue)
		}
	}
	if n := seen.count("away", ns, "from-outside"); n > 0 {
		t.Errorf("%d reconciles of a member that cannot be reached", n)
	}

	f.Members[0].Restart(t)
	configMap(t, f.Members[0], ns, "c")
	m.is("away", fleet.Ready)
	eventually(t, "what was parked is reconciled", func() bool { return seen.count("away", ns, "from-outside") > 0 })
	eventually(t, "what changed meanwhile is reconciled", func() bool { return seen.count("away", ns, "c") > 0 })
}

// TestAFrozenMemberIsUnreachableUntilItThaws: one that takes connections and never answers.
func TestAFrozenMemberIsUnreachableUntilItThaws(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	m := newManagerWith(t, f.Local, f.Local.CreateNamespace(t), static{"m": f.Members[0]}, func(*mcmanager.Options) {}, func(o *fleet.Options) {
		o.Health = fleet.HealthOptions{ProbeInterval: time.Second, ProbeTimeout: time.Second}
	})
	seen := newRecord()
	m.control(seen)
	m.start()
	eventually(t, "it is reconciled", func() bool { return seen.count("m", ns, "a") > 0 })
	f.Members[0].Freeze(t)
	m.isBecause("m", fleet.Unreachable, fleet.ReasonTimeout)
	f.Members[0].Thaw(t)
	m.is("m", fleet.Ready)
	configMap(t, f.Members[0], ns, "b")
	eventually(t, "a change after the thaw is reconciled", func() bool { return seen.count("m", ns, "b") > 0 })
}

// TestAReconcileThatWaitsForAFrozenMemberIsParked: its request ends with an error that says so when the member is found to be
// Unreachable, and it runs again when the member is back.
func TestAReconcileThatWaitsForAFrozenMemberIsParked(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	m := newManagerWith(t, f.Local, f.Local.CreateNamespace(t), static{"m": f.Members[0]}, func(*mcmanager.Options) {}, quickHealth)
	runs, frozen, answers := make(chan struct{}, 100), make(chan struct{}), make(chan error, 100)
	m.control(mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
		if req.Namespace != ns || req.Name != "a" {
			return reconcile.Result{}, nil
		}
		runs <- struct{}{}
		<-frozen
		err := mcreconcile.ClusterFrom(ctx).GetAPIReader().Get(ctx, req.NamespacedName, &corev1.ConfigMap{})
		answers <- err
		return reconcile.Result{}, err
	}))
	m.start()
	<-runs
	f.Members[0].Freeze(t)
	close(frozen)
	if err := <-answers; !errors.Is(err, fleet.ErrNotReady) {
		t.Errorf("the request ended with %v, want that the cluster is not ready", err)
	}
	m.isBecause("m", fleet.Unreachable, fleet.ReasonTimeout)
	m.stays(time.Second, fleet.Unreachable)
	if n := len(runs); n > 0 {
		t.Errorf("%d reconciles of a member that cannot be reached", n)
	}
	f.Members[0].Thaw(t)
	if err := <-answers; err != nil {
		t.Errorf("the reconcile that was parked: %v", err)
	}
}

// static is a provider of control planes that are there from the start.
type static map[fleet.ClusterName]*mctest.ControlPlane

// Run implements fleet.Provider.
func (s static) Run(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
	for name, cp := range s {
		if err := members.Set(fleet.Member{Name: name, Config: cp.Config()}); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// TestEngagingAndDisengagingLeavesNothingBehind: no goroutine, and nothing in the queue.
func TestEngagingAndDisengagingLeavesNothingBehind(t *testing.T) {
	const cycles = 50
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	shared := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.Local.CreateNamespace(t), Name: "shared"}}
	if err := f.Local.Client().Create(t.Context(), shared); err != nil {
		t.Fatal(err)
	}
	m := newManagerOf(t, f.Local, "", static{})
	configMap(t, f.Members[0], ns, "ask")
	seen := newRecord()
	ask := &asking{seen, mcsource.NewOnDemand(m.GetFleet()), map[string]client.Object{"namespaces": &corev1.Namespace{}}}
	var polls atomic.Int64
	poll := mcsource.Poll{Interval: time.Hour, Requests: func(context.Context, mcreconcile.ClusterName, cluster.Cluster) ([]mcreconcile.Request, error) {
		polls.Add(1)
		return nil, nil
	}}
	if err := mcbuilder.ControllerManagedBy(m).For(&corev1.ConfigMap{}).
		Watches(&corev1.Secret{}, mchandler.EnqueueRequestForObject, mcbuilder.ForEachMember(nil)).
		WatchesRawSource(mcsource.Fleet(m.GetFleet(), poll, nil)).
		WatchesRawSource(ask.demand).
		Named(controllerName(t)).Complete(ask); err != nil {
		t.Fatal(err)
	}
	m.start()
	cycle := func(i int) {
		name := fleet.ClusterName(fmt.Sprintf("m%d", i))
		if err := m.members.Set(fleet.Member{Name: name, Config: f.Members[0].Config()}); err != nil {
			t.Fatal(err)
		}
		forShared := func() int { return seen.count(name, shared.Namespace, shared.Name) }
		eventually(t, "it is reconciled, and asked once", func() bool {
			return seen.count(name, ns, "a") > 0 && seen.count(name, "", ns) > 0 && forShared() > 0 && polls.Load() > int64(i)
		})
		// Only a change shows that the watch in the local cluster, which is made once, has all of its goroutines.
		before := forShared()
		touch(t, f.Local, shared, i)
		eventually(t, "a change in the local cluster is reconciled for it", func() bool { return forShared() > before })
		<-m.members.Remove(name)
	}
	cycle(0) // what is made once is made now
	before := goroutines()
	for i := range cycles {
		cycle(i + 1)
	}
	eventually(t, "as many goroutines run as before", func() bool { return goroutines() <= before })
	if polls.Load() != cycles+1 {
		t.Errorf("%d polls, want one for each engagement, %d", polls.Load(), cycles+1)
	}
}

// goroutines counts those that are not of connections which a server or a client is about to close.
func goroutines() int {
	buf := make([]byte, 16<<20)
	n := 0
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if !strings.Contains(stack, "net/http") {
			n++
		}
	}
	return n
}
