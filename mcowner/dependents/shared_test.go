package dependents_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

// runShared runs a replica, which shares the members with the others of the world.
func (w *world) runShared(name string, r interface {
	SetupWithManager(mgr mcmanager.Manager, more ...func(*mcbuilder.Builder)) error
},
) *process {
	w.t.Helper()
	return w.runSharedAs(w.Local.Config(), name, r)
}

// runSharedAs is runShared with a config of the local cluster.
func (w *world) runSharedAs(local *rest.Config, name string, r interface {
	SetupWithManager(mgr mcmanager.Manager, more ...func(*mcbuilder.Builder)) error
},
) *process {
	w.t.Helper()
	replica, err := sharding.New(sharding.Options{
		ID: "dependents", Namespace: w.ns, Name: name, LeaseDuration: 10 * time.Second, Settle: time.Second,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	setUp := func(mgr mcmanager.Manager) error { return r.SetupWithManager(mgr) }
	p := w.runAs(local, setUp, func(o *fleet.Options) { o.Ownership = replica })
	p.replica = replica
	return p
}

// owns reports whether a replica works on a cluster.
func (p *process) owns(name mcreconcile.ClusterName) bool {
	_, err := p.GetFleet().Engagement(name)
	return err == nil
}

// share returns the replica that works on the local cluster, and the other one, once they share all clusters and nothing is to move.
func (w *world) share(a, b *process) (home, other *process) {
	w.t.Helper()
	eventually(w.t, "the members are shared", func() bool { return w.areShared(a, b) && w.areShared(b, a) })
	if a.owns(mcreconcile.LocalCluster) {
		return a, b
	}
	return b, a
}

// areShared reports whether two replicas work on what they own by the table that the first one knows, each on as much as it is to have.
// The planner moves a part at a time, so it may have more to do although nothing moves: it leaves alone what is within a tenth of a fair
// share of the buckets, and of the members.
func (w *world) areShared(a, b *process) bool {
	status := a.replica.Status()
	members, buckets := 0, 0
	for _, p := range []*process{a, b} {
		session := p.replica.Status().Session
		i := slices.IndexFunc(status.Replicas, func(r sharding.ReplicaStatus) bool { return r.Session == session && r.Live })
		if i < 0 {
			return false
		}
		has := status.Replicas[i]
		if has.Members != len(w.of(p)) || has.Members > (len(w.Members)+1)/2 || float64(has.Buckets) > 1.12*float64(status.Buckets)/2 {
			return false
		}
		members, buckets = members+has.Members, buckets+has.Buckets
	}
	return len(status.Moves) == 0 && members == len(w.Members) && buckets == status.Buckets &&
		a.owns(mcreconcile.LocalCluster) != b.owns(mcreconcile.LocalCluster)
}

// pair runs two replicas, and returns them once they share the clusters: the one that works on the local cluster, and the other one.
func (w *world) pair(of func() *dependents.Reconciler[*corev1.ConfigMap]) (home, other *process) {
	w.t.Helper()
	return w.share(w.runShared("one", of()), w.runShared("two", of()))
}

// ofMoreKinds is spread where all kinds are known from what is desired alone.
func (w *world) ofMoreKinds() *dependents.Reconciler[*corev1.ConfigMap] {
	r := w.spread()
	r.Kinds, r.MoreKinds = nil, func(schema.GroupVersionKind) error { return nil }
	return r
}

// spreadOut creates an owner with a dependent in each member, and returns these.
func (w *world) spreadOut(in *mctest.ControlPlane, owner string) map[*mctest.ControlPlane]*corev1.ConfigMap {
	w.t.Helper()
	w.create(in, w.owner(owner, w.everyone()...))
	copies := map[*mctest.ControlPlane]*corev1.ConfigMap{}
	for _, cp := range w.Members {
		copies[cp] = w.isCopied(cp, owner)
	}
	return copies
}

// removeAll deletes an owner in the local cluster, and waits until it is gone, with its dependents.
func (w *world) removeAll(owner string) {
	w.t.Helper()
	w.remove(w.Local, owner)
	w.isGone(w.Local, owner)
	for _, cp := range w.Members {
		w.isGone(cp, copyOf(owner))
	}
}

// hasAll waits until a replica works on all clusters.
func (w *world) hasAll(p *process) {
	w.t.Helper()
	eventually(w.t, "the replica has all", func() bool { return p.owns(mcreconcile.LocalCluster) && len(w.of(p)) == len(w.Members) })
}

// of returns the members that a replica works on.
func (w *world) of(p *process) []*mctest.ControlPlane {
	return slices.DeleteFunc(slices.Clone(w.Members), func(cp *mctest.ControlPlane) bool { return !p.owns(mcreconcile.ClusterName(cp.Name)) })
}

func (w *world) everyone() (names []string) {
	for _, cp := range w.Members {
		names = append(names, cp.Name)
	}
	return names
}

func (w *world) says(cp *mctest.ControlPlane, name, value string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%s in %s says %q", name, cp.Name, value), func() bool {
		cm := w.get(cp, name)
		return cm != nil && cm.Data["value"] == value
	})
}

