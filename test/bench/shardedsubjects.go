package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/static"
	"github.com/fleet-runtime/fleet-runtime/sharding"
	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

// sharded is ours as one of several replicas that share the members.
func sharded(_ context.Context, cfg *rest.Config, spec measure.Spec, probe *measure.Probe) (measure.Running, error) {
	provider := fleet.NewProvider("test", func(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
		return kubeconfig.Provider{Namespace: spec.Namespace}.Run(ctx, local, apart{members})
	})
	mgr, running, err := newSharded(cfg, provider, spec)
	if err != nil {
		return running, err
	}
	return running, mcbuilder.ControllerManagedBy(mgr).Named("bench").For(&corev1.ConfigMap{}).
		WithOptions(mcbuilder.Options{MaxConcurrentReconciles: spec.Workers}).Complete(&tenant{probe: probe})
}

// tenant notes each member once for each time that it comes to this replica. A reconcile takes as long as it was told.
type tenant struct {
	probe  *measure.Probe
	epochs sync.Map // by name of the member
}

// Reconcile implements mcreconcile.Reconciler.
func (t *tenant) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	epoch := mcreconcile.Epoch(ctx)
	if before, known := t.epochs.Swap(req.ClusterName, epoch); !known || before != epoch {
		t.probe.Member(fmt.Sprintf("%s@%d", req.ClusterName, epoch))
	}
	if takes := t.probe.Takes(); takes > 0 {
		timer := time.NewTimer(takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return reconcile.Result{}, context.Cause(ctx)
		}
	}
	return t.probe.Object(req.NamespacedName), nil
}

// names is ours with members in name alone, which replicas share, and nothing that works on them.
func names(_ context.Context, cfg *rest.Config, spec measure.Spec, probe *measure.Probe) (measure.Running, error) {
	members := make(static.Provider, spec.Members)
	for i := range members {
		members[i] = fleet.Member{Name: fleet.ClusterName(memberName(i)), Cluster: &nowhere{}, Identity: memberName(i)}
	}
	_, running, err := newSharded(probe.Counted(cfg), members, spec)
	return running, err
}

// nowhere is a cluster that nobody asks for anything.
type nowhere struct{ cluster.Cluster }

// newSharded makes a manager that learns of members once as many replicas know each other as begin together: what a replica uses that has
// had more members before would be measured otherwise.
func newSharded(cfg *rest.Config, provider fleet.Provider, spec measure.Spec) (mcmanager.Manager, measure.Running, error) {
	replica, err := sharding.New(sharding.Options{ID: "bench", Namespace: spec.Leases, Name: spec.Replica, Revision: "one"})
	if err != nil {
		return nil, measure.Running{}, err
	}
	known := func() (n int) {
		for _, one := range replica.Status().Replicas {
			if one.Live && !one.Draining {
				n++
			}
		}
		return n
	}
	late := fleet.NewProvider("test", func(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
		if !measure.Until(ctx, func() bool { return known() >= spec.Replicas }) {
			return nil
		}
		return provider.Run(ctx, local, members)
	})
	mgr, err := mcmanager.New(cfg, late, managerOptions(), func(o *fleet.Options) { o.Ownership = replica })
	if err != nil {
		return nil, measure.Running{}, err
	}
	engaged := func() (n int) {
		for _, status := range mgr.GetFleet().List(labels.Everything()) {
			if status.Engaged() {
				n++
			}
		}
		return n
	}
	return mgr, measure.Running{Run: mgr.Start, Engaged: engaged, Replicas: known}, nil
}
