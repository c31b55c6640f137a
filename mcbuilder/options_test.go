package mcbuilder_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestAnEventFilterAppliesToAllWatchesAndToNoRawSource, and the options of the queue are those that were given.
func TestAnEventFilterAppliesToAllWatchesAndToNoRawSource(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	member := f.Members[0]
	ns := everywhere(t, f, "filtered")
	passes := &corev1.ConfigMap{}
	passes.Namespace, passes.Name = ns, "passes"
	create(t, member, passes)
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = ns, "secret-of-the-member"
	create(t, member, secret)
	local := &corev1.Secret{}
	local.Namespace, local.Name = ns, "secret-for-each-member"
	create(t, f.Local, local)

	mgr := newManager(t, f, members(f), logr.Discard())
	s := &seen{namespace: ns}
	ofSecrets := mchandler.TypedLift(&handler.TypedEnqueueRequestForObject[*corev1.Secret]{})
	var turns atomic.Int64
	if err := mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("filter").
		WithEventFilter(predicate.NewPredicateFuncs(func(obj client.Object) bool { return !strings.HasPrefix(obj.GetName(), "filtered") })).
		WithQueue(mcqueue.Options[mcreconcile.Request]{Weight: func(mcreconcile.ClusterName) int {
			turns.Add(1)
			return 1
		}}).
		WatchesRawSource(mcsource.Fleet(mgr.GetFleet(), mcsource.Kind(&corev1.Secret{}, ofSecrets), nil)).
		WatchesRawSource(mcsource.Fleet(mgr.GetFleet(), mcsource.EachCluster(mgr, &corev1.Secret{}, ofSecrets), nil)).
		Complete(s); err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	s.become(t, "member-1/passes", "member-1/secret-of-the-member", "member-1/secret-for-each-member")
	if turns.Load() == 0 {
		t.Error("the queue does not have the options that were given")
	}
}
