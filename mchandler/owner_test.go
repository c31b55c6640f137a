package mchandler_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// west is a cluster, of which handlers of owners need the scheme.
type west struct{ cluster.Cluster }

func (west) GetScheme() *runtime.Scheme { return scheme.Scheme }

// An event on a ConfigMap in the cluster "west" becomes a request for the Service in "east" that controls it.
func ExampleEnqueueRequestForOwnerAcrossClusters() {
	owner := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "1234"}}
	cart, err := mcowner.ReferenceTo("payments", "east", owner, scheme.Scheme)
	if err != nil {
		fmt.Println(err)
		return
	}
	dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-settings"}}
	if err := mcowner.SetControllerReference(cart, dependent, "west"); err != nil {
		fmt.Println(err)
		return
	}

	handlerOf := mchandler.EnqueueRequestForOwnerAcrossClusters(&corev1.Service{}, mchandler.OnlyController, mchandler.OfFleet("payments"))
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
	defer queue.ShutDown()
	handlerOf("west", west{}).Create(context.Background(), event.CreateEvent{Object: dependent}, queue)
	req, _ := queue.Get()
	fmt.Println(req)
	// Output: cluster://east/shop/cart
}