// TestATargetSaysWhetherItIsTheOwnersCluster, by whichever name, and whichever replica works on it.
func TestATargetSaysWhetherItIsTheOwnersCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.pair(func() *dependents.Reconciler[*corev1.ConfigMap] {
		r := w.spread()
		r.Desired = func(_ context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
			return []client.Object{&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: copyOf(owner.Name)},
				Data:       map[string]string{"value": strconv.FormatBool(target.Home)},
			}}, nil
		}
		return r
	})
	for _, p := range []*process{one, two} {
		hub := p.member(w.Local)
		hub.Name = "hub"
		if err := p.members.Set(hub); err != nil {
			t.Fatal(err)
		}
	}
	w.create(w.Local, w.owner("a", append(w.everyone(), "hub")...))
	w.says(w.Local, copyOf("a"), "true")
	for _, cp := range w.Members {
		w.says(cp, copyOf("a"), "false")
	}
}

// TestEachReplicaSweepsForTheKindsOfAllOwnersInTheLocalCluster, also the one that works on none of them.
func TestEachReplicaSweepsForTheKindsOfAllOwnersInTheLocalCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.pair(func() *dependents.Reconciler[*corev1.ConfigMap] {
		r := w.ofMoreKinds()
		r.Sweep = orphans.Sweep{Interval: 50 * time.Millisecond, Listing: 50 * time.Millisecond, QPS: 1000}
		return r
	})
	before := w.spreadOut(w.Local, "a")
	for _, cp := range w.Members {
		w.owned(cp, "orphan", w.goneOwner(func(r *mcowner.Reference) { r.Manager = controller }))
	}
	for _, cp := range w.Members {
		w.isGone(cp, "orphan")
		w.unharmed(cp, before[cp])
	}
}

// TestOrphansOfAMemberElsewhereThatIsAnotherClusterNowAreRemoved, although its server has the address of the one before.
func TestOrphansOfAMemberElsewhereThatIsAnotherClusterNowAreRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	home, other := w.pair(func() *dependents.Reconciler[*corev1.ConfigMap] {
		r := w.spread()
		r.OwnersIn = mcowner.Clusters{Members: labels.Everything()}
		r.StateNamespace = w.ns
		r.Sweep = orphans.Sweep{Interval: 50 * time.Millisecond, Listing: 50 * time.Millisecond, QPS: 1000}
		return r
	})
	swept, elsewhere := w.of(home)[0], home.member(w.of(other)[0])
	for _, identity := range []string{"blue", "green"} {
		elsewhere.Identity = identity
		if err := home.members.Set(elsewhere); err != nil {
			t.Fatal(err)
		}
		w.owned(swept, "orphan", w.goneOwner(func(r *mcowner.Reference) {
			r.Manager, r.Cluster, r.ClusterUID = controller, elsewhere.Name, types.UID(identity)
		}))
		w.isGone(swept, "orphan")
	}
}

