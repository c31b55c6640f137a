// Package cmdline is what the command lines of the examples have in common.
package cmdline

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// Args are what the command line says.
type Args struct {
	// Local is the cluster that the program runs against: that of the current context, or the one that it runs in.
	Local *rest.Config
	// Metrics is where metrics are served, and /debug/fleet.
	Metrics metricsserver.Options

	secrets string
	names   string
}

// Main runs a program until it is interrupted or fails. It adds the flags that the examples share to those that the program
// has, and parses them all. It ends the process if run returns an error.
func Main(run func(context.Context, Args) error) {
	var a Args
	flag.StringVar(&a.secrets, "secrets", "fleet", "the members are the clusters whose kubeconfigs are in labelled Secrets of this `namespace`")
	flag.StringVar(&a.names, "contexts", "", "instead, the members are these `contexts` of your kubeconfig, divided by commas")
	flag.StringVar(&a.Metrics.BindAddress, "metrics", "localhost:8080", "serve metrics, and /debug/fleet, at this `address`; 0 for nowhere")
	verbosity := flag.Int("verbosity", 0, "log more; 5 logs each reconcile")
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.Level(-*verbosity)})))
	local, err := ctrl.GetConfig()
	if err == nil {
		a.Local = local
		err = run(ctrl.SetupSignalHandler(), a)
	}
	if err != nil {
		ctrl.Log.Error(err, "The program ends")
		os.Exit(1)
	}
}

// Contexts returns the contexts that are members, none if these are described by Secrets.
func (a Args) Contexts() []string {
	if a.names == "" {
		return nil
	}
	return strings.Split(a.names, ",")
}

// Provider discovers the members. Those that are described by Secrets have the labels of these, and labels says which those
// of contexts have. It may be nil.
func (a Args) Provider(labels func(contexts.Context) map[string]string) fleet.Provider {
	if a.names == "" {
		return kubeconfig.Provider{Namespace: a.secrets}
	}
	return contexts.Provider{
		Kubeconfig: flag.Lookup("kubeconfig").Value.String(), // controller-runtime's flag
		Contexts:   a.Contexts(),
		Labels:     labels,
	}
}
