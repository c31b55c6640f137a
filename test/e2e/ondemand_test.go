package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// asking is a reconciler that asks for watches where there is a ConfigMap "ask".
type asking struct {
	*record
	demand *mcsource.OnDemand
	kinds  map[string]client.Object
}

// Reconcile implements mcreconcile.Reconciler.
func (a *asking) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	if req.Name == "ask" {
		for name, kind := range a.kinds {
			if err := a.demand.Watch(ctx, name, mcsource.Kind(kind, mchandler.EnqueueRequestForObject)); err != nil {
				return reconcile.Result{}, err
			}
		}
	}
	return a.record.Reconcile(ctx, req)
}

// TestAKindIsWatchedWhereAReconcileAsksForIt: there alone, in each engagement, and also a kind that is missing at first.
func TestAKindIsWatchedWhereAReconcileAsksForIt(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 2})
	ns := inAll(t, f)
	asks := f.Members[0]
	secret := func(cp *mctest.ControlPlane, name string) {
		t.Helper()
		if err := cp.Client().Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	configMap(t, asks, ns, "ask")
	for _, cp := range f.Members {
		secret(cp, "early")
	}

	m := newManager(t, f.Local)
	r := &asking{newRecord(), mcsource.NewOnDemand(m.GetFleet()), map[string]client.Object{"secrets": &corev1.Secret{}, "widgets": widget()}}
	err := mcbuilder.ControllerManagedBy(m).For(&corev1.ConfigMap{}).Named(controllerName(t)).WatchesRawSource(r.demand).Complete(r)
	if err != nil {
		t.Fatal(err)
	}
	member := m.join("asks", asks.Config())
	m.join("other", f.Members[1].Config())
	m.start()
	eventually(t, "objects that were there are reconciled", func() bool { return r.count("asks", ns, "early") > 0 })
	secret(asks, "late")
	eventually(t, "objects that come are reconciled", func() bool { return r.count("asks", ns, "late") > 0 })
	eventually(t, "the status says which kind is missing", func() bool {
		return notSynced(m.status("asks"), widgets.GroupKind().String()) == fleet.ReasonNoKind
	})
	installWidgets(t, asks)
	createWidget(t, asks, ns, "w")
	eventually(t, "the kind that was missing is reconciled", func() bool { return r.count("asks", ns, "w") > 0 })

	eventually(t, "the other member is reconciled", func() bool { return r.count("other", ns, "a") > 0 })
	secret(f.Members[1], "late")
	configMap(t, f.Members[1], ns, "b")
	eventually(t, "a change in the other member is reconciled", func() bool { return r.count("other", ns, "b") > 0 })
	if r.count("other", ns, "early")+r.count("other", ns, "late") > 0 || m.status("other").NotSynced != nil {
		t.Error("kinds are watched in a member in which no reconcile asks for them")
	}

	m.leave(member)
	m.is("asks", "")
	secret(asks, "between")
	m.join("asks", asks.Config())
	eventually(t, "the next engagement is watched too", func() bool { return r.count("asks", ns, "between") > 0 })
}