// TestOwnersAreServedInMembersOfOtherReplicas from the replica that works on the owner's cluster.
func TestOwnersAreServedInMembersOfOtherReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	home, other := w.pair(w.spread)
	w.spreadOut(w.Local, "a")
	for _, cp := range w.Members {
		w.change(cp, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Data["value"] = "drifted" })
		w.says(cp, copyOf("a"), "1")
		w.remove(cp, copyOf("a"))
		w.isCopied(cp, "a")
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	for _, cp := range w.Members {
		w.says(cp, copyOf("a"), "2")
	}
	gone := w.of(other)[0]
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) {
		kept := slices.DeleteFunc(w.everyone(), func(name string) bool { return name == gone.Name })
		cm.Annotations["to"] = strings.Join(kept, ",")
	})
	w.isGone(gone, copyOf("a"))
	eventually(t, "the replica is at rest", home.isAtRest)
	w.removeAll("a")
}

// TestAReplicaThatStopsLeavesOwnersToAnother: nothing is deleted, nothing is written that is as it should be, and owners go on.
func TestAReplicaThatStopsLeavesOwnersToAnother(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*process){"Stopped": (*process).stop, "Killed": (*process).kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			home, other := w.pair(w.spread)
			before := w.spreadOut(w.Local, "a")
			eventually(t, "the replica is at rest", home.isAtRest)
			end(home)
			w.hasAll(other)
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["seen"] = "" })
			w.create(w.Local, w.owner("b", w.everyone()...))
			for _, cp := range w.Members {
				w.isCopied(cp, "b")
				now := w.mustGet(cp, copyOf("a"))
				if now.UID != before[cp].UID || now.ResourceVersion != before[cp].ResourceVersion {
					t.Errorf("the copy in %s was written anew", cp.Name)
				}
			}
			w.removeAll("a")
		})
	}
}

// TestVisitsCostNothingInTheSteadyState: once all is as it should be, a replica asks members of others for nothing.
func TestVisitsCostNothingInTheSteadyState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	home, other := w.pair(w.spread)
	w.spreadOut(w.Local, "a")
	eventually(t, "the replica is at rest", home.isAtRest)
	var asked atomic.Int32
	hosts := map[string]bool{}
	for _, cp := range w.of(other) {
		hosts[hostOf(cp)] = true
	}
	home.power.listen(func(req *http.Request) {
		if hosts[req.URL.Host] && strings.Contains(req.URL.Path, "/configmaps") {
			asked.Add(1)
		}
	})
	settle(t, &asked)
	target := w.of(other)[0]
	w.change(target, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Data["value"] = "drifted" })
	w.says(target, copyOf("a"), "1")
	eventually(t, "the replica is at rest", home.isAtRest)
	if n := asked.Load(); n == 0 || n > 7 {
		t.Errorf("drift took %d requests, want a list, the correction, and a list after that", n)
	}
}

// settle waits until nothing is asked for any more, which is once what the first visits have written was heard of, and counts anew.
func settle(t *testing.T, asked *atomic.Int32) {
	t.Helper()
	eventually(t, "nothing is asked for any more", func() bool {
		before := asked.Load()
		<-time.After(3 * time.Second)
		return asked.Load() == before
	})
	asked.Store(0)
}

// TestNewCredentialsOfAVisitedMemberCostNoVisits, though they do not work at first: its watches go on from where they were.
func TestNewCredentialsOfAVisitedMemberCostNoVisits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	home, other := w.pair(w.spread)
	w.spreadOut(w.Local, "a")
	target := w.of(other)[0]
	renewed := home.member(target)
	may := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
	renewed.Config, renewed.Revision = home.power.feed(target.AddUser(t, "renewed", may)), "2"
	var lists, watches, attempts atomic.Int32
	eventually(t, "the replica is at rest", home.isAtRest)
	home.power.listen(func(req *http.Request) {
		switch {
		case req.URL.Host != hostOf(target):
		case req.URL.Path == "/readyz":
			attempts.Add(1)
		case !strings.HasSuffix(req.URL.Path, "/configmaps"):
		case req.URL.Query().Has("watch"):
			watches.Add(1)
		default:
			lists.Add(1)
		}
	})
	settle(t, &lists)
	watches.Store(0)
	home.power.refused.Store(&[3]string{http.MethodGet, hostOf(target), "/readyz"})
	if err := home.members.Set(renewed); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new credentials are tried again", func() bool { return attempts.Load() > 1 })
	home.power.refused.Store(nil)
	eventually(t, "dependents are watched with the new credentials", func() bool { return watches.Load() > 0 })
	eventually(t, "the replica is at rest", home.isAtRest)
	if n := lists.Load(); n != 0 {
		t.Errorf("dependents were listed %d times", n)
	}
	w.remove(target, copyOf("a"))
	w.isCopied(target, "a")
}

