// Package namespaces is the provider of the namespaces of one cluster: each is a member. It is for tests, for tenants
// that have a namespace each, and for thousands of members on one machine.
//
// All members share one client and one cache, and one watch for each kind, however many they are. What a member's
// cluster.Cluster gives is confined to its namespace: client, cache, informers, indexes and event recorder. Objects keep
// their names: those of the member "team-a" are in the namespace "team-a", in requests too. Where a namespace may be left
// empty, it stands for the member's.
//
//   - Another namespace, in whatever is read or written, is answered with [ErrOutside].
//   - Kinds without namespaces can be read and watched, and not written: their objects are everybody's.
//   - Of the kind Namespace, a member sees its own object.
//
// This keeps a controller within a namespace; it is no guard against hostile code. Requests are made with the rights of
// the manager, and [cluster.Cluster.GetConfig] and GetHTTPClient reach the whole cluster.
package namespaces

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// Provider is a [fleet.Provider] whose members are the namespaces of a cluster, by their names. The labels of a namespace
// are the labels of its member, and its UID is the member's identity. The zero value works. A provider must not be changed
// after Run was called.
//
// A namespace that is being deleted stays a member until it is gone, so that controllers can take their finalizers off
// what is in it.
//
// The manager needs the rights to get, list and watch namespaces, and to create and patch events (of events.k8s.io). For
// what controllers watch it needs the rights to list and watch in all namespaces.
type Provider struct {
	// Selector says which namespaces are members.
	// Default: all.
	Selector labels.Selector

	// Cluster is the cluster that has the namespaces. Its cache and client are what the members share. Whoever made it
	// starts and stops it. Set it for namespaces of another cluster, or for options of the cache and the client.
	// Default: the local cluster, with a cache and a client of the provider's own: the cache strips managedFields, and
	// the client does not limit its requests, since so many share it.
	Cluster cluster.Cluster
}

var _ fleet.Provider = Provider{}

// Run implements [fleet.Provider].
func (p Provider) Run(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx) // so that nothing is waited for that goes on
	defer cancel()
	source := p.Cluster
	if source == nil {
		own, err := newCluster(ctx, local)
		if err != nil {
			return fmt.Errorf("making a client and a cache for all namespaces: %w", err)
		}
		running.Go(func() {
			if err := own.Start(ctx); err != nil && ctx.Err() == nil {
				logf.FromContext(ctx).Error(err, "The cache of the namespaces has ended")
			}
		})
		source = own
	}
	shared := newShared(ctx, source)
	defer shared.close()
	engine := objects.Provider[*corev1.Namespace]{
		Name:   "namespaces",
		Object: &corev1.Namespace{},
		Members: func(_ context.Context, ns *corev1.Namespace, _ objects.Reader) ([]fleet.Member, error) {
			return []fleet.Member{{
				Name:     fleet.ClusterName(ns.Name),
				Cluster:  member{shared: shared, namespace: ns.Name, uid: ns.UID},
				Identity: string(ns.UID), // kube-system is a member itself, and all others would share its UID
				Labels:   ns.Labels,
			}}, nil
		},
	}
	if p.Selector != nil {
		engine.Selectors = []labels.Selector{p.Selector}
	}
	return engine.Run(ctx, source, members)
}

// newCluster returns a second view of the local cluster, with a cache and a client of its own.
func newCluster(ctx context.Context, local cluster.Cluster) (cluster.Cluster, error) {
	cfg := rest.CopyConfig(local.GetConfig())
	cfg.QPS = -1
	return cluster.New(cfg, func(o *cluster.Options) {
		o.Scheme = local.GetScheme()
		o.HTTPClient = local.GetHTTPClient()
		o.Logger = logf.FromContext(ctx)
		o.Cache.DefaultTransform = cache.TransformStripManagedFields()
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return local.GetRESTMapper(), nil }
	})
}
