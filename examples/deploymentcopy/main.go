// Command deploymentcopy copies the Deployments of a namespace from one cluster to others.
package main

import (
	"context"
	"errors"
	"flag"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/fleet-runtime/fleet-runtime/examples/cmdline"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
)

var (
	namespace = flag.String("namespace", "default", "copy the Deployments of this `namespace`")
	source    = flag.String("source", "", "with --contexts: copy from this `context` of them to the others; "+
		"members that Secrets describe have the label role=source or role=target")
)

func main() { cmdline.Main(run) }

func run(ctx context.Context, args cmdline.Args) error {
	if all := args.Contexts(); all != nil && !slices.Contains(all, *source) {
		return errors.New("say with --source from which of the --contexts Deployments are copied")
	}
	mgr, err := mcmanager.New(args.Local, args.Provider(roleOf), mcmanager.Options{
		Metrics: args.Metrics,
		// Members inherit this: their API servers send nothing of other namespaces.
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{*namespace: {}}},
	})
	if err != nil {
		return err
	}
	if err := addCopier(mgr, *namespace); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// roleOf returns the labels of a context: they say what the cluster is for.
func roleOf(c contexts.Context) map[string]string {
	if c.Name == *source {
		return sourceRole
	}
	return targetRole
}
