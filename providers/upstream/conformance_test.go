package upstream_test

import (
	"context"
	"maps"
	"reflect"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/providertest"
	"github.com/fleet-runtime/fleet-runtime/providers/upstream"
)

// inventory is what a provider of multicluster-runtime discovers from.
type inventory struct {
	mu      sync.Mutex // guards what follows
	configs map[multicluster.ClusterName]*rest.Config
	changed chan struct{} // closed at the next change
}

// change changes the inventory.
func (i *inventory) change(do func(map[multicluster.ClusterName]*rest.Config)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	do(i.configs)
	close(i.changed)
	i.changed = make(chan struct{})
}

// read returns what there is, and a channel that is closed at the next change.
func (i *inventory) read() (configs map[multicluster.ClusterName]*rest.Config, changed <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Clone(i.configs), i.changed
}

// discoverer is a provider of multicluster-runtime. It engages a new cluster before it ends the one that had the name, and
// starts none: the clusters of the suite do not exist.
type discoverer struct {
	multicluster.Provider // what the adapter does not call is missing
	*inventory
}

// Start implements multicluster.ProviderRunnable.
func (d discoverer) Start(ctx context.Context, aware multicluster.Aware) error {
	type engaged struct {
		config *rest.Config
		end    context.CancelFunc
	}
	clusters := map[multicluster.ClusterName]engaged{}
	for {
		configs, changed := d.read()
		for name, config := range configs {
			before, was := clusters[name]
			if was && reflect.DeepEqual(before.config, config) {
				continue
			}
			cl, err := cluster.New(config, func(o *cluster.Options) { o.Logger = logr.Discard() })
			if err != nil {
				return err
			}
			clusterCtx, end := context.WithCancel(ctx)
			if err := aware.Engage(clusterCtx, name, cl); err != nil {
				end()
				continue
			}
			clusters[name] = engaged{config, end}
			if was {
				before.end()
			}
		}
		for name, e := range clusters {
			if _, is := configs[name]; !is {
				e.end()
				delete(clusters, name)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			for _, e := range clusters {
				e.end()
			}
			return nil
		}
	}
}

func TestConformance(t *testing.T) {
	providertest.Run(t, providertest.Harness{
		NoLabels: "clusters of multicluster-runtime have none",
		New: func(*testing.T) providertest.Source {
			i := &inventory{configs: map[multicluster.ClusterName]*rest.Config{}, changed: make(chan struct{})}
			return providertest.Source{
				Provider: func() fleet.Provider { return upstream.Provider{Provider: discoverer{inventory: i}} },
				Set: func(_ *testing.T, d providertest.Description) {
					i.change(func(configs map[multicluster.ClusterName]*rest.Config) {
						configs[multicluster.ClusterName(d.Name)] = rest.CopyConfig(d.Config)
					})
				},
				Remove: func(_ *testing.T, name string) {
					i.change(func(configs map[multicluster.ClusterName]*rest.Config) {
						delete(configs, multicluster.ClusterName(name))
					})
				},
				Rename: func(_ *testing.T, from, to string) {
					i.change(func(configs map[multicluster.ClusterName]*rest.Config) {
						configs[multicluster.ClusterName(to)] = configs[multicluster.ClusterName(from)]
						delete(configs, multicluster.ClusterName(from))
					})
				},
			}
		},
	})
}
