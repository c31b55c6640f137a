package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// setting is a controller of ConfigMaps in a fleet whose members are namespaces of one real API server each: every
// member has a client, a cache and a watch of its own.
type setting struct {
	local   *mctest.ControlPlane
	members map[fleet.ClusterName]*rest.Config
	workers int
	plain   bool // with controller-runtime's queue
}

var controllers atomic.Int64

// run runs the controller until the returned function is called, which waits for its end.
func (s setting) run(ctx context.Context, r mcreconcile.Reconciler) (stop func() error, err error) {
	provider := fleet.NewProvider("test", func(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
		for name, cfg := range s.members {
			if err := members.Set(fleet.Member{Name: name, Config: cfg}); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return nil
	})
	options := mcmanager.Options{Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: ptr.To(time.Minute)}
	mgr, err := mcmanager.New(s.local.Config(), provider, options, func(o *fleet.Options) {
		o.ClusterOptions = func(m fleet.Member) []cluster.Option {
			return []cluster.Option{func(o *cluster.Options) {
				o.Cache.DefaultNamespaces = map[string]cache.Config{string(m.Name): {}}
			}}
		}
	})
	if err != nil {
		return nil, err
	}
	controllerOptions := mcbuilder.Options{MaxConcurrentReconciles: s.workers}
	if s.plain {
		controllerOptions.NewQueue = func(name string, limiter workqueue.TypedRateLimiter[mcreconcile.Request]) workqueue.TypedRateLimitingInterface[mcreconcile.Request] {
			return priorityqueue.New(name, func(o *priorityqueue.Opts[mcreconcile.Request]) { o.RateLimiter = limiter })
		}
	}
	name := fmt.Sprintf("bench-%d", controllers.Add(1))
	if err := mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named(name).WithOptions(controllerOptions).Complete(r); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return func() error {
		cancel()
		return <-done
	}, nil
}

// fill creates a namespace for a member, and ConfigMaps in it.
func fill(ctx context.Context, cp *mctest.ControlPlane, member fleet.ClusterName, objects int) error {
	c := cp.Client()
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: string(member)}}); client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	for i := range objects {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: string(member), Name: fmt.Sprintf("object-%d", i)}}
		if err := c.Create(ctx, cm); client.IgnoreAlreadyExists(err) != nil {
			return err
		}
	}
	return nil
}

// change writes the time to an object of a member, for its reconcile to read.
func change(ctx context.Context, cp *mctest.ControlPlane, member fleet.ClusterName, object string) error {
	return changeAt(ctx, cp, member, object, time.Now().UnixNano())
}

func changeAt(ctx context.Context, cp *mctest.ControlPlane, member fleet.ClusterName, object string, stamp int64) error {
	return writeStamp(ctx, cp.Client(), configMap(string(member), object), stamp)
}

func writeStamp(ctx context.Context, to client.Client, cm *corev1.ConfigMap, stamp int64) error {
	patch := fmt.Appendf(nil, `{"data":{"changed":"%d"}}`, stamp)
	return to.Patch(ctx, cm, client.RawPatch("application/merge-patch+json", patch))
}

// sinceChange returns how long ago the object of a request was changed, and which change that was.
func sinceChange(ctx context.Context, req mcreconcile.Request) (took time.Duration, stamp int64, err error) {
	cm := &corev1.ConfigMap{}
	if err := mcreconcile.ClusterFrom(ctx).GetClient().Get(ctx, req.NamespacedName, cm); err != nil {
		return 0, 0, client.IgnoreNotFound(err)
	}
	if cm.Data["changed"] == "" {
		return 0, 0, nil
	}
	if _, err := fmt.Sscan(cm.Data["changed"], &stamp); err != nil {
		return 0, 0, err
	}
	return time.Since(time.Unix(0, stamp)), stamp, nil
}
