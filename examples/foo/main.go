// Command foo serves the Foos of many clusters: each becomes a Deployment in one central cluster.
package main

import (
	"context"
	"errors"
	"flag"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/fleet-runtime/fleet-runtime/examples/cmdline"
	"github.com/fleet-runtime/fleet-runtime/examples/foo/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
)

var probes = flag.String("probes", "0", "serve /readyz, which clusters with Foos do not change, at this `address`; 0 for nowhere")

func main() { cmdline.Main(run) }

// run keeps the Deployments in the local cluster, the central one. The members have the Foos.
func run(ctx context.Context, args cmdline.Args) error {
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		return err
	}
	mgr, err := mcmanager.New(args.Local, args.Provider(nil), mcmanager.Options{
		Scheme:                 s,
		Metrics:                args.Metrics,
		HealthProbeBindAddress: *probes,
		// In the central cluster, the program may look into this namespace alone.
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	}, everywhere)
	if err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := newController().SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// everywhere watches Foos in all namespaces of members.
func everywhere(o *fleet.Options) {
	o.ClusterOptions = func(fleet.Member) []cluster.Option {
		return []cluster.Option{func(o *cluster.Options) { o.Cache.DefaultNamespaces = nil }}
	}
}
