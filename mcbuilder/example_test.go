package mcbuilder_test

import (
	"context"
	"log"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

var (
	mgr        mcmanager.Manager // of mcmanager.New
	reconciler mcreconcile.Reconciler
	// deploymentReconciler was written for one cluster.
	deploymentReconciler func(client.Client) reconcile.Reconciler
)

// A controller of the Deployments, and of the ReplicaSets that these own, of every member.
func ExampleControllerManagedBy() {
	err := mcbuilder.ControllerManagedBy(mgr).
		For(&appsv1.Deployment{}).
		Owns(&appsv1.ReplicaSet{}).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}

// A reconciler that was written for one cluster runs against every member, unchanged.
func ExampleControllerManagedBy_perCluster() {
	err := mcbuilder.ControllerManagedBy(mgr).
		For(&appsv1.Deployment{}).
		Complete(mcreconcile.PerCluster(func(cl cluster.Cluster) reconcile.Reconciler {
			return deploymentReconciler(cl.GetClient())
		}))
	if err != nil {
		log.Fatal(err)
	}
}

// Options that were written for one cluster go on working.
func ExampleTypedBuilder_WithControllerOptions() {
	err := mcbuilder.ControllerManagedBy(mgr).
		For(&appsv1.Deployment{}).
		WithControllerOptions(controller.Options{
			MaxConcurrentReconciles: 10,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute),
		}).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}

// Of Pods, which are many, the metadata alone is cached.
func ExampleTypedBuilder_WatchesMetadata() {
	err := mcbuilder.ControllerManagedBy(mgr).
		For(&appsv1.Deployment{}).
		WatchesMetadata(&corev1.Pod{}, mchandler.EnqueueRequestsFromMapFunc(
			func(_ context.Context, pod client.Object) []reconcile.Request { // a *metav1.PartialObjectMetadata
				return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: pod.GetNamespace(), Name: pod.GetLabels()["app"]}}}
			})).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}

// The members' label "weight" says how many of their requests are reconciled at a turn.
func ExampleWeightFromLabel() {
	err := mcbuilder.ControllerManagedBy(mgr).
		For(&appsv1.Deployment{}).
		WithWeights(mcbuilder.WeightFromLabel("weight")).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}

// Predicates are controller-runtime's. Of ConfigMaps the metadata is cached alone, and each owner hears of them.
func ExampleWithPredicates() {
	err := mcbuilder.ControllerManagedBy(mgr).
		For(&appsv1.Deployment{}, mcbuilder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.ConfigMap{}, mcbuilder.OnlyMetadata, mcbuilder.MatchEveryOwner).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}

// shop is a request of one's own: it is about all Services of a namespace in a cluster.
type shop struct {
	cluster   mcreconcile.ClusterName
	namespace string
}

func (s shop) Cluster() mcreconcile.ClusterName { return s.cluster }

func (s shop) WithCluster(name mcreconcile.ClusterName) shop {
	s.cluster = name
	return s
}

// A controller of what each cluster is told about itself: the ConfigMap that has the cluster's name.
func ExampleWithPredicatesIn() {
	ofItself := func(name mcreconcile.ClusterName, _ cluster.Cluster) []predicate.Predicate {
		return []predicate.Predicate{predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() == string(name) })}
	}
	err := mcbuilder.ControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}, mcbuilder.WithPredicatesIn(ofItself)).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}

// Requests that are about more than one object have a type of their own.
func ExampleTypedControllerManagedBy() {
	toShop := mchandler.TypedEnqueueRequestsAcrossClusters(
		func(_ context.Context, name mcreconcile.ClusterName, obj client.Object) []shop {
			return []shop{{cluster: name, namespace: obj.GetNamespace()}}
		})
	err := mcbuilder.TypedControllerManagedBy[shop](mgr).
		Named("shops").
		Watches(&corev1.Service{}, toShop).
		Complete(reconcile.TypedFunc[shop](func(ctx context.Context, req shop) (reconcile.Result, error) {
			services := &corev1.ServiceList{}
			return reconcile.Result{}, mcreconcile.ClusterFrom(ctx).GetClient().List(ctx, services, client.InNamespace(req.namespace))
		}))
	if err != nil {
		log.Fatal(err)
	}
}

// Labels of members say where a watch applies.
func ExampleInMembers() {
	production := labels.SelectorFromSet(labels.Set{"stage": "production"})
	err := mcbuilder.ControllerManagedBy(mgr).
		For(&appsv1.Deployment{}, mcbuilder.InMembers(production)).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}

// A ConfigMap of the local cluster is to be in every member: one that changes becomes a request for each member, and so
// does one that was changed or deleted there.
func ExampleForEachMember() {
	err := mcbuilder.ControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}, mcbuilder.ForEachMember(nil), mcbuilder.InMembers(nil)).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}

// Deployments of the members are summed up in ConfigMaps of the local cluster.
func ExampleInLocalCluster() {
	toLocal := mchandler.EnqueueRequestsAcrossClusters(
		func(_ context.Context, _ mcreconcile.ClusterName, obj client.Object) []mcreconcile.Request {
			req := mcreconcile.Request{ClusterName: mcreconcile.LocalCluster}
			req.Namespace, req.Name = obj.GetNamespace(), obj.GetName()
			return []mcreconcile.Request{req}
		})
	err := mcbuilder.ControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}, mcbuilder.InLocalCluster).
		Watches(&appsv1.Deployment{}, toLocal).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}

// Middleware sees every reconcile of a controller, with its cluster, and what the queue knows of it.
func ExampleTypedBuilder_WithMiddleware() {
	var slow mcbuilder.Middleware = func(next mcreconcile.Reconciler) mcreconcile.Reconciler {
		return mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			if call, _ := mcbuilder.CallFrom(ctx); call.Waited > time.Minute {
				log.Printf("%s: %v has waited for %s", call.Controller, req, call.Waited)
			}
			return next.Reconcile(ctx, req)
		})
	}
	err := mcbuilder.ControllerManagedBy(mgr).
		For(&appsv1.Deployment{}).
		WithMiddleware(slow).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}
