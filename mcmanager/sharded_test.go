package mcmanager_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/static"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

// replica is a manager that shares members with others of the test.
type replica struct {
	mcmanager.Manager
	name string
	stop func()

	mu         sync.Mutex // guards what follows
	reconciled map[mcreconcile.Request]bool
}

func (r *replica) Reconcile(_ context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reconciled[req] = true
	return reconcile.Result{}, nil
}

func (r *replica) has(req mcreconcile.Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reconciled[req]
}

// startReplica starts a manager that reconciles ConfigMaps of all members, and of the local cluster.
func startReplica(t *testing.T, clusters *mctest.Fleet, name string) *replica {
	t.Helper()
	members := make(static.Provider, 0, 12)
	for i := range 12 {
		members = append(members, fleet.Member{Name: fleet.ClusterName(fmt.Sprintf("member-%d", i)), Config: clusters.Members[i%len(clusters.Members)].Config()})
	}
	r := &replica{name: name, reconciled: map[mcreconcile.Request]bool{}}
	mgr, err := mcmanager.New(clusters.Local.Config(), members, mcmanager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
	}, mcmanager.Sharded(sharding.Options{
		ID: "shared", Namespace: metav1.NamespaceDefault, Name: name, LeaseDuration: 6 * time.Second, Settle: time.Second,
	}))
	if err != nil {
		t.Fatal(err)
	}
	r.Manager = mgr
	if err := mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}, mcbuilder.InMembers(nil), mcbuilder.InLocalCluster).
		WithOptions(mcbuilder.Options{SkipNameValidation: new(true)}).Complete(r); err != nil {
		t.Fatal(err)
	}
	if err := mcbuilder.ControllerManagedBy(mgr).Named("each").For(&corev1.Secret{}, mcbuilder.ForEachMember(nil)).
		WithOptions(mcbuilder.Options{SkipNameValidation: new(true)}).Complete(r); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("replica %s: %v", name, err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// owned returns which members a replica works on, once each member has exactly one that does.
func owned(t *testing.T, replicas ...*replica) map[string][]fleet.ClusterName {
	t.Helper()
	var all map[string][]fleet.ClusterName
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		all = map[string][]fleet.ClusterName{}
		for _, r := range replicas {
			for _, status := range r.GetFleet().List(nil) {
				if status.State == fleet.Ready {
					all[r.name] = append(all[r.name], status.Name)
				}
			}
		}
		names := slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(all))...)))
		if len(slices.Compact(slices.Clone(names))) < len(names) {
			return false, fmt.Errorf("members have two owners: %v", all)
		}
		return len(names) == 12 && len(all) == len(replicas), nil
	})
	if err != nil {
		t.Fatalf("not every member has an owner, or a replica has none: %v; %v", err, all)
	}
	return all
}

// settled returns which members each replica works on, once nothing moves any more.
func settled(t *testing.T, replicas ...*replica) (shares map[string][]fleet.ClusterName) {
	t.Helper()
	most := (12 + len(replicas) - 1) / len(replicas)
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		shares = owned(t, replicas...)
		for _, names := range shares {
			if len(names) > most {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatalf("the members are not balanced: %v", shares)
	}
	return shares
}

// write changes the ConfigMap of a cluster, and waits until exactly one of the replicas has reconciled it.
func write(t *testing.T, cp *mctest.ControlPlane, in mcreconcile.ClusterName, name string, replicas ...*replica) *replica {
	t.Helper()
	if err := cp.Client().Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}); err != nil {
		t.Fatal(err)
	}
	req := mcreconcile.Request{ClusterName: in}
	req.Namespace, req.Name = metav1.NamespaceDefault, name
	var by []*replica
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		by = slices.DeleteFunc(slices.Clone(replicas), func(r *replica) bool { return !r.has(req) })
		return len(by) > 0, nil
	})
	if err != nil || len(by) != 1 {
		t.Fatalf("%v is reconciled by %d replicas: %v", req, len(by), err)
	}
	return by[0]
}

