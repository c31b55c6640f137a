package kubeconfig_test

import (
	"log"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// The members are the clusters whose kubeconfigs are in the labelled Secrets of one namespace:
//
//	kubectl create secret generic east --namespace fleet --from-file=kubeconfig
//	kubectl label secret east --namespace fleet fleet-runtime.dev/kubeconfig=true
func ExampleProvider() {
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), kubeconfig.Provider{Namespace: "fleet"}, mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