// TestAnOwnerWaitsForAMemberOfAnotherReplica that cannot be reached, and keeps its finalizer until nothing is left there.
func TestAnOwnerWaitsForAMemberOfAnotherReplica(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	_, other := w.pair(w.spread)
	w.spreadOut(w.Local, "a")
	away := w.of(other)[0]
	away.Freeze(t)
	w.remove(w.Local, "a")
	for _, cp := range w.Members {
		if cp != away {
			w.isGone(cp, copyOf("a"))
		}
	}
	if owner := w.mustGet(w.Local, "a"); len(owner.Finalizers) == 0 {
		t.Error("the owner has no finalizer any more")
	}
	away.Thaw(t)
	w.isGone(w.Local, "a")
	if w.get(away, copyOf("a")) != nil {
		t.Error("the owner is gone, and its dependent is not")
	}
}

// TestDependentsOfLostOwnersAreCollectedByWhoWorksOnTheirMember, also where the owner's cluster is another replica's; and those of
// owners that are there stay.
func TestDependentsOfLostOwnersAreCollectedByWhoWorksOnTheirMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	spread := func() *dependents.Reconciler[*corev1.ConfigMap] {
		r := w.spread()
		r.OwnersIn = mcowner.Clusters{Members: everywhere}
		r.Timeout = time.Second // a look at what cannot be asked for ends with that
		r.Sweep = orphans.Sweep{Interval: 100 * time.Millisecond, Listing: 100 * time.Millisecond}
		return r
	}
	home, other := w.pair(spread)
	from, to := w.of(home)[0], w.of(other)[0]
	w.spreadOut(from, "lost")
	w.spreadOut(from, "kept")
	// The owner goes without the finalizer, so that nobody is told where it had dependents, and what is there is looked at anew.
	home.stop()
	other.stop()
	w.change(from, "lost", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	w.remove(from, "lost")
	three, four := w.share(w.runShared("three", spread()), w.runShared("four", spread()))
	for _, cp := range w.Members {
		w.isGone(cp, copyOf("lost"))
	}
	from.Freeze(t) // unknown is not gone
	lookedAt(t, three, four)
	if w.get(to, copyOf("kept")) == nil {
		t.Error("a dependent was collected whose owner cannot be asked for")
	}
	from.Thaw(t)
	lookedAt(t, three, four)
	for _, cp := range w.Members {
		w.mustGet(cp, copyOf("kept"))
	}
}

// TestAnOwnerInAMemberOfAnotherReplicaIsAskedForOnceForAllMembers between two lists of these.
func TestAnOwnerInAMemberOfAnotherReplicaIsAskedForOnceForAllMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	const listing = 2 * time.Second
	home, other := w.pair(func() *dependents.Reconciler[*corev1.ConfigMap] {
		r := w.spread()
		r.OwnersIn = mcowner.Clusters{Members: everywhere}
		r.Sweep = orphans.Sweep{Interval: 100 * time.Millisecond, Listing: listing}
		return r
	})
	from, theirs := w.of(home)[0], w.of(other)
	w.spreadOut(from, "a")
	eventually(t, "the replica is at rest", home.isAtRest)
	var lists, gets atomic.Int32
	began := time.Now()
	other.power.listen(func(req *http.Request) {
		switch {
		case req.URL.Host == hostOf(from) && strings.HasSuffix(req.URL.Path, "/configmaps/a"):
			gets.Add(1)
		case strings.HasSuffix(req.URL.Path, "/configmaps") && !req.URL.Query().Has("watch"):
			lists.Add(1)
		}
	})
	eventually(t, "its members were listed some times", func() bool { return lists.Load() >= int32(6*len(theirs)) })
	if n, most := int(gets.Load()), int(time.Since(began)/listing)+1; n == 0 || n > most {
		t.Errorf("with %d lists in %d members, the owner was asked for %d times, want %d at most", lists.Load(), len(theirs), n, most)
	}
	for _, cp := range theirs {
		w.mustGet(cp, copyOf("a"))
	}
}

