package v1alpha1_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
)

// What keeps the clusters of an owner from being as desired.
func ExampleDependentSlice() {
	slice := v1alpha1.DependentSlice{ // as a client reads it
		Owner: v1alpha1.Owner{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "1"},
		Clusters: []v1alpha1.Cluster{
			{Name: "east", Targeted: true, Objects: []v1alpha1.Object{{Kind: "Deployment.v1.apps", Namespace: "shop", Name: "web", State: "Applied"}}},
			{Name: "west", Targeted: true, Error: "quota exceeded"},
		},
	}
	for _, c := range slice.Clusters {
		if c.Error != "" {
			fmt.Printf("%s in %s: %s\n", slice.Owner.Name, c.Name, c.Error)
		}
	}
	// Output: web in west: quota exceeded
}

// A program reads the slices of all owners in a namespace.
func ExampleAddToScheme() {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		log.Fatal(err)
	}
	reader, err := client.New(ctrl.GetConfigOrDie(), client.Options{Scheme: scheme})
	if err != nil {
		log.Fatal(err)
	}
	list := &v1alpha1.DependentSliceList{}
	if err := reader.List(context.Background(), list, client.InNamespace("shop")); err != nil {
		log.Fatal(err)
	}
}

// A program prints its manifests, for kubectl apply -f -.
func ExampleCRD() {
	fmt.Println("# The CRD of", v1alpha1.GroupVersion())
	if _, err := io.WriteString(os.Stdout, v1alpha1.CRD()); err != nil {
		log.Fatal(err)
	}
}
