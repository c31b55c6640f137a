package dependents_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

var leavePolicies = []dependents.LeavePolicy{dependents.LeaveAsIs, dependents.LeaveReleased, dependents.LeaveDeleted}

// forEachLeave runs a test for each policy of leaving, with two members.
func forEachLeave(t *testing.T, test func(w *world, policy dependents.LeavePolicy)) {
	t.Helper()
	t.Parallel()
	for _, policy := range leavePolicies {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			test(newWorld(t, 2), policy)
		})
	}
}

// becomes waits until a dependent is as a policy says that it becomes.
func (w *world) becomes(cp *mctest.ControlPlane, before *corev1.ConfigMap, policy dependents.LeavePolicy) {
	w.t.Helper()
	switch policy {
	case dependents.LeaveDeleted:
		w.isGone(cp, before.Name)
	case dependents.LeaveReleased:
		w.isReleased(cp, before)
	case dependents.LeaveAsIs:
		w.unharmed(cp, before)
		if now := w.get(cp, before.Name); now == nil || len(now.Annotations) != len(before.Annotations) {
			w.t.Errorf("%s has lost the reference: %v", before.Name, now)
		}
	}
}

// hasNothing waits until an owner has neither the finalizer nor annotations of the controller, but for the one that says that dependents
// were left.
func (w *world) hasNothing(cp *mctest.ControlPlane, name string) {
	w.t.Helper()
	eventually(w.t, name+" has nothing of the controller", func() bool {
		owner := w.mustGet(cp, name)
		for key := range owner.Annotations {
			if strings.HasPrefix(key, domain) && key != domain+"/given-up" {
				return false
			}
		}
		return !holds(owner)
	})
}

// TestAMemberThatLeaves has soon left, with its dependents as is declared, and gets them back when it is set again.
func TestAMemberThatLeaves(t *testing.T) {
	forEachLeave(t, func(w *world, policy dependents.LeavePolicy) {
		one, two := w.Members[0], w.Members[1]
		r := w.spread()
		r.OnMemberLeaving = policy
		p := w.run(r)
		before := map[string]*corev1.ConfigMap{}
		for _, name := range []string{"stays", "goes", "elsewhere"} {
			w.create(w.Local, w.owner(name, one.Name, two.Name))
			before[name] = w.isCopied(one, name)
			w.isCopied(two, name)
		}
		w.change(w.Local, "elsewhere", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = two.Name })
		w.isGone(one, copyOf("elsewhere"))
		p.leave(one)
		for _, name := range []string{"stays", "goes"} {
			w.becomes(one, before[name], policy)
			if in := placedIn(w.mustGet(w.Local, name)); strings.Contains(in, one.Name) {
				w.t.Errorf("%s waits for clusters %s", name, in)
			}
		}
		w.remove(w.Local, "goes")
		w.isGone(w.Local, "goes")
		if policy == dependents.LeaveReleased { // else the name is taken
			w.remove(one, copyOf("stays"))
		}
		if err := p.members.Set(p.member(one)); err != nil {
			w.t.Fatal(err)
		}
		w.change(w.Local, "stays", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
		eventually(w.t, "the member has its dependents back", func() bool {
			cm := w.get(one, copyOf("stays"))
			return cm != nil && cm.Data["value"] == "2"
		})
		if policy == dependents.LeaveAsIs {
			w.unharmed(one, before["stays"])
		}
	})
}

// TestAMemberThatLeavesWaitsForWhatGoesInTurn: for a dependent that is still going, and for the namespace that goes after it.
func TestAMemberThatLeavesWaitsForWhatGoesInTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, namespace := w.Members[0], w.ns+"-created"
	var results latest
	r := w.inNamespaces()
	r.OnMemberLeaving, r.Status = dependents.LeaveDeleted, results.note
	p := w.run(r)
	w.create(w.Local, w.ownerIn("a", namespace))
	dependent := &corev1.ConfigMap{ObjectMeta: metaOf(namespace, copyOf("a"))}
	eventually(t, "there is a dependent", func() bool { return w.isThere(one, dependent) })
	hold := func(finalizers string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": `+finalizers+`}}`))
		if err := one.Client().Patch(t.Context(), dependent, patch); err != nil {
			t.Fatal(err)
		}
	}
	hold(`["example.com/hold"]`)
	left, err := p.members.Leave(p.member(one))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the member waits", func() bool {
		err := results.of("a", one).Err
		return err != nil && strings.Contains(err.Error(), "the cluster leaves the fleet after that")
	})
	select {
	case <-left:
		t.Error("the member has left before all was deleted")
	default:
	}
	hold("null")
	<-left
	if w.isThere(one, dependent) || w.namespace(one, namespace) != nil {
		t.Error("the member has left with the dependent, or the namespace")
	}
	if in := placedIn(w.mustGet(w.Local, "a")); strings.Contains(in, "member-1") {
		t.Errorf("the owner waits for clusters %s", in)
	}
}