// listen has a function called before each request.
func (p *power) listen(to func(*http.Request)) {
	tap := func(req *http.Request) func() {
		to(req)
		return func() {}
	}
	p.tap.Store(&tap)
}

// lookedAt waits until each replica has listed dependents some times.
func lookedAt(t *testing.T, replicas ...*process) {
	t.Helper()
	for _, p := range replicas {
		var lists atomic.Int32
		p.power.listen(func(req *http.Request) {
			if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/configmaps") && !req.URL.Query().Has("watch") {
				lists.Add(1)
			}
		})
		eventually(t, "the replica has swept", func() bool { return lists.Load() >= 6 })
		p.power.tap.Store(nil)
	}
}

// TestAMemberOfAnotherReplicaLeavesOnceItsDependentsAreGone: the replica that works on it waits for the one that works on the owner.
func TestAMemberOfAnotherReplicaLeavesOnceItsDependentsAreGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	spread := func() *dependents.Reconciler[*corev1.ConfigMap] {
		r := w.spread()
		r.OnMemberLeaving = dependents.LeaveDeleted
		return r
	}
	home, other := w.pair(spread)
	w.spreadOut(w.Local, "a")
	leaves := w.of(other)[0]
	left := map[*process]<-chan struct{}{}
	for _, p := range []*process{home, other} {
		over, err := p.members.Leave(p.member(leaves))
		if err != nil {
			t.Fatal(err)
		}
		left[p] = over
	}
	<-left[other]
	if w.get(leaves, copyOf("a")) != nil {
		t.Error("the member has left with the dependent")
	}
	for _, cp := range w.Members {
		if cp != leaves {
			w.mustGet(cp, copyOf("a"))
		}
	}
	eventually(t, "the owner has it no more in its record", func() bool {
		return !strings.Contains(fmt.Sprint(w.mustGet(w.Local, "a").Annotations), fmt.Sprintf("%q", leaves.Name))
	})
}

// TestAMemberThatLeavesDoesNotWaitForWhatNobodyCanRemove: of owners in a cluster that is gone, or another one now, nobody can tell
// whether they are, and what is of no owner belongs to nobody. Replicas wait for owners elsewhere, and have nothing else to go by.
func TestAMemberThatLeavesDoesNotWaitForWhatNobodyCanRemove(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one := w.Members[0]
	r := w.spread()
	r.OnMemberLeaving = dependents.LeaveDeleted
	p := w.runShared("one", r)
	w.hasAll(p)
	<-p.members.Remove("member-2")
	of := func(change func(*mcowner.Reference)) mcowner.Reference {
		return w.goneOwner(func(r *mcowner.Reference) { r.Manager = controller }, change)
	}
	there := []*corev1.ConfigMap{
		w.owned(one, "of-a-cluster-that-is-gone", of(func(r *mcowner.Reference) { r.Cluster, r.ClusterUID = "member-2", w.kubeSystem(w.Members[1]) })),
		w.owned(one, "of-another-cluster", of(func(r *mcowner.Reference) { r.ClusterUID = "another" })),
		w.owned(one, "of-another-kind", of(func(r *mcowner.Reference) { r.Kind = "Secret" })),
	}
	w.create(w.Local, w.owner("a", one.Name))
	w.isCopied(one, "a")
	p.leave(one)
	if w.get(one, copyOf("a")) != nil {
		t.Error("the member has left with what was to be deleted")
	}
	for _, cm := range there {
		w.unharmed(one, cm)
	}
}

// TestOwnersMoveWithTheirCluster: what an owner had done by one replica is not done again by the next, whoever had its cluster before.
func TestOwnersMoveWithTheirCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	home, other := w.pair(w.spread)
	before := w.spreadOut(w.Local, "a")
	eventually(t, "the replica is at rest", home.isAtRest)
	home.kill()
	third := w.runShared("three", w.spread())
	w.share(other, third)
	other.stop()
	w.hasAll(third)
	for _, cp := range w.Members {
		w.change(cp, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Data["value"] = "drifted" })
		w.says(cp, copyOf("a"), "1")
		if now := w.mustGet(cp, copyOf("a")); now.UID != before[cp].UID {
			t.Errorf("the copy in %s was made anew", cp.Name)
		}
	}
	w.removeAll("a")
}

