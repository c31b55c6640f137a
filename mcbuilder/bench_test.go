package mcbuilder_test

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// BenchmarkEvent is the way from a handler to the end of a reconcile that does nothing, of one event at a time.
func BenchmarkEvent(b *testing.B) {
	ctrl.SetLogger(logr.Discard())
	f := pool.Start(b, mctest.Options{Clusters: 1})
	for name, start := range map[string]func(*testing.B, *mctest.Fleet, chan<- struct{}) func(event.UpdateEvent){
		"fleet-runtime": startOurs, "controller-runtime": startPlain,
	} {
		b.Run(name, func(b *testing.B) {
			reconciled := make(chan struct{}, 1)
			handle := start(b, f, reconciled)
			thing := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "thing"}}
			b.ReportAllocs()
			for b.Loop() {
				handle(event.UpdateEvent{ObjectOld: thing, ObjectNew: thing})
				<-reconciled
			}
		})
	}
}

const benchWorkers = 8

// startOurs starts a controller of a fleet, and returns what gives it events.
func startOurs(b *testing.B, f *mctest.Fleet, reconciled chan<- struct{}) func(event.UpdateEvent) {
	b.Helper()
	mgr, err := mcmanager.New(f.Local.Config(), members(f), mcmanager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		b.Fatal(err)
	}
	tap := newTap[mcreconcile.Request]()
	err = mcbuilder.ControllerManagedBy(mgr).Named("bench").WatchesRawSource(tap).
		WithOptions(controller.TypedOptions[mcreconcile.Request]{MaxConcurrentReconciles: benchWorkers}).
		Complete(tell[mcreconcile.Request](reconciled))
	if err != nil {
		b.Fatal(err)
	}
	start(b, mgr)
	name := fleet.ClusterName(f.Members[0].Name)
	eventually(b, "the member is ready", func() bool {
		_, err := mgr.GetFleet().Engagement(name)
		return err == nil
	})
	h, queue := mchandler.EnqueueRequestForObject(name, nil), <-tap
	return func(e event.UpdateEvent) { h.Update(b.Context(), e, queue) }
}

// startPlain is startOurs with controller-runtime alone.
func startPlain(b *testing.B, f *mctest.Fleet, reconciled chan<- struct{}) func(event.UpdateEvent) {
	b.Helper()
	mgr, err := ctrl.NewManager(f.Local.Config(), ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		b.Fatal(err)
	}
	tap := newTap[reconcile.Request]()
	err = ctrl.NewControllerManagedBy(mgr).Named("plain").WatchesRawSource(tap).
		WithOptions(controller.Options{MaxConcurrentReconciles: benchWorkers}).Complete(tell[reconcile.Request](reconciled))
	if err != nil {
		b.Fatal(err)
	}
	start(b, mgr)
	var h handler.TypedEnqueueRequestForObject[client.Object]
	queue := <-tap
	return func(e event.UpdateEvent) { h.Update(b.Context(), e, queue) }
}

// tap is a source that hands out the queue.
type tap[request comparable] chan workqueue.TypedRateLimitingInterface[request]

func newTap[request comparable]() tap[request] { return make(tap[request], 1) }

// Start implements source.TypedSource.
func (t tap[request]) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	t <- queue
	return nil
}

var _ source.Source = tap[reconcile.Request](nil)

func tell[request comparable](reconciled chan<- struct{}) reconcile.TypedReconciler[request] {
	return reconcile.TypedFunc[request](func(context.Context, request) (reconcile.Result, error) {
		reconciled <- struct{}{}
		return reconcile.Result{}, nil
	})
}
