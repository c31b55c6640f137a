// Command quickstart runs one controller against every cluster of a fleet, and shows what it does.
package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/examples/quickstart/demo"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// main lets the demo bring clusters along. In a program of your own, ctx comes from ctrl.SetupSignalHandler(), the local
// config from ctrl.GetConfigOrDie(), and there is no demo.
func main() { demo.Main(run) }

// run runs a controller of ConfigMaps against the fleet until ctx is done.
func run(ctx context.Context, d *demo.Demo) error {
	// Members are the clusters whose kubeconfigs are in labelled Secrets of the local cluster.
	provider := kubeconfig.Provider{Namespace: "fleet"}
	mgr, err := mcmanager.New(d.LocalConfig(), d.ProviderOr(provider), mcmanager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, // none
	}, d.Sharded()...)
	if err != nil {
		return err
	}
	// One controller for all members, those of now and later.
	err = mcbuilder.ControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}).
		Complete(&inventory{demo: d})
	if err != nil {
		return err
	}
	d.Follow(mgr.GetFleet())
	return mgr.Start(ctx)
}

// inventory keeps account of the ConfigMaps in each cluster. It only reads.
type inventory struct{ demo *demo.Demo }

// Reconcile is called for each ConfigMap that was added, changed or removed, in whatever cluster.
func (i *inventory) Reconcile(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
	member := mcreconcile.ClusterFrom(ctx) // the cluster of the request
	configMap := &corev1.ConfigMap{}
	err := member.GetClient().Get(ctx, req.NamespacedName, configMap)
	if apierrors.IsNotFound(err) {
		i.demo.Gone(req)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	i.demo.Found(req, configMap)
	return ctrl.Result{}, nil
}
