package mcmanager_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

// A manager has the options of controller-runtime's, and more of them for its fleet.
func ExampleNew() {
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), kubeconfig.Provider{Namespace: "fleet"},
		mcmanager.Options{LeaderElection: true, LeaderElectionID: "shop.example.com"},
		func(o *fleet.Options) { o.ConnectTimeout = 30 * time.Second },
	)
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}

// Replicas of a Deployment share the members. In a pod the options need nothing; elsewhere the three that the pod would tell.
func ExampleSharded() {
	provider := kubeconfig.Provider{Namespace: "fleet"}
	inPod := mcmanager.Sharded(sharding.Options{})
	elsewhere := mcmanager.Sharded(sharding.Options{ID: "shop", Namespace: "shop-system", Name: "shop-1"})
	for _, sharded := range []mcmanager.FleetOption{inPod, elsewhere} {
		_, _ = mcmanager.New(ctrl.GetConfigOrDie(), provider, mcmanager.Options{}, sharded)
	}
}

// Members have the manager's options of caches and clients, until ClusterOptions says otherwise.
func ExampleNew_clusterOptions() {
	newManager := func(cfg *rest.Config, provider fleet.Provider) (mcmanager.Manager, error) {
		inMembers := func(o *cluster.Options) {
			o.Cache.DefaultNamespaces = nil // all namespaces, though the cache of the hub is confined to one
			o.Client = client.Options{}     // every kind is read from the cache
		}
		mgr, err := mcmanager.New(cfg, provider, ctrl.Options{
			Cache:  cache.Options{DefaultNamespaces: map[string]cache.Config{"guestbook-system": {}}},
			Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		}, func(o *fleet.Options) {
			o.ClusterOptions = func(fleet.Member) []cluster.Option { return []cluster.Option{inMembers} }
		})
		return mgr, err
	}
	_ = newManager
}

// Another cluster than that of the request is asked for in each reconcile.
func ExampleManager_getCluster() {
	mirror := func(ctx context.Context, mgr mcmanager.Manager, source *corev1.ConfigMap) error {
		target, err := mgr.GetCluster(ctx, "west")
		switch {
		case errors.Is(err, fleet.ErrGone):
			return nil // nothing to mirror to any more
		case err != nil:
			return err // a controller tries ErrNotReady again by itself
		}
		mirrored := &corev1.ConfigMap{Data: source.Data}
		mirrored.Namespace, mirrored.Name = source.Namespace, source.Name
		return client.IgnoreAlreadyExists(target.GetClient().Create(ctx, mirrored))
	}
	_ = mirror
}

// The members can be listed, with what is wrong with them.
func ExampleManager_getFleet() {
	list := func(mgr mcmanager.Manager) {
		for _, status := range mgr.GetFleet().List(nil) {
			fmt.Println(status.Name, status.State, status.Reason)
		}
	}
	_ = list
}

// An index of all members, for use with client.MatchingFields in reconcilers.
func ExampleManager_getFleetFieldIndexer() {
	index := func(ctx context.Context, mgr mcmanager.Manager) error {
		return mgr.GetFleetFieldIndexer().IndexField(ctx, &corev1.Pod{}, "spec.nodeName", func(obj client.Object) []string {
			return []string{obj.(*corev1.Pod).Spec.NodeName}
		})
	}
	_ = index
}

// A rollout halts also if the new version has not synced, in enough members, every kind that its controllers watch.
func ExampleKindsSynced() {
	add := func(mgr mcmanager.Manager) error {
		return mgr.AddReadyzCheck("fleet", mcmanager.AtLeastReady(mgr.GetFleet(), 80, mcmanager.KindsSynced))
	}
	_ = add
}

// A rollout halts if the new version reaches too few members.
func ExampleAtLeastReady() {
	add := func(mgr mcmanager.Manager) error {
		err := mgr.AddReadyzCheck("fleet", mcmanager.AtLeastReady(mgr.GetFleet(), 80))
		return err
	}
	_ = add
}
