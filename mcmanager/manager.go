// Package mcmanager contains the manager of a program that works on a fleet of clusters.
package mcmanager

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/gate"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Manager is a controller-runtime manager plus a fleet. What it has from controller-runtime is about the local cluster,
// just as it is without a fleet: client, cache, scheme, leader election, webhooks, metrics, probes. It can be handed to
// whatever takes a controller-runtime manager.
//
// Its methods are safe for concurrent use once it was started.
type Manager interface {
	manager.Manager

	// GetCluster returns the cluster of that name, and the local one for mcreconcile.LocalCluster. It does not wait. A
	// cluster that cannot be used now is answered with an error that wraps fleet.ErrUnknown, ErrNotReady, ErrGone or
	// ErrNotOwned and says why. What it returns is usable until the engagement ends, so ask again in each reconcile.
	// For the cluster of the request itself, mcreconcile.ClusterFrom needs no manager.
	GetCluster(ctx context.Context, name mcreconcile.ClusterName) (cluster.Cluster, error)

	// GetFleet returns the members: their state, labels and changes. Without a provider it has none.
	GetFleet() *fleet.Fleet

	// GetFleetFieldIndexer indexes fields in the caches of all members, now and later, and without a provider in that
	// of the local cluster. GetFieldIndexer is about the local cluster alone. A field of a kind can be indexed once: for
	// another time the error wraps fleet.ErrIndexExists. Several controllers share an index by fleet.Fleet.EnsureIndex.
	GetFleetFieldIndexer() client.FieldIndexer

	// GetProvider returns the provider, nil if there is none.
	GetProvider() fleet.Provider
}

// Options are those of a controller-runtime manager.
type Options = manager.Options

// FleetOption changes how the fleet connects its members and watches over them.
type FleetOption func(*fleet.Options)

// New returns a manager that runs against the cluster of cfg, and on which controllers run against what the provider
// discovers. A nil provider makes a plain manager of it: controllers built with mcbuilder then run against the local
// cluster.
//
// The provider and the fleet run on every replica, also on those that wait for leadership. The metrics server shows the
// members at /debug/fleet. At its start the manager logs of each controller in which clusters that runs: one that was built
// with controller-runtime's builder runs in the local cluster alone.
//
// Scheme, Cache, NewCache, Client and NewClient of opts apply to members too: an operator that is confined to one namespace,
// or whose client reads a kind without cache, is so everywhere. MapperProvider is about the local cluster alone. To have
// other options in members, set fleet.Options.ClusterOptions, which comes last; it may reset what it is given:
//
//	o.Cache = cache.Options{} // members are cached as if the manager had no such options
//
// What would connect members with the local cluster is an error, such as a REST mapper in the options of the cache.
func New(cfg *rest.Config, provider fleet.Provider, opts Options, fleetOpts ...FleetOption) (Manager, error) {
	if opts.Logger.GetSink() == nil {
		opts.Logger = log.Log
	}
	options := fleet.Options{Scheme: opts.Scheme, Logger: opts.Logger.WithName("fleet")}
	if options.Scheme == nil {
		options.Scheme = scheme.Scheme
	}
	for _, apply := range fleetOpts {
		apply(&options)
	}
	if broken, ok := options.Ownership.(unusable); ok {
		return nil, broken.err
	}
	if options.Ownership != nil {
		cfg = gated(cfg)
	}
	local, err := newLocal(cfg, opts)
	if err != nil {
		return nil, err
	}
	if options.ClusterOptions, err = memberOptions(opts, options.ClusterOptions); err != nil && provider != nil {
		return nil, err
	}
	m := &mcManager{local: local, fleet: fleet.New(options), provider: provider, ownership: options.Ownership, controllers: &controllers{}}
	if err := m.Add(life{m}); err != nil {
		return nil, fmt.Errorf("adding the fleet to the manager: %w", err)
	}
	if provider == nil {
		return m, nil
	}
	return m, m.showMembers(opts)
}

// gated returns a config with which requests that are sent on behalf of a member, or of the local cluster, change nothing after
// another replica may own that.
func gated(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return gate.Transport{RoundTripper: rt} })
	return cfg
}

type mcManager struct {
	*local
	fleet    *fleet.Fleet
	provider fleet.Provider
	// ownership is nil if no other replicas share the members.
	ownership fleet.Ownership

	controllers *controllers
}

// Start implements manager.Manager.
func (m *mcManager) Start(ctx context.Context) error {
	m.controllers.start()
	return m.local.Start(ctx)
}

func (m *mcManager) GetCluster(_ context.Context, name mcreconcile.ClusterName) (cluster.Cluster, error) {
	if name == mcreconcile.LocalCluster {
		return m, nil
	}
	engagement, err := m.fleet.Engagement(name)
	if err != nil {
		return nil, err
	}
	return engagement.Cluster(), nil
}

func (m *mcManager) GetFleet() *fleet.Fleet { return m.fleet }

func (m *mcManager) GetProvider() fleet.Provider { return m.provider }

func (m *mcManager) GetFleetFieldIndexer() client.FieldIndexer {
	if m.provider == nil {
		return m.GetFieldIndexer()
	}
	return m.fleet
}

// life is that of the fleet, and of the provider with it.
type life struct{ *mcManager }

// Start implements manager.Runnable. The manager runs it once the local cluster's cache has started.
func (l life) Start(ctx context.Context) error { return l.fleet.Run(ctx, l.mcManager, l.provider) }

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica discovers and connects, so that standbys are
// warm.
func (life) NeedLeaderElection() bool { return false }
