// Command peers runs sigs.k8s.io/multicluster-runtime for the benchmarks, as a child process of theirs. It is a module of
// its own, so that nothing else depends on the peer.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

func main() {
	ctrl.SetLogger(logr.Discard())
	err := measure.Serve(context.Background(), os.Stdin, os.Stdout, map[string]measure.Subject{
		"multicluster-runtime, Secrets":                  multiclusterRuntime,
		"multicluster-runtime, sharded, members in name": sharded,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// multiclusterRuntime is one controller of ConfigMaps in all members of the kubeconfig provider.
func multiclusterRuntime(ctx context.Context, cfg *rest.Config, spec measure.Spec, probe *measure.Probe) (measure.Running, error) {
	provider := kubeconfig.New(kubeconfig.Options{
		Namespace: spec.Namespace, KubeconfigSecretLabel: measure.SecretLabel, KubeconfigSecretKey: measure.SecretKey,
	})
	mgr, err := mcmanager.New(cfg, provider, mcmanager.Options{
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(time.Minute),
		// The provider would cache the Secrets of all namespaces otherwise.
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{spec.Namespace: {}}},
	})
	if err != nil {
		return measure.Running{}, err
	}
	if err := provider.SetupWithManager(ctx, mgr); err != nil {
		return measure.Running{}, err
	}
	err = mcbuilder.ControllerManagedBy(mgr).Named("bench").For(&corev1.ConfigMap{}).Complete(
		mcreconcile.Func(func(_ context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			probe.Member(string(req.ClusterName))
			return reconcile.Result{}, nil
		}))
	return measure.Running{Run: mgr.Start, Engaged: func() int { return len(provider.ListClusters()) }}, err
}
