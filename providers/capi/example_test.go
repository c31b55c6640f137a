package capi_test

import (
	"log"

	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/capi"
)

// The members are the clusters that Cluster API makes in one namespace, but for those of one tier.
func ExampleProvider() {
	selector, err := labels.Parse("tier!=experiment")
	if err != nil {
		log.Fatal(err)
	}
	provider := capi.Provider{Namespace: "clusters", Selector: selector}
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), provider, mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
