package upstream

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// setUp hands the provider a manager of multicluster-runtime if it wants one: to run a controller in the local cluster,
// which engages clusters with the manager.
func (p Provider) setUp(ctx context.Context, local cluster.Cluster, aware multicluster.Aware) error {
	var set func(mcmanager.Manager) error
	switch provider := p.Provider.(type) {
	case interface {
		SetupWithManager(ctx context.Context, mgr mcmanager.Manager) error
	}:
		set = func(mgr mcmanager.Manager) error { return provider.SetupWithManager(ctx, mgr) }
	case interface {
		SetupWithManager(mgr mcmanager.Manager) error
	}:
		set = provider.SetupWithManager
	default:
		return nil
	}
	host, ok := local.(manager.Manager)
	if !ok {
		return fmt.Errorf("it needs a manager, and the local cluster is a %T: run it with mcmanager.New", local)
	}
	mgr, err := mcmanager.WithMultiCluster(hostManager{host}, p.Provider)
	if err != nil {
		return err
	}
	return set(engagingManager{Manager: mgr, aware: aware})
}

// engagingManager is a manager of multicluster-runtime that engages clusters with the fleet.
type engagingManager struct {
	mcmanager.Manager
	aware multicluster.Aware
}

// Engage implements multicluster.Aware.
func (m engagingManager) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	if err := m.Manager.Engage(ctx, name, cl); err != nil { // what the provider has added to the manager
		return err
	}
	return m.aware.Engage(ctx, name, cl)
}

// hostManager is the local manager as the controllers of providers need it.
type hostManager struct{ manager.Manager }

// GetControllerOptions implements manager.Manager. Discovery runs on every replica. And these providers let a cluster
// live on the context of the reconcile that made it, which a timeout ends as soon as that returns.
func (m hostManager) GetControllerOptions() config.Controller {
	options := m.Manager.GetControllerOptions()
	options.NeedLeaderElection = new(false)
	options.ReconciliationTimeout = 0
	return options
}
