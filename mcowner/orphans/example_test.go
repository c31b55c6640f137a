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

// A controller that sets references by hand has its own collector.
func ExampleCollector() {
	err := mgr.Add(&orphans.Collector{
		Manager: mgr,
		Fleet:   "payments",
		Owners:  []client.Object{&appsv1.Deployment{}},
		Kinds:   []client.Object{&corev1.ConfigMap{}},
		Sweep:   orphans.Sweep{DryRun: true},
	})
	if err != nil {
		log.Fatal(err)
	}
}