// TestNothingIsCreatedInAMemberThatLeaves, for owners old and new, until it stays after all.
func TestNothingIsCreatedInAMemberThatLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.spread()
	r.OnMemberLeaving = dependents.LeaveDeleted
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name, two.Name))
	w.isCopied(one, "a")
	<-p.members.Remove("member-1")
	// It leaves from the beginning, and cannot, since this owner's record cannot be stored.
	w.isCopied(two, "a")
	leaving := p.member(one)
	if err := p.members.Set(leaving); err != nil {
		t.Fatal(err)
	}
	w.isCopied(one, "a")
	stuck := p.refuse(http.MethodPatch, w.Local, "/configmaps/a")
	if _, err := p.members.Leave(leaving); err != nil {
		t.Fatal(err)
	}
	w.isGone(one, copyOf("a"))
	w.create(w.Local, w.owner("b", one.Name, two.Name))
	w.isCopied(two, "b")
	if status, _ := p.GetFleet().Status("member-1"); !status.Leaving {
		t.Fatalf("the member has left, or stays: %+v", status)
	}
	if in := placedIn(w.mustGet(w.Local, "b")); strings.Contains(in, one.Name) {
		t.Errorf("the new owner has noted %s", in)
	}
	if left := w.list(one); len(left) > 0 {
		t.Errorf("the member has %v", left)
	}
	stuck()
	if err := p.members.Set(leaving); err != nil {
		t.Fatal(err)
	}
	w.isCopied(one, "a")
	w.isCopied(one, "b")
}

// TestAMemberThatStayedAfterAllIsWaitedFor when it is removed later: it has not left.
func TestAMemberThatStayedAfterAllIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	p := w.run(w.spread())
	w.create(w.Local, w.owner("a", one.Name))
	before := w.isCopied(one, "a")
	eventually(t, "the program is at rest", p.isAtRest)
	stuck := p.refuse(http.MethodPatch, w.Local, "/configmaps/a")
	if _, err := p.members.Leave(p.member(one)); err != nil {
		t.Fatal(err)
	}
	if err := p.members.Set(p.member(one)); err != nil {
		t.Fatal(err)
	}
	stuck()
	eventually(t, "the program is at rest", p.isAtRest)
	<-p.members.Remove(fleet.ClusterName(one.Name))
	w.told(w.Local, "a", dependents.EventClusterNotReady, one.Name)
	if in := placedIn(w.mustGet(w.Local, "a")); !strings.Contains(in, one.Name) {
		t.Errorf("the owner waits for clusters %q", in)
	}
	w.unharmed(one, before)
}

// fromMembers is a reconciler whose owners are in members with a label, and have dependents in the local cluster and others.
func (w *world) fromMembers(policy dependents.LeavePolicy) *dependents.Reconciler[*corev1.ConfigMap] {
	r := w.spread()
	r.OwnersIn = mcowner.Clusters{Members: named("member-1")}
	r.OnOwnersLeaving = policy
	r.StateNamespace = w.ns
	return r
}

// runFromMember runs a reconciler whose owner, which is in the first member, has a dependent in the second.
func (w *world) runFromMember(r *dependents.Reconciler[*corev1.ConfigMap]) (p *process, before *corev1.ConfigMap) {
	w.t.Helper()
	p = w.run(r)
	w.create(w.Members[0], w.owner("a", w.Members[1].Name))
	return p, w.isCopied(w.Members[1], "a")
}

