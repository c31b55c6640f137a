package dependents_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// editSlice changes the slice that has a cluster, as somebody else would.
func (w *world) editSlice(cluster string, change func(*v1alpha1.DependentSlice)) {
	w.t.Helper()
	all := w.slices()
	i := slices.IndexFunc(all, func(s v1alpha1.DependentSlice) bool {
		return slices.ContainsFunc(s.Clusters, func(c v1alpha1.Cluster) bool { return c.Name == cluster })
	})
	if i < 0 {
		w.t.Fatalf("no slice has %s", cluster)
	}
	patch := client.MergeFrom(all[i].DeepCopy())
	change(&all[i])
	if err := w.Local.Client().Patch(w.t.Context(), &all[i], patch); err != nil {
		w.t.Fatal(err)
	}
}

// TestWhatIsTakenFromASliceIsNotForgotten: somebody takes a cluster from it that is away, and the owner's part there is to go.
func TestWhatIsTakenFromASliceIsNotForgotten(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 3)
	first, last := w.Members[0], w.Members[2]
	p := w.run(w.sliced())
	w.create(w.Local, w.owner("a", names(w.Members)...))
	w.areSliced(w.Members...)
	<-p.members.Remove(fleet.ClusterName(last.Name))
	eventually(t, "the slice says that the member is away", func() bool { return w.inSlices()[last.Name].Error != "" })
	eventually(t, "the program is at rest", p.isAtRest)
	w.editSlice(last.Name, func(s *v1alpha1.DependentSlice) { s.Clusters = nil })
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = first.Name })
	w.isGone(w.Members[1], copyOf("a"))
	eventually(t, "the slice has the member again", func() bool { return w.inSlices()[last.Name].MayHaveDependents })
	w.remove(w.Local, "a")
	w.isGone(first, copyOf("a"))
	if err := p.members.Set(p.member(last)); err != nil {
		t.Fatal(err)
	}
	w.isGone(last, copyOf("a"))
	w.isGone(w.Local, "a")
}

// TestSlicesOfStrangers: what has the owner's labels, or the name of a slice, and is none of the controller's.
func TestSlicesOfStrangers(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 2)
	p := w.run(w.sliced())
	w.create(w.Local, w.owner("a", names(w.Members)...))
	w.areSliced(w.Members...)
	eventually(t, "the program is at rest", p.isAtRest)
	p.stop()
	like := w.slices()[0]
	prefix := like.Name[:strings.LastIndex(like.Name, "-")+1]
	another := func(name string, clusters int) *v1alpha1.DependentSlice {
		s := &v1alpha1.DependentSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: like.Labels, Annotations: like.Annotations}, Owner: like.Owner,
		}
		s.Owner.UID = "forged"
		for i := range clusters {
			s.Clusters = append(s.Clusters, v1alpha1.Cluster{Name: fmt.Sprintf("%0300d", i), MayHaveDependents: true})
		}
		if err := w.Local.Client().Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	stranger := another("stranger", 1)
	another(prefix+"7", 4096) // 1.3 MB
	for i := range 20 {
		another(fmt.Sprintf("%s%d", prefix, 100+i), 1)
	}
	before := w.mustGet(w.Members[0], copyOf("a"))
	w.run(w.sliced())
	w.areSlicedBut(stranger.Name, w.Members...)
	if now := w.mustGet(w.Members[0], copyOf("a")); now.UID != before.UID {
		t.Error("a dependent was made anew")
	}
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	for _, cp := range w.Members {
		w.isGone(cp, copyOf("a"))
	}
	if left := w.slices(); len(left) != 1 || left[0].Name != stranger.Name || left[0].UID != stranger.UID {
		t.Errorf("there are %d slices, and the stranger's alone is to stay", len(left))
	}
}

// areSlicedBut waits until all slices but one have these members alone.
func (w *world) areSlicedBut(but string, members ...*mctest.ControlPlane) {
	w.t.Helper()
	eventually(w.t, "slices have the members alone", func() bool {
		var found []string
		for _, s := range w.slices() {
			for _, c := range s.Clusters {
				if s.Name != but {
					found = append(found, c.Name)
				}
			}
		}
		slices.Sort(found)
		return slices.Equal(found, names(members))
	})
}