func TestReplicasShareMembersAndTheLocalCluster(t *testing.T) {
	clusters := pool.Start(t, mctest.Options{Clusters: 2})
	one := startReplica(t, clusters, "one")
	owned(t, one)
	two := startReplica(t, clusters, "two")
	shares := owned(t, one, two)
	t.Logf("shares: %v", shares)
	local := write(t, clusters.Local, mcreconcile.LocalCluster, "first", one, two)

	theirs := shares["two"][0]
	if _, err := one.GetCluster(t.Context(), theirs); !errors.Is(err, fleet.ErrNotOwned) || !strings.Contains(err.Error(), "two") {
		t.Errorf("asking for a member of the other replica: %v, want ErrNotOwned and its name", err)
	}
	guest, err := one.GetFleet().Guest(t.Context(), theirs)
	if err != nil {
		t.Fatal(err)
	}
	if err := guest.Client().Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceDefault}, &corev1.Namespace{}); err != nil {
		t.Errorf("reading as a guest: %v", err)
	}

	other := map[*replica]*replica{one: two, two: one}[local]
	local.stop()
	owned(t, other)
	if write(t, clusters.Local, mcreconcile.LocalCluster, "second", one, two) != other {
		t.Error("the local cluster is reconciled by a replica that has ended")
	}
	first := mcreconcile.Request{}
	first.Namespace, first.Name = metav1.NamespaceDefault, "first"
	if !other.has(first) {
		t.Error("an object of before is not reconciled by the replica that took the local cluster over")
	}
}

// TestLocalObjectsReachTheOwnerOfEachMemberOnce, and the one that gains a member is told of all that there are.
func TestLocalObjectsReachTheOwnerOfEachMemberOnce(t *testing.T) {
	clusters := pool.Start(t, mctest.Options{Clusters: 2})
	one, two := startReplica(t, clusters, "one"), startReplica(t, clusters, "two")
	shares := settled(t, one, two)
	if err := clusters.Local.Client().Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "each"}}); err != nil {
		t.Fatal(err)
	}
	each := func(name fleet.ClusterName) mcreconcile.Request {
		req := mcreconcile.Request{ClusterName: name}
		req.Namespace, req.Name = metav1.NamespaceDefault, "each"
		return req
	}
	reached := func(r *replica, names []fleet.ClusterName) {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			return !slices.ContainsFunc(names, func(name fleet.ClusterName) bool { return !r.has(each(name)) }), nil
		})
		if err != nil {
			t.Fatalf("replica %s was not told for each of %v", r.name, names)
		}
	}
	reached(one, shares["one"])
	reached(two, shares["two"])
	for r, others := range map[*replica][]fleet.ClusterName{one: shares["two"], two: shares["one"]} {
		for _, name := range others {
			if r.has(each(name)) {
				t.Errorf("replica %s was told for %s, which is the other's", r.name, name)
			}
		}
	}
	two.stop()
	reached(one, slices.Concat(shares["one"], shares["two"]))
}

func TestOptionsOfShardingThatCannotBeUsedAreAnErrorOfNew(t *testing.T) {
	clusters := pool.Start(t, mctest.Options{})
	_, err := mcmanager.New(clusters.Local.Config(), static.Provider{}, mcmanager.Options{}, mcmanager.Sharded(sharding.Options{ID: "No Label", Namespace: metav1.NamespaceDefault}))
	if err == nil || !strings.Contains(err.Error(), "No Label") {
		t.Errorf("the error is %v, want one that names the ID", err)
	}
}

// TestAControllerThatWantsToBeElectedCannotBeShared, unless it is one of the local cluster alone.
func TestAControllerThatWantsToBeElectedCannotBeShared(t *testing.T) {
	clusters := pool.Start(t, mctest.Options{})
	mgr, err := mcmanager.New(clusters.Local.Config(), static.Provider{}, mcmanager.Options{Metrics: metricsserver.Options{BindAddress: "0"}},
		mcmanager.Sharded(sharding.Options{ID: "elected", Namespace: metav1.NamespaceDefault, Name: "one"}))
	if err != nil {
		t.Fatal(err)
	}
	elected := mcbuilder.Options{NeedLeaderElection: new(true), SkipNameValidation: new(true)}
	nothing := mcreconcile.Func(func(context.Context, mcreconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	err = mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).WithOptions(elected).Complete(nothing)
	if err == nil || !strings.Contains(err.Error(), "NeedLeaderElection") {
		t.Errorf("a controller of members: %v, want an error that names the option", err)
	}
	c, err := mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}, mcbuilder.InLocalCluster).WithOptions(mcbuilder.Options{SkipNameValidation: new(true)}).Build(nothing)
	if err != nil {
		t.Fatal(err)
	}
	if e, ok := c.(interface{ NeedLeaderElection() bool }); !ok || !e.NeedLeaderElection() {
		t.Error("a controller of the local cluster alone does not run on the leader alone")
	}
}
