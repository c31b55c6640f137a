// Command images lets each member of a fleet decide which images its Deployments may have. It is a webhook that runs once, in the hub.
package main

import (
	"context"
	_ "embed"
	"flag"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/fleet-runtime/fleet-runtime/examples/cmdline"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcwebhook"
)

var (
	address   = flag.String("url", "", "where the API servers of all members reach this program, such as `https://images.example.com`")
	port      = flag.Int("port", mcwebhook.DefaultPort, "the `port` that it listens at")
	namespace = flag.String("namespace", "fleet", "the `namespace` of the local cluster that has the keys of members")
)

//go:generate go tool -modfile=../../hack/generate.mod controller-gen webhook paths=. output:webhook:dir=.

// webhooks is what controller-gen makes of the marker in webhook.go.
//
//go:embed manifests.yaml
var webhooks []byte

func main() { cmdline.Main(run) }

func run(ctx context.Context, args cmdline.Args) error {
	mgr, err := mcmanager.New(args.Local, args.Provider(nil), mcmanager.Options{
		Metrics: args.Metrics, Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{*namespace: {}}},
	})
	if err != nil {
		return err
	}
	configurations, err := mcwebhook.Parse(webhooks)
	if err != nil {
		return err
	}
	hooks, err := mcwebhook.New(mgr, mcwebhook.Options{
		Name: "images", URL: *address, Configurations: configurations, Namespace: *namespace, Server: webhook.Options{Port: *port},
	})
	if err != nil {
		return err
	}
	if err := setupDeploymentWebhook(hooks); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
