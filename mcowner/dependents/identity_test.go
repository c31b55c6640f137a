package dependents_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// newWorldBeside returns a world, and one more cluster, which has the name of no member.
func newWorldBeside(t *testing.T, members int) (w *world, other *mctest.ControlPlane) {
	t.Helper()
	w = newWorld(t, members+1)
	other = w.Members[members]
	w.Members = w.Members[:members]
	return w, other
}

// lead has the name of the first member lead to a cluster, and waits until it does.
func (p *process) lead(to *mctest.ControlPlane) {
	p.t.Helper()
	if err := p.leads(p.t.Context(), to); err != nil {
		p.t.Fatal(err)
	}
}

// leads is lead for goroutines that must not end a test.
func (p *process) leads(ctx context.Context, to *mctest.ControlPlane) error {
	const name = "member-1"
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // which ends a test that fails
	defer cancel()
	err := p.members.Set(fleet.Member{
		Name: name, Config: p.power.feed(to.Config()), Labels: map[string]string{"name": name},
	})
	if err != nil {
		return err
	}
	for range p.GetFleet().Changes(ctx) {
		engagement, err := p.GetFleet().Engagement(name)
		if err == nil && engagement.Cluster().GetConfig().Host == to.Config().Host {
			return nil
		}
	}
	return fmt.Errorf("%s does not lead to %s: %w", name, to.Name, ctx.Err())
}

// uids returns the UIDs of the dependents in a cluster, by name.
func (w *world) uids(cp *mctest.ControlPlane) map[string]types.UID {
	w.t.Helper()
	uids := map[string]types.UID{}
	for _, cm := range w.list(cp) {
		uids[cm.Name] = cm.UID
	}
	return uids
}

// unharmed fails the test if an object is another one than it was, or is going.
func (w *world) unharmed(cp *mctest.ControlPlane, before *corev1.ConfigMap) {
	w.t.Helper()
	now := w.get(cp, before.Name)
	if now == nil || now.UID != before.UID || now.DeletionTimestamp != nil {
		w.t.Errorf("%s of %s was deleted, or replaced", before.Name, cp.Name)
	}
}

// restore creates a copy of an object in another cluster, as a backup does.
func (w *world) restore(cp *mctest.ControlPlane, obj *corev1.ConfigMap) *corev1.ConfigMap {
	w.t.Helper()
	restored := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: obj.Namespace, Name: obj.Name, Labels: obj.Labels, Annotations: obj.Annotations},
		Data:       obj.Data,
	}
	w.create(cp, restored)
	return restored
}