// relabel has a member have this label.
func (p *process) relabel(cp *mctest.ControlPlane, name string) {
	p.t.Helper()
	m := p.member(cp)
	m.Labels = map[string]string{"name": name}
	if err := p.members.Set(m); err != nil {
		p.t.Fatal(err)
	}
}

// TestOwnersWhoseClusterIsNoLongerOneOfOwners have nothing of the controller any more, and if it is again, they are as before.
func TestOwnersWhoseClusterIsNoLongerOneOfOwners(t *testing.T) {
	forEachLeave(t, func(w *world, policy dependents.LeavePolicy) {
		one, two := w.Members[0], w.Members[1]
		p, before := w.runFromMember(w.fromMembers(policy))
		p.relabel(one, "other")
		w.hasNothing(one, "a")
		w.becomes(two, before, policy)
		p.relabel(one, one.Name)
		eventually(w.t, "the owner is one again", func() bool { return holds(w.mustGet(one, "a")) })
		switch policy {
		case dependents.LeaveReleased:
			w.told(one, "a", dependents.EventConflict, "no reference")
			w.unharmed(two, before)
		case dependents.LeaveAsIs:
			w.change(one, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
			eventually(w.t, "the dependent follows", func() bool { return w.mustGet(two, copyOf("a")).Data["value"] == "2" })
			w.unharmed(two, before)
		case dependents.LeaveDeleted:
			w.isCopied(two, "a")
		}
	})
}

// TestAnOwnerThatIsChangedWhileItIsLetGo is let go: no event tells of it, as its cluster is none of owners any more.
func TestAnOwnerThatIsChangedWhileItIsLetGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.fromMembers(dependents.LeaveReleased)
	dependents.Hasten(r, time.Hour) // it is not let go because it is looked at from time to time
	p, before := w.runFromMember(r)
	eventually(t, "the program is at rest", p.isAtRest)
	var attempts atomic.Int32
	p.power.listen(func(req *http.Request) {
		if req.Method == http.MethodPatch && req.URL.Host == hostOf(two) && strings.HasSuffix(req.URL.Path, before.Name) {
			attempts.Add(1)
		}
	})
	stop := p.refuse(http.MethodPatch, two, before.Name)
	p.relabel(one, "other")
	eventually(t, "the dependent is about to be released", func() bool { return attempts.Load() > 0 })
	w.change(one, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "3" })
	stop()
	w.isReleased(two, before)
	w.hasNothing(one, "a")
}

// TestAnOwnerThatIsOrphanedWhileItIsLetGo: nobody sees how it is deleted, as its cluster is none of owners any more.
func TestAnOwnerThatIsOrphanedWhileItIsLetGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.fromMembers(dependents.LeaveReleased)
	dependents.Hasten(r, time.Second) // 60 to 80 for users
	p, before := w.runFromMember(r)
	<-p.members.Remove(fleet.ClusterName(two.Name))
	p.relabel(one, "other")
	w.told(one, "a", dependents.EventClusterNotReady, two.Name)
	eventually(t, "the program is at rest", p.isAtRest)
	w.remove(one, "a", client.PropagationPolicy(metav1.DeletePropagationOrphan))
	w.letGo(one, "a", metav1.FinalizerOrphanDependents)
	eventually(t, "its dependents are to stay", func() bool {
		return w.mustGet(one, "a").Annotations[dependents.DeletionPolicyAnnotation] == string(metav1.DeletePropagationOrphan)
	})
	if err := p.members.Set(p.member(two)); err != nil {
		t.Fatal(err)
	}
	w.isReleased(two, before)
}

// TestAnOwnerThatIsLetGoGivesUpAClusterThatIsGone once the annotation says so, although its own cluster is none of owners any more.
func TestAnOwnerThatIsLetGoGivesUpAClusterThatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.fromMembers(dependents.LeaveReleased)
	dependents.Hasten(r, time.Second) // 60 to 80 for users
	p, _ := w.runFromMember(r)
	<-p.members.Remove(fleet.ClusterName(two.Name))
	p.relabel(one, "other")
	w.told(one, "a", dependents.EventClusterNotReady, two.Name)
	eventually(t, "the program is at rest", p.isAtRest)
	w.change(one, "a", func(cm *corev1.ConfigMap) { cm.Annotations[dependents.GiveUpAnnotation] = two.Name })
	w.told(one, "a", dependents.EventReleased, two.Name)
	eventually(t, "the owner has no finalizer", func() bool { return !holds(w.mustGet(one, "a")) })
}

