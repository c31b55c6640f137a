// Command jobs runs Tests: each becomes a Job in the main cluster and in the members that it selects, and has the results.
package main

import (
	"errors"
	"flag"
	"log/slog"
	"os"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	jobv1 "github.com/fleet-runtime/fleet-runtime/examples/jobs/v1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

var (
	secrets   = flag.String("secrets", "fleet", "the members are the clusters whose kubeconfigs are in labelled Secrets of this `namespace`")
	names     = flag.String("contexts", "", "instead, the members are these `contexts` of your kubeconfig, divided by commas")
	metrics   = flag.String("metrics", "localhost:8080", "serve metrics, and /debug/fleet, at this `address`; 0 for nowhere")
	verbosity = flag.Int("verbosity", 0, "log more; 5 logs each reconcile")
)

func main() {
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.Level(-*verbosity)})))
	if err := run(); err != nil {
		ctrl.Log.Error(err, "The program ends")
		os.Exit(1)
	}
}

func run() error {
	mainCluster, err := ctrl.GetConfig() // the current context, or the cluster that the program runs in
	if err != nil {
		return err
	}
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), jobv1.AddToScheme(s)); err != nil {
		return err
	}
	mgr, err := mcmanager.New(mainCluster, provider(), mcmanager.Options{
		Scheme:  s,
		Metrics: metricsserver.Options{BindAddress: *metrics},
	})
	if err != nil {
		return err
	}
	if err := newController(mgr.GetFleet()).SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

// provider discovers the members.
func provider() fleet.Provider {
	if *names != "" {
		return contexts.Provider{
			Kubeconfig: flag.Lookup("kubeconfig").Value.String(), // controller-runtime's flag
			Contexts:   strings.Split(*names, ","),
		}
	}
	return kubeconfig.Provider{Namespace: *secrets}
}
