package dependents_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// versions returns those of the slices, by name.
func (w *world) versions() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for _, s := range w.slices() {
		all[s.Name] = s.ResourceVersion
	}
	return all
}

// TestARestartWritesNoSliceThatIsAsItShouldBe, although some clusters are not as desired.
func TestARestartWritesNoSliceThatIsAsItShouldBe(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 4)
	inTheWay := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: copyOf("a")}}
	w.create(w.Members[1], inTheWay)
	r := w.sliced()
	r.Slices = dependents.SlicesOf(2500) // what there is to say of a conflict takes half of that
	p := w.run(r)
	w.create(w.Local, w.owner("a", names(w.Members)...))
	eventually(t, "slices have what came of all members", func() bool {
		all := w.inSlices()
		good := len(all) == 4 && strings.Contains(all[w.Members[1].Name].Error, "is not this owner's")
		for i, cp := range w.Members {
			good = good && len(all[cp.Name].Objects) == 2 && (i == 1 || all[cp.Name].Error == "")
		}
		return good
	})
	eventually(t, "the program is at rest", p.isAtRest)
	p.stop()
	before, said := w.versions(), w.inSlices()
	all := reportsOf(t, r)
	p = w.run(r)
	eventually(t, "all members were looked at", func() bool {
		all.mu.Lock()
		defer all.mu.Unlock()
		looked := 0
		for _, result := range all.of["a"] {
			if len(result.Objects) == 2 {
				looked++
			}
		}
		return looked == 4
	})
	eventually(t, "the program is at rest", p.isAtRest)
	if diff := cmp.Diff(before, w.versions()); diff != "" {
		t.Errorf("slices were written (-before, +after):\n%s", diff)
	}
	// News of one member, so that all is written that waits.
	first := w.Members[0].Name
	uid := said[first].Objects[0].UID
	w.remove(w.Members[0], copyOf("a"))
	eventually(t, "the slice has the new copy", func() bool { now := w.inSlices()[first].Objects[0].UID; return now != uid && now != "" })
	now := w.inSlices()
	delete(said, first)
	delete(now, first)
	if diff := cmp.Diff(said, now); diff != "" {
		t.Errorf("what slices say of the others (-before, +after):\n%s", diff)
	}
	w.remove(w.Members[1], copyOf("a"))
	w.areSliced(w.Members...)
}

// TestARecordThatNoAnnotationHasRoomFor: of an owner with a thousand clusters of long names. What is taken from the option loses
// nothing, and is told.
func TestARecordThatNoAnnotationHasRoomFor(t *testing.T) {
	t.Parallel()
	const many = 900
	w := newSlicedWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.sliced()
	r.Slices = &dependents.Slices{}
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	w.areSliced(one)
	eventually(t, "the program is at rest", p.isAtRest)
	p.stop()
	w.editSlice(one.Name, func(s *v1alpha1.DependentSlice) { // as if they had been members once
		for i := range many {
			s.Clusters = append(s.Clusters, v1alpha1.Cluster{Name: fmt.Sprintf("%0300d", i), MayHaveDependents: true})
		}
	})
	noted := func() (n int) {
		for _, c := range w.inSlices() {
			if c.MayHaveDependents {
				n++
			}
		}
		return n
	}
	p = w.run(r)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = two.Name })
	w.isGone(one, copyOf("a"))
	before := w.isCopied(two, "a")
	eventually(t, "slices have all of them, and the member that is there now", func() bool { return noted() == many+1 })
	if n := len(w.slices()); n < 2 {
		t.Errorf("there are %d slices", n)
	}
	eventually(t, "the program is at rest", p.isAtRest)
	p.stop()

	p = w.run(w.spread())
	w.told(w.Local, "a", dependents.EventFailed, "Too long")
	p.stop()
	if n := noted(); n != many+1 {
		t.Errorf("without the option, slices have %d clusters", n)
	}
	w.unharmed(two, before)

	r.ReleaseAfter = time.Millisecond
	w.run(r)
	w.areSliced(two)
	w.unharmed(two, before)
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	w.isGone(two, copyOf("a"))
	if n := len(w.slices()); n > 0 {
		t.Errorf("%d slices are left", n)
	}
}

// runClusterRoles spreads the ClusterRole of the world's name, which is in no namespace.
func (w *world) runClusterRoles(to *mctest.ControlPlane, slices *dependents.Slices) *process {
	return w.run(&dependents.Reconciler[*rbacv1.ClusterRole]{
		Fleet: fleetName, Name: controller, OwnersIn: mcowner.Clusters{Local: true}, Kinds: []client.Object{&corev1.ConfigMap{}}, Slices: slices,
		Targets: func(_ context.Context, owner *rbacv1.ClusterRole) ([]mcreconcile.ClusterName, error) {
			if owner.Name != w.ns {
				return nil, nil
			}
			return []mcreconcile.ClusterName{mcreconcile.ClusterName(to.Name)}, nil
		},
		Desired: func(_ context.Context, owner *rbacv1.ClusterRole, _ dependents.Target) ([]client.Object, error) {
			return []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: copyOf(owner.Name)}}}, nil
		},
	})
}