// TestTheCollectorReadsSlices: of an owner whose record is in slices nothing is removed but what is in none of them, and nothing
// while they cannot be read.
func TestTheCollectorReadsSlices(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 3)
	placed, other := w.Members[:2], w.Members[2]
	p := w.run(w.sliced())
	w.create(w.Local, w.owner("a", names(placed)...))
	w.areSliced(placed...)
	eventually(t, "the program is at rest", p.isAtRest)
	p.stop()
	w.owned(other, "stray", w.to(w.mustGet(w.Local, "a"), func(r *mcowner.Reference) { r.Manager = controller }))
	before := []*corev1.ConfigMap{w.mustGet(placed[0], copyOf("a")), w.mustGet(placed[1], copyOf("a"))}
	readers := func(resources ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{
			{APIGroups: []string{"", "dependents.fleet-runtime.dev"}, Resources: resources, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		}
	}
	blind := w.collectAs(w.Local.AddUser(t, "blind", readers("configmaps")...))
	w.swept(other, 3)
	if w.get(other, "stray") == nil {
		t.Error("a dependent was removed although the slices of its owner cannot be read")
	}
	if n := w.metric("fleet_runtime_unproven_dependents", other, "", ""); n != 1 {
		t.Errorf("%v dependents are unproven, want 1", n)
	}
	blind.stop()
	w.collectAs(w.Local.AddUser(t, "seeing", readers("configmaps", "dependentslices")...), func(c *orphans.Collector) {
		c.OwnersIn = mcowner.Clusters{Local: true} // the cache knows that the owner is there
	})
	w.isGone(other, "stray")
	for i, cp := range placed {
		w.swept(cp, 3)
		w.unharmed(cp, before[i])
	}
}

// TestTheCollectorWithoutASliceRemovesNothing: the owner says that there is one, and somebody has taken it.
func TestTheCollectorWithoutASliceRemovesNothing(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 3)
	p := w.run(w.sliced())
	w.create(w.Local, w.owner("a", names(w.Members)...))
	w.areSliced(w.Members...)
	eventually(t, "the program is at rest", p.isAtRest)
	p.stop()
	all := w.slices()
	if len(all) < 2 {
		t.Fatal("there is one slice alone")
	}
	w.editSlice(all[0].Clusters[0].Name, func(s *v1alpha1.DependentSlice) { s.Finalizers = nil })
	if err := w.Local.Client().Delete(t.Context(), &all[0]); err != nil {
		t.Fatal(err)
	}
	w.collect(func(c *orphans.Collector) { c.OwnersIn = mcowner.Clusters{Local: true} })
	for _, cp := range w.Members {
		w.swept(cp, 3)
		if w.get(cp, copyOf("a")) == nil {
			t.Errorf("%s has no dependent any more", cp.Name)
		}
	}
}

// TestSlicesOfAnOwnerThatTheCacheDoesNotHaveStay: its API server alone says whether it is gone.
func TestSlicesOfAnOwnerThatTheCacheDoesNotHaveStay(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	w.clusterOptions = func(fleet.Member) []cluster.Option {
		return []cluster.Option{func(o *cluster.Options) {
			o.Cache.ByObject = map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Label: labels.SelectorFromSet(labels.Set{"owner": "yes"})}}
		}}
	}
	r := w.sliced()
	r.OwnersIn, r.Kinds = mcowner.Clusters{Members: named(one.Name)}, []client.Object{&corev1.Secret{}}
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		return []client.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: copyOf(owner.Name)}}}, nil
	}
	p := w.run(r)
	owner := w.owner("a", two.Name)
	owner.Labels = map[string]string{"owner": "yes"}
	w.create(one, owner)
	list := &v1alpha1.DependentSliceList{}
	in := func() int {
		if err := one.Client().List(t.Context(), list, client.InNamespace(w.ns)); err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	eventually(t, "there is a slice that says that all is done", func() bool {
		return in() == 1 && len(list.Items[0].Clusters) == 1 && len(list.Items[0].Clusters[0].Objects) == 1
	})
	eventually(t, "the program is at rest", p.isAtRest)
	sent := requestsOf(p, w.ns, "configmaps")
	w.change(one, "a", func(cm *corev1.ConfigMap) { cm.Labels = nil })
	eventually(t, "the API server was asked for the owner", func() bool { return slices.Contains(sent.sorted(), "GET a") })
	eventually(t, "the program is at rest", p.isAtRest)
	if n := in(); n != 1 {
		t.Errorf("there are %d slices", n)
	}
}

