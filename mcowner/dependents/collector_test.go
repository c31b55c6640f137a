package dependents_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// collect runs a collector of ConfigMaps whose owners are ConfigMaps of any cluster.
func (w *world) collect(change ...func(*orphans.Collector)) *process {
	w.t.Helper()
	return w.collectAs(w.Local.Config(), change...)
}

// collectAs is collect with a config of the local cluster.
func (w *world) collectAs(local *rest.Config, change ...func(*orphans.Collector)) *process {
	w.t.Helper()
	return w.runAs(local, func(mgr mcmanager.Manager) error {
		c := &orphans.Collector{
			Manager: mgr, Fleet: fleetName, Name: w.ns,
			Owners: []client.Object{&corev1.ConfigMap{}}, Kinds: []client.Object{&corev1.ConfigMap{}},
			Sweep: orphans.Sweep{Interval: 50 * time.Millisecond, PageSize: 3, QPS: 1000},
		}
		for _, do := range change {
			do(c)
		}
		return mgr.Add(c)
	})
}

// metric returns the value of one of the collector's series of a member, zero if there is none.
func (w *world) metric(name string, cp *mctest.ControlPlane, label, value string) float64 {
	w.t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["collector"] == w.ns && labels["cluster"] == cp.Name && (label == "" || labels[label] == value) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// swept waits until a member was swept n times more.
func (w *world) swept(cp *mctest.ControlPlane, n float64) {
	w.t.Helper()
	sweeps := func() float64 {
		return w.metric("fleet_runtime_sweeps_total", cp, "result", "success") + w.metric("fleet_runtime_sweeps_total", cp, "result", "error")
	}
	before := sweeps()
	eventually(w.t, cp.Name+" is swept", func() bool { return sweeps() >= before+n })
}

// to refers to an owner of the local cluster.
func (w *world) to(owner *corev1.ConfigMap, change ...func(*mcowner.Reference)) mcowner.Reference {
	w.t.Helper()
	r, err := mcowner.ReferenceTo(fleetName, mcowner.ByName(""), owner, scheme.Scheme)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

// owned creates a ConfigMap of an owner by hand.
func (w *world) owned(cp *mctest.ControlPlane, name string, owners ...mcowner.Reference) *corev1.ConfigMap {
	w.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	for i, owner := range owners {
		set := mcowner.SetOwnerReference
		if i == 0 {
			set = mcowner.SetControllerReference
		}
		if err := set(owner, cm, mcowner.ByName(fleet.ClusterName(cp.Name))); err != nil {
			w.t.Fatal(err)
		}
	}
	w.create(cp, cm)
	return cm
}

// kubeSystem returns what tells a cluster from others.
func (w *world) kubeSystem(cp *mctest.ControlPlane) types.UID {
	w.t.Helper()
	ns := &corev1.Namespace{}
	if err := cp.Client().Get(w.t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, ns); err != nil {
		w.t.Fatal(err)
	}
	return ns.UID
}

// TestTheCollectorRemovesWhatIsProvedToBeOrphaned, and leaves alone everything else.
func TestTheCollectorRemovesWhatIsProvedToBeOrphaned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	alive := w.owner("alive")
	w.create(w.Local, alive)
	gone := alive.DeepCopy()
	gone.Name, gone.UID = "gone", "of-one-that-is-gone"
	managed := func(r *mcowner.Reference) { r.Manager = controller }
	record := func(name, clusters string) *corev1.ConfigMap {
		cm := w.owner(name)
		cm.Finalizers = []string{controller + "." + fleetName + ".fleet-runtime.dev/dependents"}
		cm.Annotations[controller+"."+fleetName+".fleet-runtime.dev/placed-in"] = clusters
		w.create(w.Local, cm)
		return cm
	}
	here, elsewhere, nonsense := record("here", `["member-1"]`), record("elsewhere", `["member-2"]`), record("nonsense", `nonsense`)
	gaveUp := record("gave-up", `["member-2"]`)
	gaveUp.Annotations[controller+"."+fleetName+".fleet-runtime.dev/given-up"] = "true"
	w.update(w.Local, gaveUp)

	orphans := []*corev1.ConfigMap{
		w.owned(one, "owner-gone", w.to(gone)),
		w.owned(one, "owner-gone-in-the-same-cluster", w.to(gone, func(r *mcowner.Reference) { r.Cluster = "member-1" })),
		w.owned(one, "owner-created-anew", w.to(alive, func(r *mcowner.Reference) { r.UID = "before" })),
		w.owned(one, "owner-gone-from-this-cluster", w.to(gone, func(r *mcowner.Reference) { r.ClusterUID = w.kubeSystem(w.Local) })),
		w.owned(one, "no-longer-placed", w.to(elsewhere, managed)),
		w.owned(one, "two-owners-gone", w.to(gone), w.to(gone, func(r *mcowner.Reference) { r.Name = "gone-too" })),
	}
	native := w.owned(one, "native-owner", w.to(gone))
	native.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}}
	w.update(one, native)
	released := []*corev1.ConfigMap{native, w.owned(one, "another-owner-alive", w.to(gone), w.to(alive))}

	malformed := w.owned(one, "malformed", w.to(gone))
	malformed.Annotations[w.to(gone).Key()] = "{"
	w.update(one, malformed)
	copied := w.owned(one, "original", w.to(gone))
	copied = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "copy", Labels: copied.Labels, Annotations: copied.Annotations}}
	w.create(one, copied)
	labelled := w.owned(one, "of-another-fleet-in-spite-of-its-label", w.to(gone, func(r *mcowner.Reference) { r.Fleet = "other" }))
	labelled.Labels[mcowner.FleetLabel] = fleetName
	w.update(one, labelled)
	kept := []*corev1.ConfigMap{
		malformed, copied, labelled,
		w.owned(one, "owner-alive", w.to(alive)),
		w.owned(one, "placed-here", w.to(here, managed)),
		w.owned(one, "placed-nobody-knows-where", w.to(nonsense, managed)),
		w.owned(one, "in-a-cluster-that-was-given-up", w.to(gaveUp, managed)), // and may have been to stay
		w.owned(one, "of-another-manager", w.to(elsewhere, func(r *mcowner.Reference) { r.Manager = "other" })),
		w.owned(one, "of-another-fleet", w.to(gone, func(r *mcowner.Reference) { r.Fleet = "other" })),
		w.owned(one, "of-another-kind", w.to(gone, func(r *mcowner.Reference) { r.Kind = "Secret" })),
		w.owned(one, "of-an-unknown-cluster", w.to(gone, func(r *mcowner.Reference) { r.Cluster = "nowhere" })),
		w.owned(one, "of-a-cluster-that-is-another-now", w.to(gone, func(r *mcowner.Reference) { r.ClusterUID = "other" })),
	}
	w.collect()
	for _, cm := range append(orphans, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "original"}}) {
		w.isGone(one, cm.Name)
	}
	for _, cm := range released {
		eventually(t, cm.Name+" has lost the reference", func() bool {
			_, owned := mcowner.ControllerOf(w.mustGet(one, cm.Name), mcowner.ByName("member-1"))
			return !owned
		})
	}
	w.swept(one, 2)
	for _, cm := range kept {
		if diff := cmp.Diff(cm, w.mustGet(one, cm.Name)); diff != "" {
			t.Errorf("%s has changed (-before, +after):\n%s", cm.Name, diff)
		}
	}
	if deleted := w.metric("fleet_runtime_orphans_total", one, "action", "deleted"); deleted != float64(len(orphans)+1) {
		t.Errorf("metrics say that %v were deleted, want %d", deleted, len(orphans)+1)
	}
	unproven := 4.0
	eventually(t, "metrics say that 4 are unproven", func() bool { // a sweep that could not ask counts more, until the next
		if now := w.metric("fleet_runtime_unproven_dependents", one, "", ""); now != unproven {
			unproven = now
			t.Logf("metrics say that %v are unproven, want those that are malformed, of another kind, of an unknown cluster, and of one that is another now", now)
		}
		return unproven == 4
	})
}

