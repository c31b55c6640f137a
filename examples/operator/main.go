// Command operator is an operator of a fleet as one deploys it: three replicas in a hub share the members. It writes to each
// ConfigMap that is labelled for it the checksum of its data. Folder deploy has the manifests, and docs/install.md the way.
package main

import (
	"errors"
	"flag"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

// released is the version, which the linker sets.
var released = "dev"

// flags are those of the command line.
type flags struct {
	namespace, metrics, probes string
	accesses                   bool
}

func main() {
	var f flags
	flag.StringVar(&f.namespace, "namespace", "", "the `namespace` of what describes the members and of the replicas' Leases, by default the pod's")
	flag.BoolVar(&f.accesses, "accesses", false, "take the members from ClusterAccesses, as mcctl join makes them, and show them as Members; otherwise from Secrets with kubeconfigs")
	flag.StringVar(&f.metrics, "metrics-bind-address", ":8443", "the `address` of the metrics and of /debug/fleet")
	flag.StringVar(&f.probes, "health-probe-bind-address", ":8081", "the `address` of the probes")
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	if err := run(f); err != nil {
		ctrl.Log.Error(err, "The program ends")
		os.Exit(1)
	}
}

func run(f flags) error {
	mgr, err := newManager(f)
	if err != nil {
		return err
	}
	err = errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("ping", healthz.Ping),
		addChecksums(mgr),
	)
	if err != nil {
		return err
	}
	ctrl.Log.Info("The program begins", "version", released)
	return mgr.Start(ctrl.SetupSignalHandler())
}

func newManager(f flags) (mcmanager.Manager, error) {
	hub, err := ctrl.GetConfig() // the cluster that the program runs in, or that of --kubeconfig
	if err != nil {
		return nil, err
	}
	options := mcmanager.Options{
		HealthProbeBindAddress: f.probes,
		Metrics: metricsserver.Options{
			BindAddress:    f.metrics,
			SecureServing:  true,
			FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
		Cache: labelledOnly(), // of members too
	}
	shared := mcmanager.Sharded(sharding.Options{Namespace: f.namespace})
	if f.accesses {
		return newManagerOfAccesses(hub, f.namespace, options, shared)
	}
	// Members are the clusters whose kubeconfigs are in labelled Secrets of the namespace.
	return mcmanager.New(hub, kubeconfig.Provider{Namespace: f.namespace}, options, shared)
}