// TestDependentsOfAnOwnerThatNobodySawGoStay where its cluster is no longer one of owners: it may have been deleted so that they stay.
// Once the cluster is one of owners again, they are taken for orphans.
func TestDependentsOfAnOwnerThatNobodySawGoStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.fromMembers(dependents.LeaveAsIs)
	r.Name = w.ns // that of the collector in metrics
	r.Sweep = orphans.Sweep{Interval: 50 * time.Millisecond, Listing: 50 * time.Millisecond}
	p, before := w.runFromMember(r)
	p.relabel(one, "other")
	eventually(t, "the owner has no finalizer", func() bool { return len(w.mustGet(one, "a").Finalizers) == 0 })
	w.remove(one, "a", client.PropagationPolicy(metav1.DeletePropagationOrphan))
	w.change(one, "a", func(cm *corev1.ConfigMap) { cm.Finalizers = nil }) // what a garbage collector does
	w.isGone(one, "a")
	w.swept(two, 5)
	w.unharmed(two, before)
	p.relabel(one, one.Name)
	w.isGone(two, before.Name)
}

// creatingLater refuses the first creations of ConfigMaps.
type creatingLater struct {
	through http.RoundTripper
	left    *atomic.Int32
}

// RoundTrip implements http.RoundTripper.
func (c creatingLater) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/configmaps") && c.left.Add(-1) >= 0 {
		return nil, errors.New("the test refuses that")
	}
	return c.through.RoundTrip(req)
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (c creatingLater) WrappedRoundTripper() http.RoundTripper { return c.through }

// TestDependentsOfOwnersThatSaidBeforeThatTheyStay do, also if the cluster is one of owners again after nobody saw them go. Several are let go
// at once, and each is noted, though the hub refuses that at first.
func TestDependentsOfOwnersThatSaidBeforeThatTheyStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.fromMembers(dependents.LeaveAsIs)
	r.Sweep = orphans.Sweep{Interval: 50 * time.Millisecond, Listing: 50 * time.Millisecond}
	cfg, left := w.Local.Config(), &atomic.Int32{}
	left.Store(3)
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { return creatingLater{through, left} })
	p := w.runAs(cfg, func(mgr mcmanager.Manager) error { return r.SetupWithManager(mgr) })
	owners, before := []string{"a", "b", "c"}, map[string]*corev1.ConfigMap{}
	for _, name := range owners {
		owner := w.owner(name, two.Name)
		owner.Annotations[dependents.DeletionPolicyAnnotation] = "Orphan"
		w.create(one, owner)
		before[name] = w.isCopied(two, name)
	}
	p.relabel(one, "other")
	for _, name := range owners {
		eventually(t, name+" has no finalizer", func() bool { return len(w.mustGet(one, name).Finalizers) == 0 })
		w.remove(one, name)
		w.isGone(one, name)
	}
	p.relabel(one, one.Name)
	for _, name := range owners {
		w.isReleased(two, before[name])
	}
}

// TestWhatWasLetGoAsItIsStaysWithAnOwnerThatIsOrphanedLater: its cluster is one of owners again, and that of the dependent is away.
func TestWhatWasLetGoAsItIsStaysWithAnOwnerThatIsOrphanedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.fromMembers(dependents.LeaveAsIs)
	r.Sweep = orphans.Sweep{Interval: 50 * time.Millisecond, Listing: 50 * time.Millisecond}
	p, before := w.runFromMember(r)
	p.relabel(one, "other")
	w.hasNothing(one, "a")
	<-p.members.Remove("member-2")
	w.change(one, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
	p.relabel(one, one.Name)
	eventually(t, "the owner has the finalizer", func() bool { return holds(w.mustGet(one, "a")) })
	w.remove(one, "a", client.PropagationPolicy(metav1.DeletePropagationOrphan))
	w.letGo(one, "a", metav1.FinalizerOrphanDependents)
	w.isGone(one, "a")
	if err := p.members.Set(p.member(two)); err != nil {
		t.Fatal(err)
	}
	w.isReleased(two, before)
}

