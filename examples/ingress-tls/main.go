// Command ingress-tls issues the certificates of servers and of their clients into Secrets of one cluster, the hub. A Replicator copies
// them to the members, and the key of the authority stays where it is.
package main

import (
	"flag"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	const day = 24 * time.Hour
	c := &controller{now: time.Now}
	flag.DurationVar(&c.validity, "validity", 90*day, "certificates are valid for this `time`, and renewed after two thirds of it")
	flag.DurationVar(&c.authority, "authority-validity", 3650*day, "authorities are valid for this `time`, and have a successor after half of it")
	namespace := flag.String("namespace", "", "work in this `namespace` alone")
	metrics := flag.String("metrics", "localhost:8080", "serve metrics at this `address`; 0 for nowhere")
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	if err := run(c, *namespace, *metrics); err != nil {
		ctrl.Log.Error(err, "The program ends")
		os.Exit(1)
	}
}

func run(c *controller, namespace, metrics string) error {
	hub, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	opts := ctrl.Options{Metrics: metricsserver.Options{BindAddress: metrics}}
	if namespace != "" {
		opts.Cache.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	mgr, err := ctrl.NewManager(hub, opts)
	if err != nil {
		return err
	}
	if err := c.setUp(mgr); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
