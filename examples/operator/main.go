// Command operator is an operator of a fleet as one deploys it: three replicas in a hub share the members. It writes to each
// ConfigMap that is labelled for it the checksum of its data. Folder deploy has the manifests, and docs/install.md the way.
package main

import (
	"errors"
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

func main() {
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	if err := run(); err != nil {
		ctrl.Log.Error(err, "The program ends")
		os.Exit(1)
	}
}

func run() error {
	hub, err := ctrl.GetConfig() // the cluster that the program runs in
	if err != nil {
		return err
	}
	// Members are the clusters whose kubeconfigs are in labelled Secrets of the program's own namespace.
	mgr, err := mcmanager.New(hub, kubeconfig.Provider{}, mcmanager.Options{
		HealthProbeBindAddress: ":8081",
		Metrics: metricsserver.Options{ // and /debug/fleet
			BindAddress:    ":8443",
			SecureServing:  true,
			FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
		Cache: labelledOnly, // of members too
	}, mcmanager.Sharded(sharding.Options{}))
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
	return mgr.Start(ctrl.SetupSignalHandler())
}