// TestWhatIsToStayDoesSoAfterItsControllerHadRetired: its owner went meanwhile, and the controller is there again.
func TestWhatIsToStayDoesSoAfterItsControllerHadRetired(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.orphaning()
	p := w.run(r)
	owner := w.owner("a", one.Name)
	owner.Annotations[dependents.DeletionPolicyAnnotation] = "Orphan"
	w.create(w.Local, owner)
	before := w.isCopied(one, "a")
	p.stop()
	r.Retire = dependents.LeaveAsIs
	p = w.run(r)
	w.hasNothing(w.Local, "a")
	p.stop()
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	r.Retire = ""
	w.run(r)
	w.isReleased(one, before)
}

// TestOwnersWhoseClusterWasRelabelledWhileNothingRan are let go: where it is declared, also those that have no dependents, and where the controller
// is retired.
func TestOwnersWhoseClusterWasRelabelledWhileNothingRan(t *testing.T) {
	t.Parallel()
	type declared struct{ leaving, retire dependents.LeavePolicy }
	for _, tc := range []declared{
		{},
		{retire: dependents.LeaveAsIs},
		{retire: dependents.LeaveReleased},
		{leaving: dependents.LeaveAsIs},
		{leaving: dependents.LeaveReleased},
		{leaving: dependents.LeaveDeleted},
	} {
		t.Run("Policy"+string(tc.leaving)+"Retire"+string(tc.retire), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			one, two := w.Members[0], w.Members[1]
			r := w.fromMembers(tc.leaving)
			r.Sweep.Interval, r.Sweep.Listing = 50*time.Millisecond, 50*time.Millisecond
			p, before := w.runFromMember(r)
			w.create(one, w.owner("emptied", two.Name))
			w.isCopied(two, "emptied")
			p.stop()
			w.remove(two, copyOf("emptied"))
			r.OwnersIn, r.Retire = mcowner.Clusters{Members: named("another")}, tc.retire
			if tc == (declared{}) {
				w.change(one, "emptied", func(cm *corev1.ConfigMap) { cm.Finalizers, cm.Annotations = nil, nil })
			}
			w.run(r)
			w.hasNothing(one, "a")
			w.hasNothing(one, "emptied")
			w.becomes(two, before, cmp.Or(tc.leaving, dependents.LeaveAsIs))
		})
	}
}

// TestOwnersOfAMemberThatLeaves have nothing of the controller any more when it has left. Their dependents become what is declared for owners, and in
// the member, where these let them stay as they are, what is declared for that; also just after a start.
func TestOwnersOfAMemberThatLeaves(t *testing.T) {
	t.Parallel()
	type declared struct{ owners, member dependents.LeavePolicy }
	for _, tc := range []declared{
		{owners: dependents.LeaveAsIs},
		{owners: dependents.LeaveReleased},
		{owners: dependents.LeaveDeleted},
		{member: dependents.LeaveReleased},
		{member: dependents.LeaveDeleted},
		{dependents.LeaveReleased, dependents.LeaveDeleted},
	} {
		for name, restarts := range map[string]bool{"": false, "AfterAStart": true} {
			t.Run("Owners"+string(tc.owners)+"Member"+string(tc.member)+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, 2)
				one, two := w.Members[0], w.Members[1]
				r := w.fromMembers(tc.owners)
				r.OnMemberLeaving = tc.member
				p := w.run(r)
				w.create(one, w.owner("a", one.Name, two.Name))
				here, there := w.isCopied(one, "a"), w.isCopied(two, "a")
				if restarts {
					p.stop()
					w.Members = []*mctest.ControlPlane{two}
					p = w.run(r)
					p.is(two, fleet.Ready)
				}
				p.leave(one)
				if owner := w.mustGet(one, "a"); holds(owner) || placedIn(owner) != "" {
					t.Errorf("the member has left, and the owner has %v", owner.ObjectMeta)
				}
				everywhere := cmp.Or(tc.owners, dependents.LeaveAsIs)
				w.becomes(two, there, everywhere)
				if everywhere == dependents.LeaveAsIs {
					everywhere = cmp.Or(tc.member, everywhere)
				}
				w.becomes(one, here, everywhere)
			})
		}
	}
}

