// Command jobs runs Tests: each becomes a Job in the main cluster and in the members that it selects, and has the results.
package main

import (
	"context"
	"errors"
	"flag"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/fleet-runtime/fleet-runtime/examples/cmdline"
	jobv1 "github.com/fleet-runtime/fleet-runtime/examples/jobs/v1"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
)

var namespace = flag.String("namespace", "default", "run the Tests of this `namespace`, in the namespace of the same name of each cluster")

func main() { cmdline.Main(run) }

// run runs the Tests of the local cluster, the main one.
func run(ctx context.Context, args cmdline.Args) error {
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), jobv1.AddToScheme(s)); err != nil {
		return err
	}
	mgr, err := mcmanager.New(args.Local, args.Provider(nil), mcmanager.Options{
		Scheme:  s,
		Metrics: args.Metrics,
		// Members inherit this, so nothing is asked of any cluster about other namespaces.
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{*namespace: {}}},
	})
	if err != nil {
		return err
	}
	if err := newController(mgr.GetFleet(), *namespace).SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
