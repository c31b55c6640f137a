package mcsource

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestAHandlerComesTooLateForACacheOfNamespaces: each time that asks for its informer, it is another one.
func TestAHandlerComesTooLateForACacheOfNamespaces(t *testing.T) {
	cp := mctest.Start(t, mctest.Options{}).Local
	f, _ := fleettest.Run(t, fleet.Options{ClusterOptions: func(fleet.Member) []cluster.Option {
		return []cluster.Option{func(o *cluster.Options) {
			o.Cache.DefaultNamespaces = map[string]cache.Config{"default": {}}
		}}
	}})
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
	<-f.Remove("a")
	if _, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); err == nil {
		t.Error("a handler was added to an informer that has ended")
	}
}
