package orphans_test

import (
	"log"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
)

var mgr mcmanager.Manager // of mcmanager.New

// A controller that sets references by hand, and watches what it owns, has its own collector.
func ExampleCollector() {
	err := mgr.Add(&orphans.Collector{
		Manager:    mgr,
		Fleet:      "payments",
		Controller: "settings", // mcowner.Reference.Manager of what it owns
		Owners:     []client.Object{&appsv1.Deployment{}},
		Kinds:      []client.Object{&corev1.ConfigMap{}},
		Cached:     true,
		Sweep:      orphans.Sweep{DryRun: true}, // until the log says what one expects
	})
	if err != nil {
		log.Fatal(err)
	}
}
