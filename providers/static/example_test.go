package static_test

import (
	"log"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/static"
)

// Two clusters, by the contexts of the kubeconfig that kubectl uses.
func ExampleProvider() {
	east, err := config.GetConfigWithContext("east")
	if err != nil {
		log.Fatal(err)
	}
	west, err := config.GetConfigWithContext("west")
	if err != nil {
		log.Fatal(err)
	}
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), static.Provider{
		{Name: "east", Config: east, Labels: map[string]string{"tier": "production"}},
		{Name: "west", Config: west},
	}, mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
