// Command deploymentcopy copies the Deployments of a namespace from one cluster to others.
package main

import (
	"flag"
	"log/slog"
	"os"
	"strings"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

var (
	namespace = flag.String("namespace", "default", "copy the Deployments of this `namespace`")
	secrets   = flag.String("secrets", "fleet", "the members are the clusters whose kubeconfigs are in labelled Secrets of this `namespace`; "+
		"those with the label role=source or role=target count")
	source  = flag.String("source", "", "instead, copy from this `context` of your kubeconfig ...")
	targets = flag.String("targets", "", "... to these `contexts`, divided by commas")
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
	}, inNamespace)
	if err != nil {
		return err
	}
	if err := addCopier(mgr, *namespace); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

// inNamespace limits what is watched in the members: their API servers send nothing of other namespaces.
func inNamespace(o *fleet.Options) {
	o.ClusterOptions = func(fleet.Member) []cluster.Option {
		return []cluster.Option{func(o *cluster.Options) {
			o.Cache.DefaultNamespaces = map[string]cache.Config{*namespace: {}}
		}}
	}
}

// provider discovers the clusters. Their labels say what they are for.
func provider() fleet.Provider {
	if *source == "" {
		return kubeconfig.Provider{Namespace: *secrets} // the labels of a Secret are those of the member
	}
	return contexts.Provider{
		Kubeconfig: flag.Lookup("kubeconfig").Value.String(), // controller-runtime's flag
		Contexts:   append(strings.Split(*targets, ","), *source),
		Labels: func(c contexts.Context) map[string]string {
			if c.Name == *source {
				return sourceRole
			}
			return targetRole
		},
	}
}
