package dependents_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestAnIndexThatWentWithItsKindIsAddedAnew: another controller of the program dropped the kind from the member's cache when neither needed it.
func TestAnIndexThatWentWithItsKindIsAddedAnew(t *testing.T) {
	t.Parallel()
	cp := pool.Start(t, mctest.Options{Clusters: 1}).Members[0]
	f, _ := fleettest.Run(t, fleet.Options{})
	if err := f.Set(fleet.Member{Name: "a", Config: cp.Config()}); err != nil {
		t.Fatal(err)
	}
	var e *fleet.Engagement
	eventually(t, "the member is engaged", func() bool {
		is, err := f.Engagement("a")
		e = is
		return err == nil
	})
	list := dependents.ConfigMapsOf(e)
	if err := list(t.Context()); err != nil {
		t.Fatal(err)
	}
	drop, is := e.Cluster().GetCache().(interface {
		ReleaseInformer(ctx context.Context, obj client.Object) (released bool, err error)
	})
	if !is {
		t.Fatal("it is no cache of the fleet")
	}
	eventually(t, "the kind was not read for a while, and is dropped", func() bool {
		released, err := drop.ReleaseInformer(t.Context(), &corev1.ConfigMap{})
		return released && err == nil
	})
	for range 2 {
		if err := list(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
