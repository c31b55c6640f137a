// Command policies puts admission policies into the members of a fleet. Their API servers evaluate these by themselves.
package main

import (
	"context"
	"flag"

	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/fleet-runtime/fleet-runtime/examples/cmdline"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
)

var namespace = flag.String("namespace", "fleet", "the `namespace` of the local cluster that has the ConfigMaps with policies")

func main() { cmdline.Main(run) }

func run(ctx context.Context, args cmdline.Args) error {
	mgr, err := mcmanager.New(args.Local, args.Provider(nil), mcmanager.Options{
		Metrics: args.Metrics, Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{*namespace: {}}},
	})
	if err != nil {
		return err
	}
	if err := addPolicies(mgr, *namespace); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
