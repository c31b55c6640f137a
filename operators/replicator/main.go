// Command replicator is an operator that brings objects to the clusters of a fleet, see its README.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	inventoryv1alpha1 "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/inpod"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

// flags are those of the command.
type flags struct {
	namespace, kinds, sources, metrics, probes string
	decisions, sharded                         bool
}

func main() {
	if isEvaluating() {
		os.Exit(evaluate(mostMemory))
	}
	var f flags
	flag.StringVar(&f.namespace, "namespace", "", "the `namespace` of the members' kubeconfigs and of the replicas' Leases, by default the pod's")
	flag.StringVar(&f.kinds, "kinds", defaultKinds, "the `kinds` that Replicators may bring to members, with their groups; *.GROUP is all of a group")
	flag.StringVar(&f.sources, "sources", "ConfigMap,Secret", "the `kinds` of objects in the hub that Replicators may refer to")
	flag.BoolVar(&f.decisions, "placement-decisions", false, "follow the PlacementDecisions of the hub, which must serve them")
	flag.BoolVar(&f.sharded, "sharded", false, "share the members with other replicas")
	flag.StringVar(&f.metrics, "metrics-bind-address", ":8443", "the `address` of the metrics and of /debug/fleet")
	flag.StringVar(&f.probes, "health-probe-bind-address", ":8081", "the `address` of the probes")
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	if err := run(f); err != nil {
		ctrl.Log.Error(err, "The program ends")
		os.Exit(1)
	}
}

func run(f flags) error {
	hub, err := ctrl.GetConfig() // the cluster that the program runs in, or that of --kubeconfig
	if err != nil {
		return err
	}
	hub.Wrap(shallow)
	if f.namespace == "" {
		if f.namespace, err = inpod.Namespace(inpod.NamespaceFile); err != nil {
			return fmt.Errorf("--namespace is that of the pod by default: %w", err)
		}
	}
	c := &controller{namespace: f.namespace, kinds: parseKinds(f.kinds), decisions: f.decisions}
	if c.sources, err = served(hub, parseKinds(f.sources)); err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	traces, end, err := newTraces(ctx)
	if err != nil {
		return fmt.Errorf("sending spans to what the variables OTEL_EXPORTER_OTLP_... say: %w", err)
	}
	defer end()
	mgr, err := c.manager(traces.Config(hub), f, traces.Fleet)
	if err != nil {
		return err
	}
	c.hub, c.statuses, c.fleet = mgr.GetCache(), mgr.GetClient().Status(), mgr.GetFleet()
	err = errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping), mgr.Add(&c.children), c.setUp(mgr, traces.Middleware()))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// served returns in which versions the hub serves kinds.
func served(hub *rest.Config, all kinds) ([]schema.GroupVersionKind, error) {
	httpClient, err := rest.HTTPClientFor(hub)
	if err != nil {
		return nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(hub, httpClient)
	if err != nil {
		return nil, err
	}
	versions := make([]schema.GroupVersionKind, len(all))
	for i, kind := range all {
		mapping, err := mapper.RESTMapping(kind)
		if err != nil {
			return nil, fmt.Errorf("finding the version of %s, which --sources names: %w", kind, err)
		}
		versions[i] = mapping.GroupVersionKind
	}
	return versions, nil
}

// manager returns one whose caches have what is needed: of the hub the sources, of members what Replicators have there.
func (c *controller) manager(hub *rest.Config, f flags, options ...mcmanager.FleetOption) (mcmanager.Manager, error) {
	s := runtime.NewScheme()
	err := errors.Join(scheme.AddToScheme(s), v1alpha1.AddToScheme(s), inventoryv1alpha1.AddToScheme(s))
	if err != nil {
		return nil, err
	}
	options = append(options, ofMembers)
	if f.sharded {
		options = append(options, mcmanager.Sharded(sharding.Options{Namespace: f.namespace}))
	}
	return mcmanager.New(hub, kubeconfig.Provider{Namespace: f.namespace}, mcmanager.Options{
		Scheme:                 s,
		HealthProbeBindAddress: f.probes,
		Metrics: metricsserver.Options{
			BindAddress: f.metrics, SecureServing: true, FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
		Cache: c.ofHub(),
	}, options...)
}

// ofHub limits what is cached of the hub: of what tenants have there, what Replicators may refer to, and of nothing who has set which field.
func (c *controller) ofHub() cache.Options {
	sources := map[client.Object]cache.ByObject{}
	for _, kind := range c.sources {
		source := &unstructured.Unstructured{}
		source.SetGroupVersionKind(kind)
		sources[source] = cache.ByObject{Label: labels.SelectorFromSet(labels.Set{v1alpha1.SourceLabel: "true"})}
	}
	return cache.Options{ByObject: sources, DefaultTransform: cache.TransformStripManagedFields()}
}

// ofMembers limits what is cached of members to what Replicators have there.
func ofMembers(o *fleet.Options) {
	o.ClusterOptions = func(fleet.Member) []cluster.Option {
		return []cluster.Option{func(o *cluster.Options) { o.Cache.ByObject = nil }, dependents.OnlyLabelled(name)}
	}
}
