package dependents_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// holding keeps an object from being gone.
const holding = "test.fleet-runtime.dev/holding"

// holds reports whether the controller still holds the owner.
func holds(owner *corev1.ConfigMap) bool {
	return owner != nil && slices.ContainsFunc(owner.Finalizers, func(f string) bool { return strings.HasSuffix(f, "/dependents") })
}

// letGo removes a finalizer. It must not write back one that the controller removes meanwhile.
func (w *world) letGo(cp *mctest.ControlPlane, name, finalizer string) {
	w.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		cm := w.mustGet(cp, name)
		patch := client.MergeFromWithOptions(cm.DeepCopy(), client.MergeFromWithOptimisticLock{})
		cm.Finalizers = slices.DeleteFunc(cm.Finalizers, func(f string) bool { return f == finalizer })
		return cp.Client().Patch(w.t.Context(), cm, patch)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestInTheBackgroundTheOwnerDoesNotWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	w.run(w.spread())
	w.create(w.Local, w.owner("a", one.Name))
	w.isCopied(one, "a")
	w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Finalizers = []string{holding} })
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	if w.mustGet(one, copyOf("a")).DeletionTimestamp == nil {
		t.Error("the dependent is not being deleted")
	}
	w.letGo(one, copyOf("a"), holding)
	w.isGone(one, copyOf("a"))
}

func TestInTheForegroundTheOwnerWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	w.run(w.spread())
	w.create(w.Local, w.owner("a", one.Name, two.Name))
	w.isCopied(one, "a")
	w.isCopied(two, "a")
	w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Finalizers = []string{holding} })
	w.remove(w.Local, "a", client.PropagationPolicy(metav1.DeletePropagationForeground))
	w.letGo(w.Local, "a", metav1.FinalizerDeleteDependents) // as the garbage collector does, which sees no dependents
	for _, cp := range w.Members {
		eventually(t, "the dependent is being deleted", func() bool { return w.mustGet(cp, copyOf("a")).DeletionTimestamp != nil })
	}
	for _, cp := range w.Members { // as their garbage collectors do
		w.letGo(cp, copyOf("a"), metav1.FinalizerDeleteDependents)
	}
	w.isGone(two, copyOf("a"))
	eventually(t, "the owner waits for one cluster alone", func() bool {
		owner := w.mustGet(w.Local, "a")
		return holds(owner) && strings.Contains(placedIn(owner), "member-1") && !strings.Contains(placedIn(owner), "member-2")
	})
	w.letGo(one, copyOf("a"), holding)
	w.isGone(w.Local, "a")
}

// placedIn returns where the owner says that it may have dependents.
func placedIn(owner *corev1.ConfigMap) string {
	for key, value := range owner.Annotations {
		if strings.HasSuffix(key, "/placed-in") {
			return value
		}
	}
	return ""
}

// TestOrphansStay: the garbage collector takes the finalizer that says so at once.
func TestOrphansStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	p := w.run(w.spread())
	stays := func(t *testing.T, name string) {
		t.Helper()
		w.isGone(w.Local, name)
		cm := w.mustGet(one, copyOf(name))
		if cm.DeletionTimestamp != nil || len(cm.Annotations) > 0 || len(cm.Labels) > 0 {
			t.Errorf("the dependent is deleted at %v, with labels %v and annotations %v", cm.DeletionTimestamp, cm.Labels, cm.Annotations)
		}
	}
	t.Run("AsTheDeletionAsks", func(t *testing.T) {
		w.create(w.Local, w.owner("a", one.Name))
		w.isCopied(one, "a")
		w.remove(w.Local, "a", client.PropagationPolicy(metav1.DeletePropagationOrphan))
		w.letGo(w.Local, "a", metav1.FinalizerOrphanDependents)
		stays(t, "a")
		w.told(w.Local, "a", dependents.EventOrphaned, copyOf("a"))
	})
	t.Run("AsItAskedBeforeARestart", func(t *testing.T) {
		w.create(w.Local, w.owner("b", one.Name))
		w.isCopied(one, "b")
		one.Freeze(t)
		p.is(one, fleet.Unreachable)
		w.remove(w.Local, "b", client.PropagationPolicy(metav1.DeletePropagationOrphan))
		w.letGo(w.Local, "b", metav1.FinalizerOrphanDependents)
		eventually(t, "the owner says how it is being deleted", func() bool {
			return w.mustGet(w.Local, "b").Annotations[dependents.DeletionPolicyAnnotation] == "Orphan"
		})
		p.kill()
		one.Thaw(t)
		p = w.run(w.spread())
		stays(t, "b")
	})
	t.Run("AsAnAnnotationSays", func(t *testing.T) {
		owner := w.owner("c", one.Name)
		owner.Annotations[dependents.DeletionPolicyAnnotation] = "Orphan"
		w.create(w.Local, owner)
		w.isCopied(one, "c")
		p.stop()
		w.remove(w.Local, "c")
		w.run(w.spread())
		stays(t, "c")
	})
}

