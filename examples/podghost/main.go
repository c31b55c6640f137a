// Command podghost shows the Pods of many clusters in one: for each it keeps a PodGhost there.
package main

import (
	"flag"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

var (
	namespace = flag.String("namespace", "default", "keep the PodGhosts in this `namespace` of the current context's cluster")
	secrets   = flag.String("secrets", "fleet", "the Pods are in the clusters whose kubeconfigs are in labelled Secrets of this `namespace`")
	names     = flag.String("contexts", "", "instead, the Pods are in these `contexts` of your kubeconfig, divided by commas")
	sweep     = flag.Duration("sweep", time.Minute, "look this often for PodGhosts of Pods that went unseen")
	metrics   = flag.String("metrics", "localhost:8080", "serve metrics, and /debug/fleet, at this `address`; 0 for nowhere")
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
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	mgr, err := mcmanager.New(local, provider(), mcmanager.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: *metrics},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&PodGhost{}: {Namespaces: map[string]cache.Config{*namespace: {}}},
		}},
	})
	if err != nil {
		return err
	}
	if err := addPodGhosts(mgr, *namespace, *sweep); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

// provider discovers the clusters that have the Pods.
func provider() fleet.Provider {
	if *names != "" {
		return contexts.Provider{
			Kubeconfig: flag.Lookup("kubeconfig").Value.String(), // controller-runtime's flag
			Contexts:   strings.Split(*names, ","),
		}
	}
	return kubeconfig.Provider{Namespace: *secrets}
}
