package v1alpha1_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
)

// A program reads which clusters cannot be used, and why.
func ExampleAddToScheme() {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		log.Fatal(err)
	}
	reader, err := client.New(ctrl.GetConfigOrDie(), client.Options{Scheme: scheme})
	if err != nil {
		log.Fatal(err)
	}
	list := &v1alpha1.ClusterAccessList{}
	if err := reader.List(context.Background(), list, client.InNamespace("fleet")); err != nil {
		log.Fatal(err)
	}
	for _, access := range list.Items {
		if ready := meta.FindStatusCondition(access.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			fmt.Println(access.Name, ready.Status, ready.Reason, ready.Message)
		}
	}
}

// A program prints its manifests, for kubectl apply -f -.
func ExampleCRDs() {
	fmt.Println("# The CRDs of", v1alpha1.GroupVersion())
	if _, err := io.WriteString(os.Stdout, v1alpha1.CRDs()); err != nil {
		log.Fatal(err)
	}
}
