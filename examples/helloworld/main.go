// Command helloworld logs the Pods of every cluster of a fleet.
package main

import (
	"flag"
	"log/slog"
	"os"
	"strings"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

var (
	secrets = flag.String("secrets", "fleet", "the members are the clusters whose kubeconfigs are in labelled Secrets of this `namespace`")
	names   = flag.String("contexts", "", "instead, the members are these `contexts` of your kubeconfig, divided by commas")
	metrics = flag.String("metrics", "localhost:8080", "serve metrics, and /debug/fleet, at this `address`; 0 for nowhere")
)

func main() {
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	if err := run(); err != nil {
		ctrl.Log.Error(err, "The program ends")
		os.Exit(1)
	}
}

func run() error {
	local, err := ctrl.GetConfig() // the current context, or the cluster that the program runs in
	if err != nil {
		return err
	}
	mgr, err := mcmanager.New(local, provider(), mcmanager.Options{
		Metrics: metricsserver.Options{BindAddress: *metrics},
	})
	if err != nil {
		return err
	}
	if err := addHello(mgr); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

// provider discovers the clusters.
func provider() fleet.Provider {
	if *names != "" {
		return contexts.Provider{
			Kubeconfig: flag.Lookup("kubeconfig").Value.String(), // controller-runtime's flag
			Contexts:   strings.Split(*names, ","),
		}
	}
	return kubeconfig.Provider{Namespace: *secrets}
}