// TestTwoInstallationsOfOneNameLeaveEachOthersDependentsAlone: two local clusters have owners of the same names, whose
// dependents are to be in the same member. The second one finds a conflict, and deletes nothing, whatever happens.
func TestTwoInstallationsOfOneNameLeaveEachOthersDependentsAlone(t *testing.T) {
	t.Parallel()
	const owners = 5
	first := newWorld(t, 2)
	one := first.Members[0]
	second := *first
	second.Fleet = &mctest.Fleet{Local: first.Members[1], Members: first.Members[:1]}
	first.Fleet = &mctest.Fleet{Local: first.Local, Members: first.Members[:1]}
	name := func(i int) string { return fmt.Sprint("a", i) }
	spread := func(w *world) *process {
		r := w.spread()
		r.Sweep.Interval = 50 * time.Millisecond
		for i := range owners {
			w.create(w.Local, w.owner(name(i), one.Name))
		}
		return w.run(r)
	}
	ofFirst := spread(first)
	for i := range owners {
		first.isCopied(one, name(i))
	}
	before := first.uids(one)
	ofSecond := spread(&second)
	for i := range owners {
		second.told(second.Local, name(i), dependents.EventConflict, "give one another")
		second.change(second.Local, name(i), func(cm *corev1.ConfigMap) { cm.Data["value"] = "of the second" })
		first.change(first.Local, name(i), func(cm *corev1.ConfigMap) { cm.Data["value"] = "of the first" })
	}
	for i := range owners {
		eventually(t, "the copies are those of the first", func() bool {
			return first.mustGet(one, copyOf(name(i))).Data["value"] == "of the first"
		})
	}
	second.change(second.Local, name(0), func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
	second.remove(second.Local, name(1))
	second.isGone(second.Local, name(1))
	second.change(second.Local, name(2), func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	second.remove(second.Local, name(2))
	second.isGone(second.Local, name(2))
	eventually(t, "the second has no dependents any more of the owner that is to have none", func() bool {
		return !holds(second.mustGet(second.Local, name(0)))
	})
	eventually(t, "both are at rest", func() bool { return ofFirst.isAtRest() && ofSecond.isAtRest() })
	if now := first.uids(one); !maps.Equal(before, now) {
		t.Errorf("the dependents have the UIDs %v, before %v", now, before)
	}
	if n := ofFirst.power.deletions.Load() + ofSecond.power.deletions.Load(); n > 0 {
		t.Errorf("%d deletions were tried, want none", n)
	}
	// The place is the second's once the first has left it.
	first.remove(first.Local, name(3))
	first.isGone(first.Local, name(3))
	eventually(t, "the second has the place", func() bool {
		cm := second.get(one, copyOf(name(3)))
		return cm != nil && cm.Data["value"] == "of the second"
	})
}

// TestAnotherClusterWithTheNameOfTheOwnersTakesNothing: a member's credentials lead to another cluster for a while, which has
// an owner of the same name.
func TestAnotherClusterWithTheNameOfTheOwnersTakesNothing(t *testing.T) {
	t.Parallel()
	w, wrong := newWorldBeside(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.spread()
	r.OwnersIn = mcowner.Clusters{Members: named(one.Name)}
	r.DependentsIn = mcowner.Clusters{Members: named(two.Name)}
	r.Sweep.Interval = 50 * time.Millisecond
	p := w.run(r)
	for _, name := range []string{"both", "right-alone"} {
		w.create(one, w.owner(name, two.Name))
		w.isCopied(two, name)
	}
	w.create(wrong, w.owner("both", two.Name))
	before := w.uids(two)
	p.lead(wrong)
	w.told(wrong, "both", dependents.EventConflict, "mend them")
	w.change(wrong, "both", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
	eventually(t, "the owner in the wrong cluster has nothing to wait for", func() bool { return !holds(w.mustGet(wrong, "both")) })
	w.change(wrong, "both", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = two.Name })
	eventually(t, "the owner in the wrong cluster waits", func() bool { return holds(w.mustGet(wrong, "both")) })
	w.remove(wrong, "both")
	w.isGone(wrong, "both")
	w.change(two, copyOf("right-alone"), func(cm *corev1.ConfigMap) { cm.Data["an"] = "event" }) // of an owner that is not there
	w.change(one, "right-alone", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	p.lead(one)
	eventually(t, "the owner's copy follows again", func() bool { return w.mustGet(two, copyOf("right-alone")).Data["value"] == "2" })
	if now := w.uids(two); !maps.Equal(before, now) {
		t.Errorf("the dependents have the UIDs %v, before %v", now, before)
	}
	if n := p.power.deletions.Load(); n > 0 {
		t.Errorf("%d deletions were tried, want none", n)
	}
}

// TestTheOwnersClusterIsSetUpAnew: a conflict says so, and once what it had is deleted, there are new dependents.
func TestTheOwnersClusterIsSetUpAnew(t *testing.T) {
	t.Parallel()
	w, anew := newWorldBeside(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.spread()
	r.OwnersIn = mcowner.Clusters{Members: named(one.Name)}
	r.DependentsIn = mcowner.Clusters{Members: named(two.Name)}
	p := w.run(r)
	for _, name := range []string{"there-again", "not-there"} {
		w.create(one, w.owner(name, two.Name))
		w.isCopied(two, name)
	}
	w.create(anew, w.owner("there-again", two.Name))
	p.lead(anew)
	w.told(anew, "there-again", dependents.EventConflict, "replaced for good")
	before := w.uids(two)
	err := two.Client().DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(w.ns), client.MatchingLabels{mcowner.FleetLabel: fleetName})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the owner that is there again has a new dependent", func() bool {
		now := w.uids(two)
		return len(now) == 1 && now[copyOf("there-again")] != "" && now[copyOf("there-again")] != before[copyOf("there-again")]
	})
}

// TestADependentInAnotherClusterOfTheNameIsACopy, such as one that was restored from a backup in a cluster that has the
// member's name now: it is not the owner's.
func TestADependentInAnotherClusterOfTheNameIsACopy(t *testing.T) {
	t.Parallel()
	w, other := newWorldBeside(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Sweep.Interval = 50 * time.Millisecond
	p := w.run(r)
	for _, name := range []string{"kept", "retargeted", "deleted"} {
		w.create(w.Local, w.owner(name, one.Name))
		w.restore(other, w.isCopied(one, name))
	}
	orphan := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "orphan"}}
	gone := w.goneOwner(func(r *mcowner.Reference) { r.Manager = controller })
	if err := mcowner.SetControllerReference(gone, orphan, mcowner.ClusterID{Name: "member-1", UID: w.kubeSystem(one)}); err != nil {
		t.Fatal(err)
	}
	w.create(other, orphan)
	restored := w.list(other)
	p.lead(other)
	w.told(w.Local, "kept", dependents.EventConflict, "it is a copy")
	w.change(w.Local, "retargeted", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
	w.told(w.Local, "retargeted", dependents.EventReplaced, string(w.kubeSystem(one)))
	w.remove(w.Local, "deleted")
	w.told(w.Local, "deleted", dependents.EventReplaced, string(w.kubeSystem(one)))
	w.create(w.Local, w.owner("new", one.Name))
	w.isCopied(other, "new")
	for _, cm := range restored {
		w.unharmed(other, &cm)
	}
	if n := p.power.deletions.Load(); n > 0 {
		t.Errorf("%d deletions were tried, want none", n)
	}
}

// TestDeletionWaitsForAClusterWhoseNameLeadsToAnother: the dependents in the one that had the name are unknown, not gone.
func TestDeletionWaitsForAClusterWhoseNameLeadsToAnother(t *testing.T) {
	t.Parallel()
	w, other := newWorldBeside(t, 1)
	one := w.Members[0]
	begin := func(t *testing.T, name string, release time.Duration, of types.UID) (p *process, decoy *corev1.ConfigMap) {
		t.Helper()
		p = w.run(w.spread())
		w.create(w.Local, w.owner(name, one.Name))
		cm := w.isCopied(one, name)
		p.stop()
		edit(t, cm, func(r *mcowner.Reference) { r.Dependent.ClusterUID = of })
		decoy = w.restore(other, cm)
		w.remove(w.Local, name)
		r := w.spread()
		r.ReleaseAfter = release
		members := w.Members
		w.Members = nil
		p = w.run(r)
		w.Members = members
		p.lead(other)
		return p, decoy
	}
	waits := func(t *testing.T, name string) {
		t.Helper()
		w.told(w.Local, name, dependents.EventReplaced, string(w.kubeSystem(one)))
		if !holds(w.get(w.Local, name)) {
			t.Fatal("the owner did not wait")
		}
	}
	t.Run("UntilTheNameLeadsBack", func(t *testing.T) {
		p, decoy := begin(t, "a", 0, "") // the decoy is of a version that did not note it
		waits(t, "a")
		p.lead(one)
		w.isGone(w.Local, "a")
		w.isGone(one, copyOf("a"))
		w.unharmed(other, decoy)
		p.stop()
	})
	t.Run("UntilTheIdentityIsTakenFromTheOwner", func(t *testing.T) {
		p, decoy := begin(t, "b", 0, w.kubeSystem(one))
		waits(t, "b")
		w.change(w.Local, "b", func(cm *corev1.ConfigMap) {
			identities := cm.Annotations[domain+"/identities"]
			cm.Annotations[domain+"/identities"] = strings.Replace(identities, `"`+string(w.kubeSystem(one))+`"`, "", 1)
		})
		w.isGone(w.Local, "b")
		w.mustGet(one, copyOf("b"))
		w.unharmed(other, decoy)
		p.stop()
	})
	t.Run("UntilAllIdentitiesAreTakenFromTheOwner", func(t *testing.T) {
		p, decoy := begin(t, "all", 0, w.kubeSystem(one))
		waits(t, "all")
		w.change(w.Local, "all", func(cm *corev1.ConfigMap) { delete(cm.Annotations, domain+"/identities") })
		w.isGone(w.Local, "all")
		w.unharmed(other, decoy)
		p.stop()
	})
	t.Run("OrUntilItIsReleased", func(t *testing.T) {
		p, decoy := begin(t, "c", time.Second, w.kubeSystem(one))
		w.isGone(w.Local, "c")
		w.told(w.Local, "c", dependents.EventReleased, string(w.kubeSystem(one)))
		w.mustGet(one, copyOf("c"))
		w.unharmed(other, decoy)
		p.stop()
	})
}

// TestATargetThatAnotherClusterHasTheNameOfIsReleasedInTime, although the owner has all that it desires in that.
func TestATargetThatAnotherClusterHasTheNameOfIsReleasedInTime(t *testing.T) {
	t.Parallel()
	w, other := newWorldBeside(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.ReleaseAfter = 3 * time.Second
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	w.isCopied(one, "a")
	p.lead(other)
	w.isCopied(other, "a")
	w.told(w.Local, "a", dependents.EventReleased, string(w.kubeSystem(one)))
	eventually(t, "the record is of the other alone", func() bool {
		identities := w.mustGet(w.Local, "a").Annotations[domain+"/identities"]
		return !strings.Contains(identities, string(w.kubeSystem(one))) && strings.Contains(identities, string(w.kubeSystem(other)))
	})
}

// TestAnOwnerThatGivesUpAClusterThatHadTheNameIsDeleted: whether it was told so before it is deleted or afterwards.
func TestAnOwnerThatGivesUpAClusterThatHadTheNameIsDeleted(t *testing.T) {
	t.Parallel()
	for name, sliced := range map[string]bool{"InAnnotations": false, "InSlices": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSlicedWorld(t, 2)
			one, other := w.Members[0], w.Members[1]
			w.Members = w.Members[:1]
			r := w.spread()
			if sliced {
				r = w.sliced()
			}
			p := w.run(r)
			for _, owner := range []string{"before", "after"} {
				w.create(w.Local, w.owner(owner, one.Name))
				w.isCopied(one, owner)
			}
			p.lead(other)
			for _, owner := range []string{"before", "after"} {
				w.isCopied(other, owner)
			}
			giveUp := func(owner string) {
				w.change(w.Local, owner, func(cm *corev1.ConfigMap) { cm.Annotations[dependents.GiveUpAnnotation] = one.Name })
			}
			giveUp("before")
			w.remove(w.Local, "before")
			w.isGone(w.Local, "before")
			w.remove(w.Local, "after")
			w.told(w.Local, "after", dependents.EventReplaced, string(w.kubeSystem(one)))
			giveUp("after")
			w.isGone(w.Local, "after")
			for _, owner := range []string{"before", "after"} {
				w.isGone(other, copyOf(owner))
				w.mustGet(one, copyOf(owner))
			}
		})
	}
}

const domain = controller + "." + fleetName + ".fleet-runtime.dev"

// edit changes the references of an object as a writer of its annotations can.
func edit(t *testing.T, cm *corev1.ConfigMap, change func(*mcowner.Reference)) {
	t.Helper()
	for key, value := range cm.Annotations {
		if !strings.HasPrefix(key, mcowner.KeyPrefix) {
			continue
		}
		var r mcowner.Reference
		if err := json.Unmarshal([]byte(value), &r); err != nil {
			t.Fatal(err)
		}
		change(&r)
		content, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		cm.Annotations[key] = string(content)
	}
}

// clusterUIDs returns what the copy of an owner says of which clusters these are.
func (w *world) clusterUIDs(cp *mctest.ControlPlane, owner string) (ofOwner, ofDependent types.UID) {
	w.t.Helper()
	r, _ := mcowner.ControllerOf(w.mustGet(cp, copyOf(owner)), mcowner.ByName(fleet.ClusterName(cp.Name)))
	return r.ClusterUID, r.Dependent.ClusterUID
}

// TestWhatAVersionWithoutIdentitiesHasWrittenIsCompleted, and nothing is deleted for that.
func TestWhatAVersionWithoutIdentitiesHasWrittenIsCompleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	p := w.run(w.spread())
	w.create(w.Local, w.owner("a", one.Name))
	before := w.isCopied(one, "a")
	p.stop()
	w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) {
		edit(t, cm, func(r *mcowner.Reference) { r.ClusterUID, r.Dependent.ClusterUID = "", "" })
	})
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { delete(cm.Annotations, domain+"/identities") })
	p = w.run(w.spread())
	eventually(t, "the reference says which clusters these are", func() bool {
		ofOwner, ofDependent := w.clusterUIDs(one, "a")
		return ofOwner == w.kubeSystem(w.Local) && ofDependent == w.kubeSystem(one)
	})
	eventually(t, "so does the owner", func() bool {
		return strings.Contains(w.mustGet(w.Local, "a").Annotations[domain+"/identities"], string(w.kubeSystem(one)))
	})
	w.unharmed(one, before)
	if n := p.power.deletions.Load(); n > 0 {
		t.Errorf("%d deletions were tried, want none", n)
	}
}