// TestTheCollectorOfAReconcilerLeavesAloneTheDependentsOfAnother, although their owner is gone.
func TestTheCollectorOfAReconcilerLeavesAloneTheDependentsOfAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	of := func(manager string) mcowner.Reference {
		return w.goneOwner(func(r *mcowner.Reference) { r.Manager = manager })
	}
	kept := []*corev1.ConfigMap{w.owned(one, "a-of-another", of("another")), w.owned(one, "b-of-none", of(""))}
	orphan := w.owned(one, "c", of(controller)) // a sweep comes to it after the others
	r := w.spread()
	r.Sweep.Interval = 50 * time.Millisecond
	w.run(r)
	w.isGone(one, orphan.Name)
	for _, cm := range kept {
		if diff := cmp.Diff(cm, w.mustGet(one, cm.Name)); diff != "" {
			t.Errorf("%s has changed (-before, +after):\n%s", cm.Name, diff)
		}
	}
}

func (w *world) update(cp *mctest.ControlPlane, cm *corev1.ConfigMap) {
	w.t.Helper()
	if err := cp.Client().Update(w.t.Context(), cm); err != nil {
		w.t.Fatal(err)
	}
}

func TestADryRunRemovesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	gone := w.owner("gone")
	gone.UID = "gone"
	before := w.owned(one, "orphan", w.to(gone))
	w.collect(func(c *orphans.Collector) { c.DryRun = true })
	eventually(t, "the orphan is counted", func() bool { return w.metric("fleet_runtime_orphans_total", one, "action", "none") > 0 })
	w.swept(one, 2)
	if diff := cmp.Diff(before, w.mustGet(one, "orphan")); diff != "" {
		t.Errorf("the orphan has changed (-before, +after):\n%s", diff)
	}
}

