// Command foo serves the Foos of many clusters: each becomes a Deployment in one central cluster.
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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/examples/foo/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

var (
	secrets = flag.String("secrets", "fleet", "Foos are in the clusters whose kubeconfigs are in labelled Secrets of this `namespace`")
	names   = flag.String("contexts", "", "instead, Foos are in these `contexts` of your kubeconfig, divided by commas")
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
	central, err := ctrl.GetConfig() // the current context, or the cluster that the program runs in
	if err != nil {
		return err
	}
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		return err
	}
	mgr, err := mcmanager.New(central, provider(), mcmanager.Options{
		Scheme:  s,
		Metrics: metricsserver.Options{BindAddress: *metrics},
		// In the central cluster, the program may look into this namespace alone.
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	}, everywhere)
	if err != nil {
		return err
	}
	if err := newController().SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

// everywhere watches Foos in all namespaces of members.
func everywhere(o *fleet.Options) {
	o.ClusterOptions = func(fleet.Member) []cluster.Option {
		return []cluster.Option{func(o *cluster.Options) { o.Cache.DefaultNamespaces = nil }}
	}
}

// provider discovers the clusters that have Foos.
func provider() fleet.Provider {
	if *names != "" {
		return contexts.Provider{
			Kubeconfig: flag.Lookup("kubeconfig").Value.String(), // controller-runtime's flag
			Contexts:   strings.Split(*names, ","),
		}
	}
	return kubeconfig.Provider{Namespace: *secrets}
}