// TestARightThatIsTakenAwayMakesNothingForgotten: what references say of which clusters these are stays.
func TestARightThatIsTakenAwayMakesNothingForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	p := w.run(w.spread())
	w.create(w.Local, w.owner("a", one.Name))
	before := w.isCopied(one, "a")
	p.stop()
	cfg := one.AddUser(t, "may-not-tell", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"},
	})
	w.Members = nil
	r := w.spread()
	r.ByName = true
	p = w.run(r)
	p.add(one, cfg)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "the copy follows", func() bool { return w.mustGet(one, copyOf("a")).Data["value"] == "2" })
	if ofOwner, ofDependent := w.clusterUIDs(one, "a"); ofOwner != w.kubeSystem(w.Local) || ofDependent != w.kubeSystem(one) {
		t.Errorf("the reference says that the clusters are %q and %q", ofOwner, ofDependent)
	}
	w.unharmed(one, before)
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	w.isGone(one, copyOf("a"))
}

// TestADependentOfAClusterThatCannotBeToldIsKept: its owner has another UID, and this may be another cluster.
func TestADependentOfAClusterThatCannotBeToldIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	w.Members = w.Members[1:]
	cfg := one.AddUser(t, "may-not-tell", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}...)
	owner := w.owner("a", two.Name)
	w.create(one, owner)
	before := w.owned(two, copyOf("a"), mcowner.Reference{
		Fleet: fleetName, Manager: controller, Cluster: "member-1", ClusterUID: "of-who-knows-which", APIVersion: "v1", Kind: "ConfigMap",
		Namespace: w.ns, Name: "a", UID: "another",
	})
	r := w.spread()
	r.OwnersIn, r.ByName = mcowner.Clusters{Members: everywhere}, true
	p := w.run(r)
	p.add(one, cfg)
	w.told(one, "a", dependents.EventConflict, "unknown identity")
	w.unharmed(two, before)
}

