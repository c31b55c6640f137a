// Package upstream runs a provider of sigs.k8s.io/multicluster-runtime, unchanged, as one of this project's: a cluster
// that it engages becomes a member, and leaves when the context of the engagement ends.
//
// It is a module of its own, so that nobody else depends on multicluster-runtime.
package upstream

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// Provider is a [fleet.Provider] whose members are the clusters that a provider of multicluster-runtime engages, under
// the same names.
//
// That provider makes, starts and stops the clusters, so the fleet neither probes them nor takes over new credentials in
// place, and its options for members do not apply. Field indexes are those of the fleet
// (mcmanager.Manager.GetFleetFieldIndexer): the provider's IndexField is not called, and must not be.
type Provider struct {
	// Provider is the provider of multicluster-runtime. It is started if it has a method Start, as
	// multicluster.ProviderRunnable says. If it has a method SetupWithManager that takes the manager of
	// multicluster-runtime, with or without a context before it, that is called first, so the program does not call it.
	// Such a provider needs the manager of package mcmanager. Required.
	Provider multicluster.Provider

	// Labels returns the labels of a member, which selectors of watches match. It is called when the cluster is engaged,
	// maybe for several at once, and must not wait for it.
	// Default: none.
	Labels func(name fleet.ClusterName, cl cluster.Cluster) map[string]string

	// Identity returns the [fleet.Member.Identity] of a member; "" leaves it to the fleet to read it. Set it where the
	// clusters have no namespace kube-system of their own, as the logical clusters of kcp. It is called as Labels is.
	// Default: the fleet reads it from the cluster.
	Identity func(name fleet.ClusterName, cl cluster.Cluster) string
}

var _ fleet.Provider = Provider{}

// Run implements [fleet.Provider]. It returns the error of the provider if that cannot be set up, or its Start fails.
func (p Provider) Run(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
	if p.Provider == nil {
		return errors.New("providers/upstream: set Provider.Provider")
	}
	ctx, cancel := context.WithCancel(ctx)
	r := newReporter(ctx, members, p)
	defer r.close()
	defer cancel()
	if err := p.setUp(ctx, local, r); err != nil {
		return fmt.Errorf("setting up %T: %w", p.Provider, err)
	}
	if runnable, ok := p.Provider.(multicluster.ProviderRunnable); ok {
		if err := runnable.Start(ctx, r); err != nil && ctx.Err() == nil {
			return fmt.Errorf("starting %T: %w", p.Provider, err)
		}
	}
	<-ctx.Done()
	return nil
}
