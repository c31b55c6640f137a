package mcbuilder_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// gauge returns the value of a gauge of a controller.
func gauge(t *testing.T, name, controller string) float64 {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, series := range family.GetMetric() {
			if series.GetLabel()[0].GetValue() == controller {
				return series.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no %s of controller %s", name, controller)
	return 0
}

// TestAnEventFilterAppliesToAllWatchesAndToNoRawSource, and the options of the queue are those that were given.
func TestAnEventFilterAppliesToAllWatchesAndToNoRawSource(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	member := f.Members[0]
	ns := everywhere(t, f, "filtered")
	passes := &corev1.ConfigMap{}
	passes.Namespace, passes.Name = ns, "passes"
	create(t, member, passes)
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = ns, "secret-of-the-member"
	create(t, member, secret)
	local := &corev1.Secret{}
	local.Namespace, local.Name = ns, "secret-for-each-member"
	create(t, f.Local, local)

	mgr := newManager(t, f, members(f), logr.Discard())
	s := &seen{namespace: ns}
	ofSecrets := mchandler.TypedLift(&handler.TypedEnqueueRequestForObject[*corev1.Secret]{})
	if err := mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("filter").
		WithEventFilter(predicate.NewPredicateFuncs(func(obj client.Object) bool { return !strings.HasPrefix(obj.GetName(), "filtered") })).
		WithQueue(mcqueue.Options[mcreconcile.Request]{Workers: 3}).
		WatchesRawSource(mcsource.Fleet(mgr.GetFleet(), mcsource.Kind(&corev1.Secret{}, ofSecrets), nil)).
		WatchesRawSource(mcsource.Fleet(mgr.GetFleet(), mcsource.EachCluster(mgr, &corev1.Secret{}, ofSecrets), nil)).
		Complete(s); err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	s.become(t, "member-1/passes", "member-1/secret-of-the-member", "member-1/secret-for-each-member")
	if got := gauge(t, "fleet_runtime_queue_workers", "filter"); got != 3 {
		t.Errorf("the queue has %v workers, want 3: it does not have the options that were given", got)
	}
}

// rateLimited is a source of many requests that are added as after a failure, and of one that is due a second later.
type rateLimited struct{ many int }

// Start implements source.TypedSource.
func (r rateLimited) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[mcreconcile.Request]) error {
	request := func(name string) (req mcreconcile.Request) {
		req.Name = name
		return req
	}
	for i := range r.many {
		queue.AddRateLimited(request(strconv.Itoa(i)))
	}
	queue.AddAfter(request("last"), time.Second)
	return nil
}

// TestFailuresDoNotDelayEachOther: controller-runtime's limiter for queues without priorities has ten retries a second for all
// clusters together, so one of which all fails would take them from the others. The queue has priorities in any case.
func TestFailuresDoNotDelayEachOther(t *testing.T) {
	t.Parallel()
	const many = 300
	f := pool.Start(t, mctest.Options{})
	mgr := newManager(t, f, members(f), logr.Discard())
	names := make(chan string, many+1)
	err := mcbuilder.ControllerManagedBy(mgr).Named("limited").WatchesRawSource(rateLimited{many}).
		WithControllerOptions(controller.Options{UsePriorityQueue: new(false), MaxConcurrentReconciles: 1}).
		Complete(mcreconcile.Func(func(_ context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			names <- req.Name
			return reconcile.Result{}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	for before := 0; ; before++ {
		if name := <-names; name == "last" {
			if before != many {
				t.Errorf("%d of %d requests that had failed once are reconciled within a second", before, many)
			}
			return
		}
	}
}

// TestTheLocalClusterHasOneInstance, although the context of each reconcile ends.
func TestTheLocalClusterHasOneInstance(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{})
	mgr := newManager(t, f, nil, logr.Discard())
	ns := f.Local.CreateNamespace(t)
	var made atomic.Int64
	reconciled := make(chan string, 1000)
	perCluster := mcreconcile.PerCluster(func(cluster.Cluster) reconcile.Reconciler {
		made.Add(1)
		return reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			if req.Namespace == ns {
				reconciled <- req.Name
			}
			return reconcile.Result{}, nil
		})
	})
	if err := mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("local-life").
		WithOptions(mcbuilder.Options{ReconciliationTimeout: time.Minute}).Complete(perCluster); err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	for _, name := range []string{"a", "b", "c"} {
		cm := &corev1.ConfigMap{}
		cm.Namespace, cm.Name = ns, name
		create(t, f.Local, cm)
		for <-reconciled != name { //nolint:revive // it waits
		}
	}
	if made.Load() != 1 {
		t.Errorf("%d instances were made for the local cluster, want one", made.Load())
	}
}

// TestWatchesMetadataHandsOutMetadata, and what its options say applies.
func TestWatchesMetadataHandsOutMetadata(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := everywhere(t, f, "a")
	mgr := newManager(t, f, members(f), logr.Discard())
	s := &seen{namespace: ns}
	named := func(_ context.Context, obj client.Object) []reconcile.Request {
		if _, ok := obj.(*metav1.PartialObjectMetadata); !ok {
			t.Errorf("the map function was given a %T", obj)
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(obj)}}
	}
	if err := mcbuilder.ControllerManagedBy(mgr).Named("metadata").
		WatchesMetadata(&corev1.ConfigMap{}, mchandler.EnqueueRequestsFromMapFunc(named), mcbuilder.InLocalCluster).
		Complete(s); err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	s.become(t, "/a")
}
