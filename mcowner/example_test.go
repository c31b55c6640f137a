package mcowner_test

import (
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// A Deployment of the cluster "east" gets a ConfigMap in the cluster "west".
func ExampleSetControllerReference() {
	owner := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "1234"}}
	dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"}}

	cart, err := mcowner.ReferenceTo("payments", mcowner.ByName("east"), owner, scheme.Scheme)
	if err == nil {
		err = mcowner.SetControllerReference(cart, dependent, mcowner.ByName("west"))
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	// The dependent is created in "west" now. Whoever meets it there finds the owner.
	controller, _ := mcowner.ControllerOf(dependent, mcowner.ByName("west"))
	fmt.Println(controller, controller.UID)
	fmt.Println(dependent.Labels[mcowner.FleetLabel])

	another, _ := mcowner.ReferenceTo("payments", mcowner.ByName("north"), owner, scheme.Scheme)
	fmt.Println(mcowner.SetControllerReference(another, dependent, mcowner.ByName("west")))
	// Output:
	// Deployment.apps cluster://east/shop/cart 1234
	// payments
	// shop/cart of cluster "west" is controlled by Deployment.apps cluster://east/shop/cart
}

// A ConfigMap with two owners, of which none is the controller, loses one.
func ExampleSetOwnerReference() {
	dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "prices"}}
	for _, cluster := range []mcreconcile.ClusterName{"east", "north"} {
		owner := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: types.UID(cluster + "-1")}}
		reference, err := mcowner.ReferenceTo("payments", mcowner.ByName(cluster), owner, scheme.Scheme)
		if err == nil {
			err = mcowner.SetOwnerReference(reference, dependent, mcowner.ByName("west"))
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	owners, err := mcowner.References(dependent, mcowner.ByName("west"))
	fmt.Println(owners, err)
	mcowner.RemoveReference(owners[0], dependent)
	owners, err = mcowner.References(dependent, mcowner.ByName("west"))
	fmt.Println(owners, err)
	// Output:
	// [Deployment.apps cluster://east/shop/cart Deployment.apps cluster://north/shop/cart] <nil>
	// [Deployment.apps cluster://north/shop/cart] <nil>
}

// A dependent belongs to one controller. The error says to which.
func ExampleAlreadyOwnedError() {
	dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "prices"}}
	for _, cluster := range []mcreconcile.ClusterName{"east", "north"} {
		owner := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: types.UID(cluster + "-1")}}
		reference, err := mcowner.ReferenceTo("payments", mcowner.ByName(cluster), owner, scheme.Scheme)
		if err != nil {
			fmt.Println(err)
			return
		}
		err = mcowner.SetControllerReference(reference, dependent, mcowner.ByName("west"))
		if owned, ok := errors.AsType[*mcowner.AlreadyOwnedError](err); ok {
			fmt.Println("it belongs to cluster", owned.Owner.Cluster)
		}
	}
	// Output: it belongs to cluster east
}

func ExampleUniqueName() {
	fmt.Println(mcowner.UniqueName(63, "east", "foo-bar", "baz"))
	fmt.Println(mcowner.UniqueName(63, "east", "foo", "bar-baz"))
	// Output:
	// east-foo-bar-baz-8ec806287bf9
	// east-foo-bar-baz-b8a036de274a
}

// The owners' cluster "east" is gone for good, and so are its owners. By a label, their dependents can be found in each cluster.
func ExampleOwnerClusterValue() {
	gone := mcowner.ClusterID{Name: "east", UID: "08ea56e1"}
	fmt.Println(mcowner.OwnerClusterLabel + "=" + mcowner.OwnerClusterValue(gone.Name))
	// Output: fleet-runtime.dev/owner-cluster=east
}