// TestSlicesWithoutTheirKind are an error at set-up where that can be told, and an event on the owner elsewhere, which gets its
// dependents once the kind is there.
func TestSlicesWithoutTheirKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	var locally error
	w.runWith(func(mgr mcmanager.Manager) error {
		r := w.spread()
		r.Slices = &dependents.Slices{}
		locally = r.SetupWithManager(mgr)
		r.OwnersIn = mcowner.Clusters{Members: named(one.Name)}
		return r.SetupWithManager(mgr)
	})
	if locally == nil || !strings.Contains(locally.Error(), "install the manifest") {
		t.Errorf("the set-up for the local cluster says %v", locally)
	}
	w.create(one, w.owner("a", two.Name))
	w.told(one, "a", dependents.EventFailed, "install the manifest that v1alpha1.CRD returns")
	if w.get(two, copyOf("a")) != nil {
		t.Error("a dependent was created that is noted nowhere")
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(v1alpha1.CRD()), &crd.Object); err != nil {
		t.Fatal(err)
	}
	w.create(one, crd)
	w.isCopied(two, "a")
	w.remove(one, "a")
	w.isGone(one, "a")
	w.isGone(two, copyOf("a"))
}

// TestTheRightsOfTheDocsSufficeForSlices, and one that is missing is told by its name.
func TestTheRightsOfTheDocsSufficeForSlices(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	rights := func(user string, verbs ...string) fleet.Member {
		return fleet.Member{Name: fleet.ClusterName(one.Name), Labels: map[string]string{"name": one.Name}, Config: one.AddUser(t, user, []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "patch"}},
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}},
			{APIGroups: []string{"dependents.fleet-runtime.dev"}, Resources: []string{"dependentslices"}, Verbs: verbs},
		}...)}
	}
	r := w.sliced()
	r.OwnersIn, r.DependentsIn = mcowner.Clusters{Members: named(one.Name)}, mcowner.Clusters{Members: named(two.Name)}
	w.Members = w.Members[1:] // the other is reported below
	p := w.run(r)
	if err := p.members.Set(rights("reader", "get", "list", "watch")); err != nil {
		t.Fatal(err)
	}
	w.create(one, w.owner("a", two.Name))
	w.told(one, "a", dependents.EventForbidden, `cannot create resource "dependentslices"`)
	if w.get(two, copyOf("a")) != nil {
		t.Error("a dependent was created that is noted nowhere")
	}
	all := rights("writer", "get", "list", "watch", "create", "update", "patch", "delete")
	all.Revision = "2"
	if err := p.members.Set(all); err != nil {
		t.Fatal(err)
	}
	w.isCopied(two, "a")
	w.change(one, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
	w.isGone(two, copyOf("a"))
	w.change(one, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = two.Name })
	w.isCopied(two, "a")
	w.remove(one, "a")
	w.isGone(one, "a")
	list := &v1alpha1.DependentSliceList{}
	if err := one.Client().List(t.Context(), list, client.InNamespace(w.ns)); err != nil || len(list.Items) > 0 {
		t.Errorf("%d slices are left, error %v", len(list.Items), err)
	}
}

