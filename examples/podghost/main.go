// Command podghost shows the Pods of many clusters in one: for each it keeps a PodGhost there.
package main

import (
	"context"
	"flag"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/examples/cmdline"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
)

var (
	namespace = flag.String("namespace", "default", "keep the PodGhosts in this `namespace` of the current context's cluster")
	sweep     = flag.Duration("sweep", 50*time.Second, "look this often for PodGhosts of Pods that went unseen, with 0 never")
)

func main() { cmdline.Main(run) }

// run keeps the PodGhosts in the local cluster. The members have the Pods.
func run(ctx context.Context, args cmdline.Args) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	mgr, err := mcmanager.New(args.Local, args.Provider(nil), mcmanager.Options{
		Scheme:  scheme,
		Metrics: args.Metrics,
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
	return mgr.Start(ctx)
}