// TestWhatIsNoPolicyDeletesNothing: an annotation that is misspelt is told, at once, and holds up the deletion until it is mended.
func TestWhatIsNoPolicyDeletesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	var results latest
	r := w.spread()
	r.Status = results.note
	p := w.run(r)
	owner := w.owner("a", one.Name)
	owner.Annotations[dependents.DeletionPolicyAnnotation] = "orphan"
	w.create(w.Local, owner)
	before := w.isCopied(one, "a")
	w.told(w.Local, "a", dependents.EventInvalidPolicy, `"Orphan"`)
	w.remove(w.Local, "a")
	eventually(t, "the result says why the owner waits", func() bool {
		err := results.of("a", one).Err
		return err != nil && strings.Contains(err.Error(), dependents.DeletionPolicyAnnotation)
	})
	eventually(t, "all is at rest", p.isAtRest)
	if now := w.mustGet(one, copyOf("a")); now.UID != before.UID || now.DeletionTimestamp != nil {
		t.Errorf("the dependent is %v", now)
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations[dependents.DeletionPolicyAnnotation] = "Orphan" })
	w.isGone(w.Local, "a")
	if now := w.mustGet(one, copyOf("a")); now.UID != before.UID || now.DeletionTimestamp != nil || len(now.Labels) > 0 {
		t.Errorf("the dependent is %v", now)
	}
}

// TestDeletionWaitsForAProviderThatReportsLate, also of a cluster that the owner has given up once, and that is back since.
func TestDeletionWaitsForAProviderThatReportsLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	p := w.run(w.spread())
	w.create(w.Local, w.owner("a", one.Name))
	w.isCopied(one, "a")
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations[dependents.GiveUpAnnotation] = one.Name })
	p.stop()
	w.remove(w.Local, "a")
	w.Members = nil // reported below
	p = w.run(w.spread())
	w.told(w.Local, "a", dependents.EventClusterNotReady, one.Name)
	if !holds(w.mustGet(w.Local, "a")) {
		t.Error("the owner did not wait")
	}
	if err := p.members.Set(p.member(one)); err != nil {
		t.Fatal(err)
	}
	w.isGone(w.Local, "a")
	w.isGone(one, copyOf("a"))
}

// TestDeletionWaitsForClusters that are not ready, that no provider has reported yet, or that were removed.
func TestDeletionWaitsForClusters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	p := w.run(w.spread())
	for _, name := range []string{"a", "b"} {
		w.create(w.Local, w.owner(name, one.Name, two.Name))
		w.isCopied(one, name)
		w.isCopied(two, name)
	}
	t.Run("NotReady", func(t *testing.T) {
		two.Stop(t)
		p.is(two, fleet.Unreachable)
		w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations[dependents.GiveUpAnnotation] = two.Name }) // it is in the fleet
		w.remove(w.Local, "a")
		w.isGone(one, copyOf("a"))
		w.told(w.Local, "a", dependents.EventClusterNotReady, "member-2")
		if !holds(w.get(w.Local, "a")) {
			t.Error("the owner did not wait")
		}
		two.Restart(t)
		w.isGone(w.Local, "a")
		w.isGone(two, copyOf("a"))
	})
	t.Run("GoneAndUnknown", func(t *testing.T) {
		<-p.members.Remove("member-2")
		w.remove(w.Local, "b")
		w.told(w.Local, "b", dependents.EventClusterNotReady, "was removed")
		p.stop()
		members := w.Members
		w.Members = members[:1] // the next process does not know the other
		p = w.run(w.spread())
		w.Members = members
		w.told(w.Local, "b", dependents.EventClusterNotReady, "no provider has reported")
		if !holds(w.get(w.Local, "b")) {
			t.Error("the owner did not wait")
		}
		if err := p.members.Set(p.member(two)); err != nil {
			t.Fatal(err)
		}
		w.isGone(w.Local, "b")
		w.isGone(two, copyOf("b"))
	})
}

func TestAClusterThatIsGoneForGoodIsReleased(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.spread()
	r.ReleaseAfter = time.Second
	r.Sweep.Interval = 100 * time.Millisecond
	p := w.run(r)
	w.create(w.Local, w.owner("emptied", two.Name))
	w.isCopied(two, "emptied")
	for _, name := range []string{"deleted", "retargeted"} {
		w.create(w.Local, w.owner(name, one.Name, two.Name))
		w.isCopied(one, name)
		w.isCopied(two, name)
	}
	<-p.members.Remove("member-2")
	w.remove(w.Local, "deleted")
	w.change(w.Local, "retargeted", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = one.Name })
	w.change(w.Local, "emptied", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
	eventually(t, "the owner that has no targets names no cluster", func() bool { return placedIn(w.mustGet(w.Local, "emptied")) == "" })
	w.isGone(w.Local, "deleted")
	w.told(w.Local, "deleted", dependents.EventReleased, "member-2")
	eventually(t, "the other owner no longer names the cluster", func() bool {
		return !strings.Contains(placedIn(w.mustGet(w.Local, "retargeted")), "member-2")
	})
	// What was left is found when the cluster comes back.
	w.mustGet(two, copyOf("deleted"))
	if err := p.members.Set(p.member(two)); err != nil {
		t.Fatal(err)
	}
	w.isGone(two, copyOf("deleted"))
	w.isGone(two, copyOf("retargeted"))
	w.isGone(two, copyOf("emptied"))
	w.mustGet(one, copyOf("retargeted"))
}

