package mcsource_test

import (
	"context"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

var reconciler = mcreconcile.Func(func(context.Context, mcreconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, nil
})

// newManager returns a manager whose members are described by Secrets.
func newManager() mcmanager.Manager {
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), kubeconfig.Provider{Namespace: "fleet"}, mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return mgr
}

// A controller of the fleet itself: it is told of each member that joins, leaves, or changes its state or labels.
func ExampleClusters() {
	mgr := newManager()
	members := mcsource.Clusters(mgr.GetFleet(), func(_ context.Context, status fleet.Status) []mcreconcile.Request {
		req := mcreconcile.Request{ClusterName: mcreconcile.LocalCluster} // works on the local cluster
		req.Name = string(status.Name)
		return []mcreconcile.Request{req}
	})
	if err := mcbuilder.ControllerManagedBy(mgr).Named("members").WatchesRawSource(members).Complete(reconciler); err != nil {
		log.Fatal(err)
	}
}

// What cannot be watched is asked for: here once a minute, in each member by itself.
func ExamplePoll() {
	mgr := newManager()
	nodes := mcsource.Poll{
		Interval: time.Minute,
		Requests: func(ctx context.Context, name mcreconcile.ClusterName, cl cluster.Cluster) ([]mcreconcile.Request, error) {
			var list corev1.NodeList
			if err := cl.GetAPIReader().List(ctx, &list); err != nil {
				return nil, err
			}
			requests := make([]mcreconcile.Request, len(list.Items))
			for i := range list.Items {
				requests[i].ClusterName, requests[i].Name = name, list.Items[i].Name
			}
			return requests, nil
		},
	}
	err := mcbuilder.ControllerManagedBy(mgr).Named("nodes").
		WatchesRawSource(mcsource.Fleet(mgr.GetFleet(), nodes, nil)).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}

// Events that the program itself receives, such as those of a webhook, carry the cluster.
func ExampleChannel() {
	mgr := newManager()
	events := make(chan mcsource.ClusterEvent[client.Object])
	err := mcbuilder.ControllerManagedBy(mgr).Named("calls").
		WatchesRawSource(mcsource.Channel(mgr.GetFleet(), events, mchandler.EnqueueRequestForObject)).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}

// A reconciler that needs to hear of the nodes of a cluster asks for that when it does. Clusters whose reconciles never ask
// are not watched.
func ExampleOnDemand() {
	mgr := newManager()
	demand := mcsource.NewOnDemand(mgr.GetFleet())
	nodes := mcsource.Kind(&corev1.Node{}, mchandler.TypedLift(handler.TypedEnqueueRequestsFromMapFunc(
		func(_ context.Context, node *corev1.Node) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "pools", Name: node.Labels["pool"]}}}
		})))
	err := mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("pools").
		WatchesRawSource(demand).
		Complete(mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			if req.Namespace != "pools" {
				return reconcile.Result{}, nil
			}
			if err := demand.Watch(ctx, "nodes", nodes); err != nil { // does nothing from the second time on
				return reconcile.Result{}, err
			}
			return reconcile.Result{}, nil // works with the nodes of mcreconcile.ClusterFrom(ctx)
		}))
	if err != nil {
		log.Fatal(err)
	}
}

// Objects of the local cluster are the business of each member: an event there becomes a request for every engaged one.
// mcbuilder.ForEachMember does this for objects of any kind.
func ExampleEachCluster() {
	mgr := newManager()
	templates := predicate.NewTypedPredicateFuncs(func(c *corev1.ConfigMap) bool { return c.Namespace == "templates" })
	each := mcsource.EachCluster(mgr, &corev1.ConfigMap{}, mchandler.TypedLift(&handler.TypedEnqueueRequestForObject[*corev1.ConfigMap]{}), templates)
	err := mcbuilder.ControllerManagedBy(mgr).Named("templates").
		WatchesRawSource(mcsource.Fleet(mgr.GetFleet(), each, nil)).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}

// Any source of controller-runtime can be made for each member.
func ExampleFunc() {
	mgr := newManager()
	each := mcsource.Func(func(_ context.Context, name mcreconcile.ClusterName, cl cluster.Cluster) (source.TypedSource[mcreconcile.Request], error) {
		return source.TypedKind(cl.GetCache(), &corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(_ context.Context, pod *corev1.Pod) []mcreconcile.Request {
				req := mcreconcile.Request{ClusterName: name}
				req.Name = pod.Spec.NodeName
				return []mcreconcile.Request{req}
			})), nil
	})
	err := mcbuilder.ControllerManagedBy(mgr).Named("pods").
		WatchesRawSource(mcsource.Fleet(mgr.GetFleet(), each, nil)).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}