// TestAHundredOwnersAndAMemberThatIsSwapped underneath them: nothing is deleted, nor created anew, and each owner leaves both.
func TestAHundredOwnersAndAMemberThatIsSwapped(t *testing.T) {
	t.Parallel()
	const owners, swaps = 100, 4
	w := newWorld(t, 2)
	clusters := w.Members
	w.Members = w.Members[:1]
	r := w.spread()
	r.Sweep.Interval = 100 * time.Millisecond
	p := w.run(r)
	name := func(i int) string { return fmt.Sprint("a", i) }
	each := func(do func(name string) error) {
		var group errgroup.Group
		group.SetLimit(8)
		for i := range owners {
			group.Go(func() error { return do(name(i)) })
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	each(func(name string) error { return w.Local.Client().Create(t.Context(), w.owner(name, "member-1")) })
	before := make([]map[string]types.UID, len(clusters))
	for swap := range swaps {
		at := swap % len(clusters)
		p.lead(clusters[at])
		each(func(name string) error {
			patch := fmt.Appendf(nil, `{"data":{"value":"%d"}}`, swap)
			owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
			return w.Local.Client().Patch(t.Context(), owner, client.RawPatch(types.MergePatchType, patch))
		})
		if swap >= len(clusters) && swap%2 == 0 {
			continue // swapped again while the owners are being served
		}
		eventually(t, "the copies in the cluster that has the name are up to date", func() bool {
			copies := w.list(clusters[at])
			for _, cm := range copies {
				if cm.Data["value"] != fmt.Sprint(swap) {
					return false
				}
			}
			return len(copies) == owners
		})
		if before[at] == nil {
			before[at] = w.uids(clusters[at])
		}
	}
	for i, cp := range clusters {
		if now := w.uids(cp); !maps.Equal(before[i], now) {
			t.Errorf("%s: dependents were replaced", cp.Name)
		}
	}
	if n := p.power.deletions.Load(); n > 0 {
		t.Errorf("%d deletions were tried, want none", n)
	}
	// Each owner leaves the cluster that has the name, waits for the other, and goes once it has left that too.
	each(func(name string) error {
		return w.Local.Client().Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}})
	})
	eventually(t, "nothing is left in the cluster that has the name", func() bool { return len(w.list(clusters[1])) == 0 })
	if now := w.uids(clusters[0]); !maps.Equal(before[0], now) {
		t.Error("dependents were deleted from a cluster that no name led to")
	}
	for i := range owners {
		w.told(w.Local, name(i), dependents.EventReplaced, string(w.kubeSystem(clusters[0])))
	}
	p.lead(clusters[0])
	for i := range owners {
		w.isGone(w.Local, name(i))
	}
	if n := len(w.list(clusters[0])); n > 0 {
		t.Errorf("%d dependents are left", n)
	}
}

