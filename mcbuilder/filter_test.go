package mcbuilder_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestPredicatesKnowTheClusterOfAnEvent: each cluster has its own, an event must pass all of these, and is shown to them before others drop it.
func TestPredicatesKnowTheClusterOfAnEvent(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 2})
	ns := everywhere(t, f, "in-cluster")
	for _, member := range f.Members {
		for _, name := range []string{"of-member-1", "of-member-2", "of-none"} {
			cm := &corev1.ConfigMap{}
			cm.Namespace, cm.Name = ns, name
			create(t, member, cm)
		}
	}
	mgr := newManager(t, f, members(f), logr.Discard())
	s := &seen{namespace: ns}
	var clusters sync.Map
	var others atomic.Int32
	ofCluster := func(name mcreconcile.ClusterName, cl cluster.Cluster) []predicate.Predicate {
		clusters.Store(name, cl)
		return []predicate.Predicate{
			predicate.NewPredicateFuncs(func(obj client.Object) bool {
				if obj.GetNamespace() != ns {
					others.Add(1)
				}
				return true
			}),
			predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() == "of-"+string(name) }),
		}
	}
	inNamespace := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetNamespace() == ns })
	err := mcbuilder.ControllerManagedBy(mgr).WithEventFilter(inNamespace).
		For(&corev1.ConfigMap{}, mcbuilder.WithPredicatesIn(ofCluster)).Named("in-cluster").Complete(s)
	if err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	s.become(t, "member-1/of-member-1", "member-2/of-member-2")
	if others.Load() == 0 {
		t.Error("an event that the filter of all watches drops was shown to none of them")
	}
	for _, member := range f.Members {
		cl, ok := clusters.Load(mcreconcile.ClusterName(member.Name))
		if !ok || cl.(cluster.Cluster).GetConfig().Host != member.Config().Host { //nolint:forcetypeassert // what is stored is one
			t.Errorf("predicates of %s were made with another cluster", member.Name)
		}
	}
}