// TestAMemberThatLeavesBeforeItsOwnersArePlannedSo leaves their dependents as is declared for them all the same.
func TestAMemberThatLeavesBeforeItsOwnersArePlannedSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	var leaves atomic.Bool
	planned := make(chan struct{})
	plan := sync.OnceFunc(func() { close(planned) })
	defer plan()
	r := w.fromMembers(dependents.LeaveDeleted)
	r.PolicyOf = func(owner *corev1.ConfigMap) (none dependents.Policy) {
		if owner.Name == "a" && leaves.Load() {
			<-planned
		}
		return none
	}
	p := w.run(r)
	w.create(one, w.owner("a", one.Name))
	before := w.isCopied(one, "a")
	eventually(t, "the program is at rest", p.isAtRest)
	leaves.Store(true)
	left, err := p.members.Leave(p.member(one))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the owner's record has the member no more", func() bool { return placedIn(w.mustGet(one, "a")) == "" })
	plan()
	<-left
	if w.get(one, before.Name) != nil {
		t.Error("the member has left with the dependent")
	}
}

// TestAMemberThatLeavesWaitsForNoOtherThatHadItsName: owners of it that had dependents there are let go as these are.
func TestAMemberThatLeavesWaitsForNoOtherThatHadItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.fromMembers("")
	r.OnMemberLeaving = dependents.LeaveDeleted
	p := w.run(r)
	w.create(one, w.owner("a", one.Name))
	before := w.isCopied(one, "a")
	p.stop()
	w.change(one, "a", func(cm *corev1.ConfigMap) {
		now := `"` + string(w.kubeSystem(one)) + `"`
		cm.Annotations[domain+"/identities"] = strings.Replace(cm.Annotations[domain+"/identities"], now, `"another",`+now, 1)
	})
	p = w.run(r)
	p.is(one, fleet.Ready)
	p.leave(one)
	if w.get(one, before.Name) != nil {
		t.Error("the member has left with the dependent")
	}
	w.hasNothing(one, "a")
}

// TestAMemberWaitsForOwnersThatAreBeingDeleted: once it has left, nobody would take the finalizer.
func TestAMemberWaitsForOwnersThatAreBeingDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	p, _ := w.runFromMember(w.fromMembers(""))
	open := p.holdDeletions("configmaps")
	defer open()
	w.remove(one, "a")
	eventually(t, "the dependent is about to be deleted", func() bool { return p.power.deletions.Load() > 0 })
	left, err := p.members.Leave(p.member(one))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-left:
		t.Error("the member has left before its owner was gone")
	case <-time.After(3 * time.Second): // nothing tells that nothing is about to happen
	}
	open()
	<-left
	if w.get(one, "a") != nil || w.get(two, copyOf("a")) != nil {
		t.Error("the member has left, and the owner or its dependent is there")
	}
}

// TestAMemberThatLeavesDeletesNothingWhileAPolicyIsUnclear: dependents stay as they are where that is declared, and otherwise the member
// waits until it is known what becomes of them.
func TestAMemberThatLeavesDeletesNothingWhileAPolicyIsUnclear(t *testing.T) {
	forEachLeave(t, func(w *world, policy dependents.LeavePolicy) {
		one := w.Members[0]
		var results latest
		r := w.orphaning()
		r.OnMemberLeaving, r.Status = policy, results.note
		p := w.run(r)
		says := func(text string) bool {
			err := results.of("a", one).Err
			return err != nil && strings.Contains(err.Error(), text)
		}
		w.create(w.Local, w.owner("a", one.Name))
		before := w.isCopied(one, "a")
		w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations[dependents.DeletionPolicyAnnotation] = "background" })
		w.remove(w.Local, "a")
		eventually(w.t, "the owner waits", func() bool { return says(dependents.DeletionPolicyAnnotation) })
		left, err := p.members.Leave(p.member(one))
		if err != nil {
			w.t.Fatal(err)
		}
		eventually(w.t, "the member has left, or waits", func() bool {
			select {
			case <-left:
				return true
			default:
				return says("the cluster leaves the fleet after that")
			}
		})
		w.becomes(one, before, dependents.LeaveAsIs)
		hasLeft := func() bool {
			_, is := p.GetFleet().Status("member-1")
			return !is
		}
		if hasLeft() != (policy == dependents.LeaveAsIs) {
			w.t.Errorf("the member has left: %t", hasLeft())
		}
		if !holds(w.mustGet(w.Local, "a")) {
			w.t.Error("the owner does not wait any more")
		}
		w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations[dependents.DeletionPolicyAnnotation] = "Background" })
		w.isGone(w.Local, "a")
		<-left
		if policy == dependents.LeaveAsIs {
			w.becomes(one, before, policy)
		} else {
			w.isGone(one, before.Name)
		}
	})
}