// TestTheCollectorLooksAtAllPages, in the namespaces that it may list.
func TestTheCollectorLooksAtAllPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	gone := w.owner("gone")
	gone.UID = "gone"
	for i := range 10 {
		w.owned(one, fmt.Sprint("orphan-", i), w.to(gone))
	}
	other := one.CreateNamespace(t)
	elsewhere := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "orphan"}}
	if err := mcowner.SetControllerReference(w.to(gone), elsewhere, mcowner.ByName("member-1")); err != nil {
		t.Fatal(err)
	}
	w.create(one, elsewhere)
	w.collect(func(c *orphans.Collector) { c.Namespaces = []string{w.ns} })
	eventually(t, "all are gone", func() bool { return len(w.list(one)) == 0 })
	w.swept(one, 1)
	if err := one.Client().Get(t.Context(), client.ObjectKeyFromObject(elsewhere), elsewhere); err != nil {
		t.Errorf("what is in another namespace: %v", err)
	}
}

// TestTheCollectorWaitsForTheOwnersCluster: while that is down, or may not be asked, or does not serve the kind, nothing is
// proved.
func TestTheCollectorWaitsForTheOwnersCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	gone := w.owner("gone")
	gone.UID = "gone"
	inTwo := func(r *mcowner.Reference) { r.Cluster = "member-2" }
	stays := func(t *testing.T, name string) {
		t.Helper()
		w.swept(one, 3)
		w.mustGet(one, name)
	}
	t.Run("Down", func(t *testing.T) {
		w.owned(one, "a", w.to(gone, inTwo))
		two.Stop(t)
		p := w.collect()
		stays(t, "a")
		two.Restart(t)
		w.isGone(one, "a")
		p.stop()
	})
	t.Run("Forbidden", func(t *testing.T) {
		w.owned(one, "b", w.to(gone, inTwo))
		list := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}}
		cfg := two.AddUser(t, "may-not-get", list)
		members := w.Members
		w.Members = members[:1]
		p := w.collect(func(c *orphans.Collector) { c.ByName = true })
		w.Members = members
		if err := p.members.Set(fleet.Member{Name: "member-2", Config: cfg}); err != nil {
			t.Fatal(err)
		}
		p.is(two, fleet.Ready)
		stays(t, "b")
		list.Verbs = append(list.Verbs, "get")
		two.AddUser(t, "may-not-get", list)
		w.isGone(one, "b")
		p.stop()
	})
	t.Run("KindNotServed", func(t *testing.T) {
		widget := metadataOf("Widget")
		widget.APIVersion = "example.com/v1"
		w.owned(one, "c", w.to(gone, inTwo, func(r *mcowner.Reference) { r.APIVersion, r.Kind = "example.com/v1", "Widget" }))
		p := w.collect(func(c *orphans.Collector) { c.Owners = append(c.Owners, widget) })
		stays(t, "c")
		p.stop()
	})
}
