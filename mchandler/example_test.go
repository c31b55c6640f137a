package mchandler_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// service is an object of a cluster.
var service = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"}}

// create prints the requests that a handler makes of the creation of an object in the cluster "east".
func create(ctx context.Context, h mchandler.HandlerFunc, obj client.Object) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
	defer queue.ShutDown()
	h("east", nil).Create(ctx, event.CreateEvent{Object: obj}, queue)
	for queue.Len() > 0 {
		req, _ := queue.Get()
		fmt.Println(req)
	}
}

func ExampleEnqueueRequestForObject() {
	create(context.Background(), mchandler.EnqueueRequestForObject, service)
	// Output: cluster://east/shop/cart
}

// A function of controller-runtime's own maps within the cluster of the event.
func ExampleEnqueueRequestsFromMapFunc() {
	create(context.Background(), mchandler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: obj.GetNamespace()}}}
	}), service)
	// Output: cluster://east//shop
}

// A map function that reads takes the client of the cluster that the event is from, and not the manager's.
func ExampleEnqueueRequestsFromMapFunc_reading() {
	podsOfNode := mchandler.EnqueueRequestsFromMapFunc(func(ctx context.Context, node client.Object) []reconcile.Request {
		pods := &corev1.PodList{}
		err := mcreconcile.ClusterFrom(ctx).GetClient().List(ctx, pods, client.MatchingFields{"spec.nodeName": node.GetName()})
		if err != nil {
			log.FromContext(ctx).Error(err, "Cannot list the pods of a node")
			return nil
		}
		requests := make([]reconcile.Request, len(pods.Items))
		for i := range pods.Items {
			requests[i].NamespacedName = client.ObjectKeyFromObject(&pods.Items[i])
		}
		return requests
	})
	_ = podsOfNode
}

// An object of a member maps to requests for any cluster, here for the local one.
func ExampleEnqueueRequestsAcrossClusters() {
	create(context.Background(), mchandler.EnqueueRequestsAcrossClusters(
		func(_ context.Context, name mcreconcile.ClusterName, obj client.Object) []mcreconcile.Request {
			req := mcreconcile.Request{ClusterName: mcreconcile.LocalCluster}
			req.Namespace, req.Name = obj.GetNamespace(), string(name)+"-"+obj.GetName()
			return []mcreconcile.Request{req}
		}), service)
	// Output: shop/east-cart
}

// The owner of an object of a member is in the same member. Of several owners, the controller alone is enqueued here.
func ExampleEnqueueRequestForOwner() {
	toConfigMap := mchandler.EnqueueRequestForOwner(&corev1.ConfigMap{}, handler.OnlyControllerOwner())
	_ = toConfigMap // for Watches of the builder. Its Owns does the same
}

// Any handler of controller-runtime runs for every cluster.
func ExampleLift() {
	create(context.Background(), mchandler.Lift(handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
		},
	}), service)
	// Output: cluster://east/shop/cart
}