// TestDependentsOfAClusterThatIsGivenUpAreDeletedByItsLabel, and none of other clusters' owners with them, nor is one created anew.
func TestDependentsOfAClusterThatIsGivenUpAreDeletedByItsLabel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.spread()
	r.OwnersIn, r.DependentsIn = mcowner.Clusters{Local: true, Members: named(one.Name)}, mcowner.Clusters{Members: named(two.Name)}
	p := w.run(r)
	owners := map[string]*mctest.ControlPlane{"of-the-one-that-is-gone": one, "another-of-it": one, "local": w.Local}
	before := map[string]*corev1.ConfigMap{}
	for name, home := range owners {
		w.create(home, w.owner(name, two.Name))
		before[name] = w.isCopied(two, name)
	}
	of := client.MatchingLabels{mcowner.FleetLabel: fleetName, mcowner.OwnerClusterLabel: one.Name}
	others := &corev1.ConfigMap{ObjectMeta: metaOf(w.ns, "of-another-installation")}
	others.Labels = map[string]string{mcowner.FleetLabel: "other", mcowner.OwnerClusterLabel: one.Name}
	w.create(two, others)

	<-p.members.Remove("member-1")
	if err := two.Client().DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(w.ns), of); err != nil {
		t.Fatal(err)
	}
	w.change(w.Local, "local", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	w.says(two, copyOf("local"), "2") // the events of the deletions were seen before that
	eventually(t, "all is at rest", p.isAtRest)
	for name, home := range owners {
		if home == w.Local {
			w.unharmed(two, before[name])
		} else if now := w.get(two, copyOf(name)); now != nil {
			t.Errorf("%s is there: %v", name, now.ObjectMeta)
		}
	}
	w.unharmed(two, others)
}

// TestAControllerRetires from all owners, and takes no new ones.
func TestAControllerRetires(t *testing.T) {
	forEachLeave(t, func(w *world, policy dependents.LeavePolicy) {
		one, two := w.Members[0], w.Members[1]
		r := w.spread()
		r.OwnersIn = mcowner.Clusters{Local: true, Members: named(one.Name)}
		p := w.run(r)
		homes := []*mctest.ControlPlane{w.Local, one}
		before := map[string]*corev1.ConfigMap{}
		for i, name := range []string{"a", "b"} {
			w.create(homes[i], w.owner(name, two.Name))
			before[name] = w.isCopied(two, name)
		}
		p.stop()
		orphan := w.owned(two, "orphan", w.goneOwner(func(r *mcowner.Reference) { r.Manager = controller }))
		r.Retire = policy
		r.Sweep.Interval, r.Sweep.Listing = 50*time.Millisecond, 50*time.Millisecond
		p = w.run(r)
		for i, name := range []string{"a", "b"} {
			w.hasNothing(homes[i], name)
			w.becomes(two, before[name], policy)
		}
		w.create(w.Local, w.owner("new", two.Name))
		w.remove(w.Local, "a") // at once, and nobody knows whether its dependents are to stay
		w.isGone(w.Local, "a")
		eventually(w.t, "nothing is done any more", p.isAtRest)
		w.hasNothing(w.Local, "new")
		if w.get(two, copyOf("new")) != nil {
			w.t.Error("a new owner has a dependent")
		}
		for _, name := range []string{"a", "b"} {
			w.becomes(two, before[name], policy)
		}
		if policy == dependents.LeaveDeleted {
			w.isGone(two, orphan.Name)
		} else {
			w.unharmed(two, orphan) // nobody sees any more how owners are
		}
	})
}