// overheard counts the requests for ConfigMaps on the way to a cluster.
type overheard struct {
	gets, lists atomic.Int32 // watches are among the lists
	through     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (o *overheard) RoundTrip(req *http.Request) (*http.Response, error) {
	switch {
	case strings.HasSuffix(req.URL.Path, "/configmaps"):
		o.lists.Add(1)
	case strings.Contains(req.URL.Path, "/configmaps/"):
		o.gets.Add(1)
	}
	return o.through.RoundTrip(req)
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (o *overheard) WrappedRoundTripper() http.RoundTripper { return o.through }

// TestAClaimFillsNoCache: a reference that somebody writes in one cluster leads to no list in another.
func TestAClaimFillsNoCache(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	w.Members = nil
	heard := &overheard{}
	cfg := two.Config()
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { heard.through = through; return heard })
	r := w.spread()
	r.DependentsIn = mcowner.Clusters{Members: named(one.Name)}
	r.Sweep.Interval, r.Sweep.Listing = 50*time.Millisecond, 50*time.Millisecond
	p := w.run(r)
	for name, member := range map[fleet.ClusterName]fleet.Member{"member-1": p.member(one), "member-2": {Config: cfg}} {
		member.Name = name
		if err := p.members.Set(member); err != nil {
			t.Fatal(err)
		}
	}
	p.is(two, fleet.Ready)
	bystander := w.owner("bystander", one.Name)
	w.create(two, bystander)
	w.owned(one, "claim", mcowner.Reference{
		Fleet: fleetName, Manager: controller, Cluster: "member-2", APIVersion: "v1", Kind: "ConfigMap",
		Namespace: w.ns, Name: bystander.Name, UID: bystander.UID,
	})
	eventually(t, "the reconciler and the collector have asked", func() bool { return heard.gets.Load() > 3 || heard.lists.Load() > 0 })
	if n := heard.lists.Load(); n > 0 {
		t.Errorf("the cluster was asked %d times for all objects of the kind, want not once", n)
	}
	if after := w.mustGet(two, "bystander"); after.ResourceVersion != bystander.ResourceVersion {
		t.Errorf("the bystander has changed: %v", after.ObjectMeta)
	}
}

// TestIdentitiesAreOfTheRequestsCluster: what was read from a cluster is not said to be of the one that took its place.
func TestIdentitiesAreOfTheRequestsCluster(t *testing.T) {
	t.Parallel()
	w, other := newWorldBeside(t, 1)
	one := w.Members[0]
	var known *mcmanager.Identities
	p := w.runWith(func(mgr mcmanager.Manager) error {
		known = &mcmanager.Identities{Manager: mgr}
		return nil
	})
	p.is(one, fleet.Ready)
	engagement, err := p.GetFleet().Engagement("member-1")
	if err != nil {
		t.Fatal(err)
	}
	reconcile := mcreconcile.WithCluster(t.Context(), "member-1", engagement.Cluster())
	is := func(ctx context.Context, name mcreconcile.ClusterName, want types.UID, wantErr error) {
		t.Helper()
		if got, err := known.Of(ctx, name); got.UID != want || !errors.Is(err, wantErr) {
			t.Errorf("the identity of %q is %+v, %v, want %q, %v", name, got, err, want, wantErr)
		}
	}
	is(reconcile, "member-1", w.kubeSystem(one), nil)
	is(reconcile, mcreconcile.LocalCluster, w.kubeSystem(w.Local), nil)
	is(t.Context(), "nobody", "", fleet.ErrUnknown)
	p.lead(other)
	is(reconcile, "member-1", "", fleet.ErrDisengaged)
	is(t.Context(), "member-1", w.kubeSystem(other), nil)
}

// TestNothingIsCreatedInAClusterThatIsNotNoted: the name leads to another cluster from when the owner was stored, and before
// the first dependent is created. The owner must know of that cluster first.
func TestNothingIsCreatedInAClusterThatIsNotNoted(t *testing.T) {
	t.Parallel()
	w, other := newWorldBeside(t, 1)
	one := w.Members[0]
	w.create(w.Local, w.owner("a")) // it has no targets yet
	p := w.run(w.spread())
	p.is(one, fleet.Ready)
	var swap sync.Once
	var created, unnoted atomic.Int32
	theOther := string(w.kubeSystem(other))
	tap := func(req *http.Request) (answered func()) {
		switch {
		case req.Method == http.MethodPatch && req.URL.Host == hostOf(w.Local) && strings.HasSuffix(req.URL.Path, "/configmaps/a"):
			return func() {
				swap.Do(func() {
					if err := p.leads(t.Context(), other); err != nil {
						t.Error(err)
					}
				})
			}
		case req.Method == http.MethodPatch && req.URL.Host == hostOf(other) && strings.HasSuffix(req.URL.Path, "/configmaps/"+copyOf("a")):
			created.Add(1)
			owner := w.owner("a")
			err := w.Local.Client().Get(t.Context(), client.ObjectKeyFromObject(owner), owner)
			if err != nil || !strings.Contains(owner.Annotations[domain+"/identities"], theOther) {
				unnoted.Add(1)
			}
		}
		return nil
	}
	p.power.tap.Store(&tap)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = one.Name })
	w.isCopied(other, "a")
	if created.Load() == 0 || unnoted.Load() > 0 {
		t.Errorf("of %d dependents %d were created before the owner was stored", created.Load(), unnoted.Load())
	}
}

