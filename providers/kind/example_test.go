package kind_test

import (
	"log"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/kind"
)

// The cluster "hub" is the local cluster, and those whose names begin with "edge-" are the members:
//
//	kind create cluster --name hub
//	kind create cluster --name edge-1
func ExampleProvider() {
	hub, err := config.GetConfigWithContext("kind-hub") // kind's name for the context
	if err != nil {
		log.Fatal(err)
	}
	mgr, err := mcmanager.New(hub, kind.Provider{Clusters: []string{"edge-*"}}, mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