// TestWhatWasTakenFromTheOwnerStays when the owner is deleted.
func TestWhatWasTakenFromTheOwnerStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	other := w.owner("other")
	w.create(w.Local, other)
	cases := map[string]func(*corev1.ConfigMap){
		"released": func(cm *corev1.ConfigMap) { cm.Annotations = nil },
		"unreadable": func(cm *corev1.ConfigMap) {
			for key := range cm.Annotations {
				cm.Annotations[key] = "nonsense"
			}
		},
		"shared": func(cm *corev1.ConfigMap) {
			second, err := mcowner.ReferenceTo(fleetName, mcowner.ByName(""), other, scheme.Scheme)
			if err == nil {
				err = mcowner.SetOwnerReference(second, cm, mcowner.ByName("member-1"))
			}
			if err != nil {
				t.Error(err)
			}
		},
		"natively-shared": func(cm *corev1.ConfigMap) {
			cm.OwnerReferences = append(cm.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"})
		},
	}
	p := w.run(w.spread())
	for name, change := range cases {
		w.create(w.Local, w.owner(name, one.Name))
		w.isCopied(one, name)
		w.change(one, copyOf(name), change)
	}
	for name := range cases {
		w.remove(w.Local, name)
		w.isGone(w.Local, name)
		cm := w.mustGet(one, copyOf(name))
		if _, owned := mcowner.ControllerOf(cm, mcowner.ByName("member-1")); owned || cm.DeletionTimestamp != nil {
			t.Errorf("%s: the dependent is deleted at %v, with annotations %v", name, cm.DeletionTimestamp, cm.Annotations)
		}
	}
	p.stop()
}

// TestAKindThatIsNotServedHoldsUpNothing: a cluster without the CRD has no dependents of the kind.
func TestAKindThatIsNotServedHoldsUpNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	r := w.spread()
	r.Kinds = append(r.Kinds, widget)
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		w := widget.DeepCopy()
		w.SetNamespace(owner.Namespace)
		w.SetName(owner.Name)
		all, err := desired(ctx, owner, target)
		return append(all, w), err
	}
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	eventually(t, "the owner may have dependents in the cluster", func() bool { return strings.Contains(placedIn(w.mustGet(w.Local, "a")), "member-1") })
	eventually(t, "the fleet says what is wrong", func() bool {
		status, _ := p.GetFleet().Status("member-1")
		return len(status.NotSynced) == 1 && status.NotSynced[0].Name() == "Widget.example.com"
	})
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
}

// TestAKindThatIsNoLongerServedHoldsUpNothing: its dependents went with it, and what the program knows of the cluster's kinds
// is of before.
func TestAKindThatIsNoLongerServedHoldsUpNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "gadgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names": map[string]any{"kind": "Gadget", "plural": "gadgets"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
	w.create(one, crd)
	gadget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Gadget"}}
	gadget.SetNamespace(w.owner("a").Namespace)
	gadget.SetName("a")
	r := w.spread()
	r.Kinds = append(r.Kinds, gadget.DeepCopy())
	r.Desired = func(context.Context, *corev1.ConfigMap, dependents.Target) ([]client.Object, error) {
		return []client.Object{gadget.DeepCopy()}, nil
	}
	w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	key := client.ObjectKeyFromObject(gadget)
	eventually(t, "the dependent is there", func() bool { return one.Client().Get(t.Context(), key, gadget.DeepCopy()) == nil })
	if err := one.Client().Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the kind is no longer served", func() bool {
		return one.Client().Get(t.Context(), client.ObjectKeyFromObject(crd), crd.DeepCopy()) != nil
	})
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
}

// TestADeletionThatOrphansAfterAnotherKeepsTheDependents: the last one holds, as in one cluster, and not what was noted of the first.
func TestADeletionThatOrphansAfterAnotherKeepsTheDependents(t *testing.T) {
	t.Parallel()
	for _, first := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		t.Run(string(first), func(t *testing.T) {
			t.Parallel()
			w := newWorldIn(t, mctest.Start(t, mctest.Options{Clusters: 2}))
			one := w.Members[0]
			p := w.run(w.spread())
			w.create(w.Local, w.owner("a", one.Name))
			before := w.isCopied(one, "a")
			one.Freeze(t)
			p.is(one, fleet.Unreachable)
			w.remove(w.Local, "a", client.PropagationPolicy(first))
			w.told(w.Local, "a", dependents.EventClusterNotReady, one.Name)
			eventually(t, "the program is at rest", p.isAtRest)
			w.removeAsOrphan("a") // somebody thinks better of it
			one.Thaw(t)
			w.isReleased(one, before)
			w.isGone(w.Local, "a")
		})
	}
}