// TestAControllerRetiresWithItsSlices, and nothing of the owner keeps its namespace from being deleted.
func TestAControllerRetiresWithItsSlices(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 3)
	r := w.sliced()
	p := w.run(r)
	w.create(w.Local, w.owner("a", names(w.Members)...))
	w.areSliced(w.Members...)
	eventually(t, "the program is at rest", p.isAtRest)
	before := w.mustGet(w.Members[0], copyOf("a"))
	p.stop()
	r.Retire = dependents.LeaveAsIs
	w.run(r)
	w.hasNothing(w.Local, "a")
	if left := w.slices(); len(left) > 0 {
		t.Errorf("%d slices are left", len(left))
	}
	w.unharmed(w.Members[0], before)
}

// TestABurstWritesFewSlices: a hundred dependents go, one after the other, and come back. None goes so often that others would be taken
// to fight for it.
func TestABurstWritesFewSlices(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 1)
	one := w.Members[0]
	r := w.sliced()
	r.Slices, r.Desired = dependents.SlicesOf(100_000), w.names
	p := w.run(r)
	owner := w.owner("a", one.Name)
	names := make([]string, 25)
	for i := range names {
		names[i] = fmt.Sprintf("copy-%02d", i)
	}
	owner.Data["value"] = strings.Join(names, " ")
	w.create(w.Local, owner)
	eventually(t, "the slice has all copies", func() bool {
		objects := w.inSlices()[one.Name].Objects
		return len(objects) == len(names) && !slices.ContainsFunc(objects, func(o v1alpha1.Object) bool { return o.UID == "" })
	})
	eventually(t, "the program is at rest", p.isAtRest)
	sent, begun := requestsOf(p, w.ns, "dependentslices"), time.Now()
	last := names[len(names)-1]
	var uid types.UID
	for range 4 {
		for _, name := range names {
			before := w.mustGet(one, name).UID
			w.remove(one, name)
			eventually(t, "the copy is there again", func() bool {
				cm := w.get(one, name)
				if cm == nil || cm.UID == before {
					return false
				}
				uid = cm.UID
				return true
			})
		}
	}
	eventually(t, "the slice has the last copy", func() bool {
		return slices.ContainsFunc(w.inSlices()[one.Name].Objects, func(o v1alpha1.Object) bool { return o.Name == last && o.UID == uid })
	})
	took := time.Since(begun)
	writes := slices.DeleteFunc(sent.sorted(), func(s string) bool { return strings.HasPrefix(s, http.MethodGet) })
	t.Logf("%d requests wrote slices in %s", len(writes), took)
	if most := 2 + int(took/time.Second); len(writes) > most {
		t.Errorf("%d requests wrote slices in %s", len(writes), took)
	}
}

// TestATargetThatNoMemberCanBeHoldsUpNoOther: its name is too long to be noted. Status is told of it, and no slice has it.
func TestATargetThatNoMemberCanBeHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, long := range map[string]string{"a little": strings.Repeat("é", 200), "a lot": strings.Repeat("x", 10_000)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSlicedWorld(t, 3)
			one, two, other := w.Members[0], w.Members[1], w.Members[2]
			var told atomic.Pointer[dependents.Summary]
			run := func() *process {
				told.Store(&dependents.Summary{})
				r := w.sliced()
				r.Status = func(_ context.Context, _ *corev1.ConfigMap, results []dependents.Result) error {
					if slices.ContainsFunc(results, func(r dependents.Result) bool { return r.Cluster == fleet.ClusterName(other.Name) }) {
						t.Error("there may be dependents in a member that was never a target")
					}
					told.Store(new(dependents.Summarize(results)))
					return nil
				}
				return w.run(r)
			}
			isTold := func(done int) {
				t.Helper()
				eventually(t, "Status is told", func() bool { s := told.Load(); return s.Done == done && s.Unreachable == 1 })
			}
			p := run()
			w.create(w.Local, w.owner("a", one.Name, long))
			isTold(1)
			w.areSliced(one)
			eventually(t, "the program is at rest", p.isAtRest)
			p.stop()
			p = run()
			isTold(1)
			eventually(t, "the program is at rest again", p.isAtRest)
			w.areSliced(one)
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] += "," + two.Name })
			isTold(2)
			w.areSliced(one, two)
			if w.has(w.Local, "a", dependents.EventFailed, "") {
				t.Error("an event says that something has failed")
			}
		})
	}
}
