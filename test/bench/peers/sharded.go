package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	coordinator "sigs.k8s.io/multicluster-runtime/pkg/manager/coordinator/sharded"
	"sigs.k8s.io/multicluster-runtime/pkg/manager/coordinator/sharded/peers"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

// sharded is one of several replicas that share members in name by the peer's coordinator, with its defaults and a client as in
// its example: without a cache, and as fast as the API server allows.
func sharded(_ context.Context, cfg *rest.Config, spec measure.Spec, probe *measure.Probe) (measure.Running, error) {
	cfg = probe.Counted(cfg)
	cfg.QPS = -1
	kube, err := client.New(cfg, client.Options{})
	if err != nil {
		return measure.Running{}, err
	}
	registry := peers.NewLeaseRegistry(kube, spec.Leases, "mcr-peer", spec.Replica, 1, logr.Discard())
	known := func() int { return len(registry.Snapshot()) }
	provider := named{members: spec.Members, ready: func() bool { return known() == spec.Replicas }}
	mgr, err := mcmanager.New(cfg, provider, mcmanager.Options{
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(time.Minute),
	}, mcmanager.WithCoordinator(coordinator.New(kube, logr.Discard(),
		coordinator.WithPeerRegistry(registry), coordinator.WithShardLease(spec.Leases, "mcr-shard"))))
	if err != nil {
		return measure.Running{}, err
	}
	counted := &counter{}
	engaged := func() int { return int(counted.engaged.Load()) }
	return measure.Running{Run: mgr.Start, Engaged: engaged, Replicas: known}, mgr.Add(counted)
}

// named provides members in name alone, once all replicas know each other: one that thinks it is alone takes all.
type named struct {
	members int
	ready   func() bool
}

// Get implements multicluster.Provider.
func (named) Get(context.Context, multicluster.ClusterName) (cluster.Cluster, error) {
	return nil, multicluster.ErrClusterNotFound
}

// IndexField implements multicluster.Provider.
func (named) IndexField(context.Context, client.Object, string, client.IndexerFunc) error { return nil }

// Start implements multicluster.ProviderRunnable.
func (n named) Start(ctx context.Context, to multicluster.Aware) error {
	if !measure.Until(ctx, n.ready) {
		return nil
	}
	for i := range n.members {
		if err := to.Engage(ctx, multicluster.ClusterName(fmt.Sprintf("member-%04d", i)), nil); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// counter counts the members that this replica works on.
type counter struct{ engaged atomic.Int64 }

// Engage implements multicluster.Aware.
func (c *counter) Engage(ctx context.Context, _ multicluster.ClusterName, _ cluster.Cluster) error {
	c.engaged.Add(1)
	context.AfterFunc(ctx, func() { c.engaged.Add(-1) })
	return nil
}

// Start implements manager.Runnable.
func (*counter) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