// TestTheDependentsOfADecommissionedClusterAreRemoved, and of no other: not those of a cluster that has the name now.
func TestTheDependentsOfADecommissionedClusterAreRemoved(t *testing.T) {
	t.Parallel()
	w, other := newWorldBeside(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.spread()
	r.OwnersIn, r.DependentsIn = mcowner.Clusters{Local: true, Members: named(one.Name)}, mcowner.Clusters{Members: named(two.Name)}
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		origin, _ := mcreconcile.ClusterNameFrom(ctx)
		return []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: copyOf(owner.Name + string(origin))}}}, nil
	}
	p := w.run(r)
	w.create(one, w.owner("of-the-one-that-is-gone", two.Name))
	w.create(w.Local, w.owner("local", two.Name))
	gone, local := w.isCopied(two, "of-the-one-that-is-gonemember-1"), w.isCopied(two, "local")
	p.lead(other)
	w.create(other, w.owner("of-the-one-that-is-there", two.Name))
	there := w.isCopied(two, "of-the-one-that-is-theremember-1")
	p.stop()

	selected := &corev1.ConfigMapList{}
	of := client.MatchingLabels{mcowner.FleetLabel: fleetName, mcowner.OwnerClusterLabel: "member-1"}
	if err := two.Client().List(t.Context(), selected, client.InNamespace(w.ns), of); err != nil || len(selected.Items) != 2 {
		t.Errorf("the label selects %d dependents, %v, want those of owners of the name", len(selected.Items), err)
	}
	r.OwnersDecommissioned = []mcowner.ClusterID{
		{Name: "member-1", UID: w.kubeSystem(one)}, {Name: "member-2", UID: w.kubeSystem(w.Local)}, {Name: "member-1", ByName: true},
	}
	members := w.Members
	w.Members = members[1:]
	r.Sweep.Interval, r.Sweep.Listing = 50*time.Millisecond, 50*time.Millisecond
	p = w.run(r)
	w.Members = members
	swept := func(name string) { // it is looked at after the others
		w.owned(two, name, w.goneOwner(func(r *mcowner.Reference) { r.Manager = controller }))
		w.isGone(two, name)
	}
	w.isGone(two, gone.Name)
	swept("z-1")
	w.unharmed(two, there) // although no cluster of that name was seen yet
	p.lead(other)
	swept("z-2")
	w.unharmed(two, there)
	w.unharmed(two, local)
}

// TestAClusterThatIsSaidToBeNoMoreIsAskedIfItIsThere: somebody is mistaken.
func TestAClusterThatIsSaidToBeNoMoreIsAskedIfItIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	alive := w.owner("alive")
	w.create(one, alive)
	in := func(r *mcowner.Reference) { r.Cluster, r.ClusterUID = "member-1", w.kubeSystem(one) }
	before := w.owned(two, "a", w.to(alive, in))
	p := w.collect(func(c *orphans.Collector) {
		c.Decommissioned = []mcowner.ClusterID{{Name: "member-1", UID: w.kubeSystem(one)}}
		c.DependentsIn = mcowner.Clusters{Members: named("joins-later")}
	})
	p.is(one, fleet.Ready)
	p.relabel(two, "joins-later")
	w.isGone(two, w.owned(two, "z", w.goneOwner(in)).Name)
	w.unharmed(two, before)
}

// refuse has a cluster refuse what is asked by a method of what is at a path, until stop is called.
func (p *process) refuse(method string, cp *mctest.ControlPlane, path string) (stop func()) {
	p.power.refused.Store(&[3]string{method, hostOf(cp), path})
	return func() { p.power.refused.Store(nil) }
}

// holdDeletions lets no deletion of a resource reach a cluster, until open is called.
func (p *process) holdDeletions(resource string) (open func()) {
	opened := make(chan struct{})
	p.power.listen(func(req *http.Request) {
		if req.Method == http.MethodDelete && strings.Contains(req.URL.Path, "/"+resource+"/") {
			<-opened
		}
	})
	return sync.OnceFunc(func() { close(opened) })
}