func hostOf(cp *mctest.ControlPlane) string {
	_, host, _ := strings.Cut(cp.Config().Host, "://")
	return strings.TrimSuffix(host, "/")
}

// TestAnOwnerWaitsForWhatSaysThatItIsItsOwn, of another cluster: how clusters are told apart may have changed, and the owner
// must not leave its dependents behind without a word.
func TestAnOwnerWaitsForWhatSaysThatItIsItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	p := w.run(w.spread())
	w.create(w.Local, w.owner("a", one.Name))
	before := w.isCopied(one, "a")
	p.stop()
	w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) {
		edit(t, cm, func(r *mcowner.Reference) { r.ClusterUID = "as-it-was-called-before" })
	})
	w.remove(w.Local, "a")
	w.run(w.spread())
	w.told(w.Local, "a", dependents.EventConflict, "as-it-was-called-before")
	if !holds(w.get(w.Local, "a")) {
		t.Error("the owner did not wait")
	}
	w.unharmed(one, before)
	w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) { edit(t, cm, func(r *mcowner.Reference) { r.ClusterUID = "" }) })
	w.isGone(w.Local, "a")
	w.isGone(one, copyOf("a"))
}

// TestAMemberThatIsAnotherClusterNowLeaves, with what owners have in it: nothing can be done about what they have in the one before.
func TestAMemberThatIsAnotherClusterNowLeaves(t *testing.T) {
	t.Parallel()
	ways := map[string]func(*world, *dependents.Reconciler[*corev1.ConfigMap]) *process{
		"Alone":  func(w *world, r *dependents.Reconciler[*corev1.ConfigMap]) *process { return w.run(r) },
		"Shared": func(w *world, r *dependents.Reconciler[*corev1.ConfigMap]) *process { return w.runShared("one", r) },
	}
	for way, run := range ways {
		for _, policy := range leavePolicies {
			t.Run(way+string(policy), func(t *testing.T) {
				t.Parallel()
				w, other := newWorldBeside(t, 1)
				one := w.Members[0]
				r := w.spread()
				r.OnMemberLeaving = policy
				p := run(w, r)
				before := map[string]*corev1.ConfigMap{}
				for _, name := range []string{"both", "former"} {
					w.create(w.Local, w.owner(name, one.Name))
					before[name] = w.isCopied(one, name)
				}
				p.lead(other)
				now := w.isCopied(other, "both")
				w.change(w.Local, "former", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
				w.told(w.Local, "former", dependents.EventReplaced, one.Name)
				m := p.member(one)
				m.Config = p.power.feed(other.Config())
				left, err := p.members.Leave(m)
				if err != nil {
					t.Fatal(err)
				}
				eventuallyWithin(t, time.Minute, "the member has left", func() bool { // far less than fleet.Options.LeaveTimeout
					select {
					case <-left:
						return true
					default:
						return false
					}
				})
				w.becomes(other, now, policy)
				for name, dependent := range before {
					w.unharmed(one, dependent)
					if in := placedIn(w.mustGet(w.Local, name)); !strings.Contains(in, one.Name) {
						t.Errorf("%s has forgotten the cluster before: it waits for %s", name, in)
					}
				}
			})
		}
	}
}
