package members_test

import (
	"log"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/members"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// A manager that shows its members as objects.
func ExampleSetup() {
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), kubeconfig.Provider{}, mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := members.Setup(mgr, members.Options{}); err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