// TestWhatWasLeftInAGivenUpMemberIsFoundByItsReplica: that of the owner was to look for it once the member was back, and has ended since.
func TestWhatWasLeftInAGivenUpMemberIsFoundByItsReplica(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	home, other := w.pair(func() *dependents.Reconciler[*corev1.ConfigMap] {
		r := w.spread()
		r.Sweep = orphans.Sweep{Interval: 100 * time.Millisecond, Listing: 100 * time.Millisecond}
		return r
	})
	near, back := w.of(home)[0], w.of(other)[0]
	w.create(w.Local, w.owner("a", near.Name))
	there := w.isCopied(near, "a")
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations[keysDomain+"/given-up"] = "true" })
	left := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: there.Name, Labels: there.Labels, Annotations: map[string]string{}}}
	identity := func(cp *mctest.ControlPlane) string {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
		w.isThere(cp, ns)
		return string(ns.UID)
	}
	for key, reference := range there.Annotations { // which says where the dependent is
		left.Annotations[key] = strings.NewReplacer(near.Name, back.Name, identity(near), identity(back)).Replace(reference)
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations[dependents.GiveUpAnnotation] = back.Name })
	w.create(back, left)
	lookedAt(t, other)
	if w.get(back, copyOf("a")) == nil {
		t.Error("it is gone while its owner says that the member is given up")
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { delete(cm.Annotations, dependents.GiveUpAnnotation) })
	w.isGone(back, copyOf("a"))
	w.unharmed(near, there)
}

// TestAReplicaThatDiesInTheMiddleLosesNothing: what it had begun for owners is ended by the next, and nothing is deleted for it.
func TestAReplicaThatDiesInTheMiddleLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	home, other := w.pair(w.spread)
	var deleted atomic.Int32
	for _, p := range []*process{home, other} {
		p.power.listen(func(req *http.Request) {
			if req.Method == http.MethodDelete && strings.Contains(req.URL.Path, "/configmaps") {
				deleted.Add(1)
			}
		})
	}
	const owners = 10
	for n := range owners {
		w.create(w.Local, w.owner(fmt.Sprint("a", n), w.everyone()...))
	}
	w.isCopied(w.of(other)[0], "a0")
	for n := range owners { // while others are still being served
		w.change(w.Local, fmt.Sprint("a", n), func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	}
	home.kill()
	for n := range owners {
		for _, cp := range w.Members {
			w.says(cp, copyOf(fmt.Sprint("a", n)), "2")
		}
	}
	if n := deleted.Load(); n > 0 {
		t.Errorf("%d dependents were deleted", n)
	}
	for n := range owners {
		w.remove(w.Local, fmt.Sprint("a", n))
	}
	for n := range owners {
		w.isGone(w.Local, fmt.Sprint("a", n))
		for _, cp := range w.Members {
			if w.get(cp, copyOf(fmt.Sprint("a", n))) != nil {
				t.Errorf("%s has the copy of an owner that is gone", cp.Name)
			}
		}
	}
}

// TestAReplicaThatCannotProveItsOwnershipWritesNothingElsewhere, although it can reach the members.
func TestAReplicaThatCannotProveItsOwnershipWritesNothingElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	home, other := w.pair(w.spread)
	w.spreadOut(w.Local, "a")
	eventually(t, "the replica is at rest", home.isAtRest)
	target := w.of(other)[0]
	w.Local.Freeze(t)
	eventually(t, "both are suspended", func() bool {
		for _, p := range []*process{home, other} {
			for _, status := range p.GetFleet().List(nil) {
				if status.State != fleet.Suspended && status.State != fleet.NotOwned {
					return false
				}
			}
		}
		return true
	})
	before := home.power.writes.Load()
	w.change(target, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Data["value"] = "drifted" })
	<-time.After(time.Second) // nothing tells that nothing is about to happen
	if cm := w.mustGet(target, copyOf("a")); cm.Data["value"] != "drifted" {
		t.Errorf("it was written by a replica that cannot prove its ownership: %d writes", home.power.writes.Load()-before)
	}
	w.Local.Thaw(t)
	w.says(target, copyOf("a"), "1")
}
