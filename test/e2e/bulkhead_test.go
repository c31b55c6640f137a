package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// neverNoticed keeps the fleet from noticing that members are frozen, so that nothing but the bulkhead helps.
func neverNoticed(o *fleet.Options) { o.Health = fleet.HealthOptions{ProbeInterval: time.Hour} }

// bulkhead is a controller whose requests a test makes up.
type bulkhead struct {
	*manager
	requests chan mcsource.ClusterEvent[client.Object]
}

func newBulkhead(t *testing.T, local *mctest.ControlPlane, members static, r mcreconcile.Reconciler) *bulkhead {
	t.Helper()
	m := newManagerWith(t, local, local.CreateNamespace(t), members, func(*mcmanager.Options) {}, neverNoticed)
	b := &bulkhead{m, make(chan mcsource.ClusterEvent[client.Object])}
	if err := mcbuilder.ControllerManagedBy(m).Named(controllerName(t)).
		WatchesRawSource(mcsource.Channel(m.GetFleet(), b.requests, mchandler.EnqueueRequestForObject)).Complete(r); err != nil {
		t.Fatal(err)
	}
	m.start()
	for name := range members {
		m.is(name, fleet.Ready)
	}
	return b
}

// request queues n requests for a member.
func (b *bulkhead) request(member fleet.ClusterName, n int) {
	for i := range n {
		event := mcsource.ClusterEvent[client.Object]{ClusterName: member}
		event.Object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("request-%d", i)}}
		b.requests <- event
	}
}

// TestMembersThatFreezeHoldNoWorkers: long before it is noticed that they are frozen, others are reconciled as ever.
func TestMembersThatFreezeHoldNoWorkers(t *testing.T) {
	t.Parallel()
	const frozen, each = 3, 20
	cases := map[string]struct {
		reason string
		ask    func(ctx context.Context) error
	}{
		"Asked": {"Requests to their API servers are not answered.", func(ctx context.Context) error {
			return mcreconcile.ClusterFrom(ctx).GetAPIReader().Get(ctx, client.ObjectKey{Name: "kube-system"}, &corev1.Namespace{})
		}},
		"FirstRead": {"A kind is read from their caches that is not there yet.", func(ctx context.Context) error {
			return mcreconcile.ClusterFrom(ctx).GetClient().Get(ctx, client.ObjectKey{Name: "kube-system"}, &corev1.Namespace{})
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := pool.Start(t, mctest.Options{Clusters: frozen + 1})
			members := static{"healthy": f.Members[frozen]}
			for i := range frozen {
				members[fleet.ClusterName(fmt.Sprintf("frozen-%d", i))] = f.Members[i]
			}
			var begun, ended, healthy atomic.Int64
			b := newBulkhead(t, f.Local, members, mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
				if req.ClusterName == "healthy" {
					err := tc.ask(ctx)
					healthy.Add(1)
					return reconcile.Result{}, err
				}
				begun.Add(1)
				err := tc.ask(ctx)
				ended.Add(1)
				return reconcile.Result{}, err
			}))
			for i := range frozen {
				f.Members[i].Freeze(t)
			}
			for i := range frozen {
				b.request(fleet.ClusterName(fmt.Sprintf("frozen-%d", i)), each)
			}
			eventually(t, "reconciles wait for the frozen members", func() bool { return begun.Load() >= mcbuilder.DefaultWorkers })
			b.request("healthy", each)
			eventually(t, "the healthy member is reconciled; "+tc.reason, func() bool { return healthy.Load() >= each })
			if n := ended.Load(); n > 0 {
				t.Errorf("%d reconciles of frozen members have ended, so the others may have had their workers", n)
			}
			for i := range frozen {
				f.Members[i].Thaw(t)
			}
			eventually(t, "every request of the frozen members has been reconciled", func() bool { return ended.Load() >= frozen*each })
		})
	}
}

// TestReconcilesThatHangLeaveWorkersToOthers: they hang in something that the fleet knows nothing of, in many members.
func TestReconcilesThatHangLeaveWorkersToOthers(t *testing.T) {
	t.Parallel()
	const hanging, each = 10, 10
	f := pool.Start(t, mctest.Options{Clusters: 1})
	members := static{"healthy": f.Members[0]}
	for i := range hanging {
		members[fleet.ClusterName(fmt.Sprintf("hanging-%d", i))] = f.Members[0]
	}
	var begun, ended, healthy atomic.Int64
	over := make(chan struct{})
	b := newBulkhead(t, f.Local, members, mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
		if !strings.HasPrefix(string(req.ClusterName), "hanging") {
			healthy.Add(1)
			return reconcile.Result{}, nil
		}
		begun.Add(1)
		defer ended.Add(1)
		select {
		case <-over:
		case <-ctx.Done():
		}
		return reconcile.Result{}, nil
	}))
	for i := range hanging {
		b.request(fleet.ClusterName(fmt.Sprintf("hanging-%d", i)), each)
	}
	eventually(t, "all workers hang", func() bool { return begun.Load() >= mcbuilder.DefaultWorkers })
	b.request("healthy", each)
	eventually(t, "the healthy member is reconciled", func() bool { return healthy.Load() == each })
	if n := ended.Load(); n > 0 {
		t.Errorf("%d reconciles that hang have ended", n)
	}
	close(over)
	eventually(t, "every request has been reconciled", func() bool { return ended.Load() == hanging*each })
}
