package mcbuilder_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestOwnsLeavesAloneWhatNamesAnOwnerWhereForDoesNotWatch, which anybody may have written there, and in whichever way.
func TestOwnsLeavesAloneWhatNamesAnOwnerWhereForDoesNotWatch(t *testing.T) {
	two := labels.SelectorFromSet(labels.Set{"name": "member-2"})
	cases := map[string]struct {
		in    []mcbuilder.WatchOption // of For
		alone bool                    // there is no provider
		want  []string
	}{
		"Members":            {want: []string{"member-1/owner", "member-2/owner"}},
		"SelectedMembers":    {in: []mcbuilder.WatchOption{mcbuilder.InMembers(two)}, want: []string{"member-2/owner"}},
		"LocalCluster":       {in: []mcbuilder.WatchOption{mcbuilder.InLocalCluster}, want: []string{"/owner"}},
		"Both":               {in: []mcbuilder.WatchOption{mcbuilder.InLocalCluster, mcbuilder.InMembers(two)}, want: []string{"/owner", "member-2/owner"}},
		"ForSelectedMembers": {in: []mcbuilder.WatchOption{mcbuilder.ForEachMember(two)}, want: []string{"/owner", "member-2/owner"}},
		"NoProvider":         {alone: true, want: []string{"/owner"}},
	}
	f := pool.Start(t, mctest.Options{Clusters: 2})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			provider := members(f)
			if tc.alone {
				provider = nil
			}
			t.Run("AcrossClusters", func(t *testing.T) { leadTo(t, f, provider, true, tc.in, tc.want) })
			t.Run("InTheSameCluster", func(t *testing.T) { leadTo(t, f, provider, false, tc.in, tc.want) })
		})
	}
}

// leadTo checks which owners are enqueued where each cluster's has a dependent: all of these in the local cluster, or each in that of its owner.
func leadTo(t *testing.T, f *mctest.Fleet, provider fleet.Provider, across bool, in []mcbuilder.WatchOption, want []string) {
	t.Helper()
	ns := everywhere(t, f, "owner")
	mgr := newManager(t, f, provider, logr.Discard())
	s := &seen{namespace: ns}
	var told atomic.Int32
	note := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetNamespace() == ns && told.Add(1) > 0 })
	owns := []mcbuilder.WatchOption{mcbuilder.WithPredicates(note), mcbuilder.InLocalCluster, mcbuilder.InMembers(nil)}
	if across {
		owns = append(owns, mcbuilder.AcrossClusters(mchandler.OfFleet("mine")))
	}
	if err := mcbuilder.ControllerManagedBy(mgr).Named("leads").
		For(&corev1.ConfigMap{}, append(slices.Clone(in), mcbuilder.WithPredicates(nothing))...).
		Owns(&corev1.Secret{}, owns...).Complete(s); err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	clusters := map[mcreconcile.ClusterName]*mctest.ControlPlane{mcreconcile.LocalCluster: f.Local}
	for _, cp := range f.Members {
		if name := mcreconcile.ClusterName(cp.Name); provider != nil {
			clusters[name] = cp
			eventually(t, cp.Name+" is known", func() bool { status, _ := mgr.GetFleet().Status(name); return status.State == fleet.Ready })
		}
	}
	for name, cp := range clusters {
		at, where := name, cp
		if across {
			at, where = mcreconcile.LocalCluster, f.Local
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "of-owner-in-" + strings.ToLower(cp.Name)}}
		if err := mcowner.SetControllerReference(ownerIn(t, "mine", name, cp, ns), secret, mcowner.ByName(at)); err != nil {
			t.Fatal(err)
		}
		create(t, where, secret)
	}
	eventually(t, "the controller was told of all dependents", func() bool { return int(told.Load()) == len(clusters) })
	s.become(t, want...)
}
