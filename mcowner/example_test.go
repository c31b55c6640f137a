package mcowner_test

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// A Deployment of the cluster "east" gets a ConfigMap in the cluster "west".
func ExampleSetControllerReference() {
	owner := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "1234"}}
	dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"}}

	cart, err := mcowner.ReferenceTo("payments", "east", owner, scheme.Scheme)
	if err == nil {
		err = mcowner.SetControllerReference(cart, dependent, "west")
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	// The dependent is created in "west" now. Whoever meets it there finds the owner.
	controller, _ := mcowner.ControllerOf(dependent, "west")
	fmt.Println(controller, controller.UID)
	fmt.Println(dependent.Labels[mcowner.FleetLabel])

	another, _ := mcowner.ReferenceTo("payments", "north", owner, scheme.Scheme)
	fmt.Println(mcowner.SetControllerReference(another, dependent, "west"))
	// Output:
	// Deployment.apps cluster://east/shop/cart 1234
	// payments
	// shop/cart of cluster "west" is controlled by Deployment.apps cluster://east/shop/cart
}

func ExampleUniqueName() {
	fmt.Println(mcowner.UniqueName(63, "east", "foo-bar", "baz"))
	fmt.Println(mcowner.UniqueName(63, "east", "foo", "bar-baz"))
	// Output:
	// east-foo-bar-baz-8ec806287bf9
	// east-foo-bar-baz-b8a036de274a
}