// slicesOfRole returns how many slices of the world's ClusterRole are in a namespace.
func (w *world) slicesOfRole(namespace string) (n int) {
	w.t.Helper()
	list := &v1alpha1.DependentSliceList{}
	if err := w.Local.Client().List(w.t.Context(), list, client.InNamespace(namespace)); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range list.Items {
		if s.Owner.Name == w.ns {
			n++
		}
	}
	return n
}

// goesWithItsSlices deletes the world's ClusterRole, and waits until it is gone, with all it has in a member and in these namespaces.
func (w *world) goesWithItsSlices(owner *rbacv1.ClusterRole, from *mctest.ControlPlane, namespaces ...string) {
	w.t.Helper()
	if err := w.Local.Client().Delete(w.t.Context(), owner); err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, "the owner is gone", func() bool {
		return apierrors.IsNotFound(w.Local.Client().Get(w.t.Context(), client.ObjectKeyFromObject(owner), owner))
	})
	w.isGone(from, copyOf(w.ns))
	for _, namespace := range namespaces {
		if n := w.slicesOfRole(namespace); n > 0 {
			w.t.Errorf("%d slices are left in %s", n, namespace)
		}
	}
}

// TestOwnersWithoutANamespaceHaveSlicesInOneThatIsSaid.
func TestOwnersWithoutANamespaceHaveSlicesInOneThatIsSaid(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 1)
	one := w.Members[0]
	p := w.runClusterRoles(one, &dependents.Slices{Namespace: w.ns})
	owner := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}
	w.create(w.Local, owner)
	before := w.isCopied(one, w.ns)
	eventually(t, "the program is at rest", p.isAtRest)
	if n := w.slicesOfRole(w.ns); n != 1 {
		t.Errorf("there are %d slices in the namespace that is said", n)
	}
	p.stop()
	w.runClusterRoles(one, &dependents.Slices{}) // the owner says where the slices are that there are
	w.unharmed(one, before)
	w.goesWithItsSlices(owner, one, w.ns, metav1.NamespaceDefault)
}

// TestSlicesOfAnOwnerWithoutANamespaceGoWithIt from where an earlier configuration has put them, though its finalizer was taken.
func TestSlicesOfAnOwnerWithoutANamespaceGoWithIt(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 1)
	one, former := w.Members[0], w.Local.CreateNamespace(t)
	p := w.runClusterRoles(one, &dependents.Slices{Namespace: former})
	owner := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}
	w.create(w.Local, owner)
	w.isCopied(one, w.ns)
	eventually(t, "it has a slice", func() bool { return w.slicesOfRole(former) == 1 })
	eventually(t, "the program is at rest", p.isAtRest)
	p.stop()
	if err := w.Local.Client().Delete(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	if err := w.Local.Client().Patch(t.Context(), owner, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	w.runClusterRoles(one, &dependents.Slices{Namespace: w.ns})
	eventually(t, "the slice is gone", func() bool { return w.slicesOfRole(former) == 0 })
}

// TestAnOwnerWithoutANamespaceDoesNotSayWhereSlicesAreMade, nor is it stuck if what it says makes no sense: tenants may write it.
func TestAnOwnerWithoutANamespaceDoesNotSayWhereSlicesAreMade(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]string{
		"another namespace": `{"namespace":"%s"}`, "slices there": `{"namespace":"%s","numbers":[0]}`, "nothing": "", "nonsense": "nonsense", "no namespace": "{}",
		"no name": `{"namespace":"a/%s"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSlicedWorld(t, 1)
			one, others := w.Members[0], w.Local.CreateNamespace(t)
			owner := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{
				Name: w.ns, Annotations: map[string]string{keysDomain + "/slices": strings.Replace(said, "%s", others, 1)},
			}}
			w.create(w.Local, owner)
			p := w.runClusterRoles(one, &dependents.Slices{Namespace: w.ns})
			w.isCopied(one, w.ns)
			eventually(t, "the program is at rest", p.isAtRest)
			if n, there := w.slicesOfRole(w.ns), w.slicesOfRole(others); n != 1 || there > 0 {
				t.Errorf("there are %d slices in the namespace that is said, and %d in that of others", n, there)
			}
			w.goesWithItsSlices(owner, one, w.ns, others)
		})
	}
}

// TestAHundredOwnersHaveSlicesOfTheirOwn, and none are left when these go, as they do with their namespace.
func TestAHundredOwnersHaveSlicesOfTheirOwn(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 2)
	r := w.sliced()
	r.Slices = &dependents.Slices{}
	p := w.run(r)
	for i := range 100 {
		w.create(w.Local, w.owner(fmt.Sprintf("a%d", i), names(w.Members)...))
	}
	eventually(t, "each has a slice that says that all is done", func() bool {
		done := 0
		for _, s := range w.slices() {
			good := len(s.Clusters) == 2
			for _, c := range s.Clusters {
				good = good && c.MayHaveDependents && c.Error == "" && len(c.Objects) == 2
			}
			if good {
				done++
			}
		}
		return done == 100
	})
	eventually(t, "the program is at rest", p.isAtRest)
	t.Logf("%d requests have written something", p.power.writes.Load())
	for _, kind := range []client.Object{&v1alpha1.DependentSlice{}, &corev1.ConfigMap{}} {
		if err := w.Local.Client().DeleteAllOf(t.Context(), kind, client.InNamespace(w.ns)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all is gone", func() bool { return len(w.slices())+len(w.list(w.Members[0]))+len(w.list(w.Members[1])) == 0 })
}
