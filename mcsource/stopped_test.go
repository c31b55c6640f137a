package mcsource

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestAHandlerComesTooLateForAnInformerOfTheFleet: it was released this very moment, or the engagement has ended. A cache that is limited to
// namespaces hands out another one each time.
func TestAHandlerComesTooLateForAnInformerOfTheFleet(t *testing.T) {
	cp := mctest.Start(t, mctest.Options{}).Local
	limit := func(o *cluster.Options) { o.Cache.DefaultNamespaces = map[string]cache.Config{"default": {}} }
	for name, c := range map[string]struct {
		with     []cluster.Option
		released bool
	}{
		"it was released":                         {released: true},
		"the engagement has ended":                {},
		"it was released, in namespaces":          {with: []cluster.Option{limit}, released: true},
		"the engagement has ended, in namespaces": {with: []cluster.Option{limit}},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := fleettest.Run(t, fleet.Options{ClusterOptions: func(fleet.Member) []cluster.Option { return c.with }})
			if err := f.Set(fleet.Member{Name: "a", Config: cp.Config()}); err != nil {
				t.Fatal(err)
			}
			var of cache.Cache
			for range f.Changes(t.Context()) {
				if e, err := f.Engagement("a"); err == nil {
					of = e.Cluster().GetCache()
					break
				}
			}
			view := newEngagedCache(t.Context(), of) // whose end it has not heard of
			i, err := view.GetInformer(t.Context(), &corev1.ConfigMap{})
			if err != nil {
				t.Fatal(err)
			}
			if c.released {
				release(t, of)
			} else {
				<-f.Remove("a")
			}
			_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{})
			if (err == nil) != c.released {
				t.Errorf("adding a handler: %v", err)
			}
		})
	}
}

// TestAHandlerComesTooLateForAClusterThatWasStopped by its provider, which limits its cache to namespaces: it has another informer each time. The
// engagement may go on.
func TestAHandlerComesTooLateForAClusterThatWasStopped(t *testing.T) {
	cp := mctest.Start(t, mctest.Options{}).Local
	made, err := cluster.New(cp.Config(), func(o *cluster.Options) {
		o.Cache.DefaultNamespaces = map[string]cache.Config{"default": {}}
	})
	if err != nil {
		t.Fatal(err)
	}
	life, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- made.Start(life) }()
	i, err := newEngagedCache(t.Context(), made.GetCache()).GetInformer(t.Context(), &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	<-i.HasSyncedChecker().Done()
	stop()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if _, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); err == nil {
		t.Error("a handler was added to an informer that has ended")
	}
}

// release drops the ConfigMaps from a cache of the fleet.
func release(t *testing.T, of cache.Cache) {
	t.Helper()
	releasing, is := of.(interface {
		ReleaseInformer(ctx context.Context, obj client.Object) (released bool, err error)
	})
	if !is {
		t.Fatal("it is no cache of the fleet")
	}
	if did, err := releasing.ReleaseInformer(t.Context(), &corev1.ConfigMap{}); err != nil || !did {
		t.Fatalf("released: %t, %v", did, err)
	}
}
