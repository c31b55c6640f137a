package access_test

import (
	"context"
	"log"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
)

// A manager keeps the Secrets of imports, and mounts them into pods.
func ExampleImports() {
	scheme := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, v1alpha1.AddToScheme)
	if err := kinds.AddToScheme(scheme); err != nil {
		log.Fatal(err)
	}
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{Scheme: scheme})
	if err != nil {
		log.Fatal(err)
	}
	if err := (access.Imports{Namespace: "fleet"}).SetupWithManager(mgr); err != nil {
		log.Fatal(err)
	}
	(&access.PodMounts{}).SetupWithManager(mgr)
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}

// A program asks for the account default/pod-lister of the cluster east.
func ExampleImports_create() {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		log.Fatal(err)
	}
	wanted := &v1alpha1.ServiceAccountImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "east-pod-lister"},
		Spec:       v1alpha1.ServiceAccountImportSpec{ClusterName: "east", Namespace: "default", Name: "pod-lister"},
	}
	if err := mgr.GetClient().Create(context.Background(), wanted); err != nil {
		log.Fatal(err)
	}
}
