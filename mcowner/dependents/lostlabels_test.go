package dependents_test

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestWhatIsCreatedOnlyGetsItsLabelsBack, and is left as it is otherwise: without them it would not be found when its owner goes.
// While it is suspended, nothing is written.
func TestWhatIsCreatedOnlyGetsItsLabelsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Policy.Change = dependents.CreateOnly
	withOverrides(r)
	all := reportsOf(t, r)
	p := w.run(r)
	for _, name := range []string{"a", "suspended"} {
		w.create(w.Local, w.owner(name, one.Name))
		w.isCopied(one, name)
	}
	w.change(w.Local, "suspended", func(cm *corev1.ConfigMap) { cm.Annotations["dependent."+dependents.SuspendAnnotation] = "true" })
	eventually(t, "it is suspended", func() bool { return p.isAtRest() && !all.object("suspended").Since.IsZero() })
	before := w.mustGet(one, copyOf("a"))
	for _, name := range []string{"a", "suspended"} {
		w.change(one, copyOf(name), func(cm *corev1.ConfigMap) {
			cm.Labels = map[string]string{"mine": "yes"}
			cm.Data["value"] = "by hand"
		})
	}
	eventually(t, "the labels are there again", func() bool {
		return w.mustGet(one, copyOf("a")).Labels[mcowner.FleetLabel] == fleetName
	})
	now := w.mustGet(one, copyOf("a"))
	for key, want := range before.Labels {
		if got, is := now.Labels[key]; !is || got != want {
			t.Errorf("the label %s is %q, before %q", key, got, want)
		}
	}
	if now.Labels["mine"] != "yes" || now.Data["value"] != "by hand" {
		t.Errorf("it was changed besides: labels %v, data %v", now.Labels, now.Data)
	}
	all.is("suspended", dependents.Suspended)
	if labels := w.mustGet(one, copyOf("suspended")).Labels; len(labels) != 1 {
		t.Errorf("what is suspended was written to: %v", labels)
	}
	for _, name := range []string{"a", "suspended"} {
		w.remove(w.Local, name)
		w.isGone(w.Local, name)
		w.isGone(one, copyOf(name))
	}
}

// TestWhatIsCreatedOnlyStaysIfItIsToStay, also if that is desired later, or somebody has taken what says so.
func TestWhatIsCreatedOnlyStaysIfItIsToStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Policy.Change = dependents.CreateOnly
	withOverrides(r)
	w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	before := w.isCopied(one, "a")
	says := func() bool {
		return w.mustGet(one, copyOf("a")).Annotations[dependents.DeletionPolicyAnnotation] == "Orphan"
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) {
		cm.Annotations["dependent."+dependents.DeletionPolicyAnnotation] = "Orphan"
	})
	eventually(t, "it says that it stays", says)
	w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) { delete(cm.Annotations, dependents.DeletionPolicyAnnotation) })
	eventually(t, "it says so again", says)
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	w.unharmed(one, before)
}

// TestANamespaceThatIsSharedGetsItsLabelsBack, by which it is found when its last owner goes.
func TestANamespaceThatIsSharedGetsItsLabelsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, name := w.Members[0], w.ns+"-shared"
	w.run(w.inNamespaces())
	w.create(w.Local, w.ownerIn("a", name))
	eventually(t, "the namespace has its labels", func() bool { return w.ownersOf(one, name) == 1 })
	ns := w.namespace(one, name)
	before := maps.Clone(ns.Labels)
	delete(ns.Labels, mcowner.FleetLabel)
	if err := one.Client().Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the labels are back", func() bool { return maps.Equal(w.namespace(one, name).Labels, before) })
	ns = w.namespace(one, name)
	ns.Labels[mcowner.FleetLabel] = "another"
	if err := one.Client().Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the label of the fleet is right", func() bool { return maps.Equal(w.namespace(one, name).Labels, before) })
}

// TestWhatSaysWhoseASharedNamespaceIsIsNotFoughtForWithoutPause: somebody takes it whenever it is there.
func TestWhatSaysWhoseASharedNamespaceIsIsNotFoughtForWithoutPause(t *testing.T) {
	t.Parallel()
	for name, taking := range map[string]func(*corev1.Namespace){
		"labels": func(ns *corev1.Namespace) { delete(ns.Labels, mcowner.FleetLabel) },
		"references": func(ns *corev1.Namespace) {
			maps.DeleteFunc(ns.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, mcowner.KeyPrefix) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one, name := w.Members[0], w.ns+"-shared"
			w.run(w.inNamespaces())
			w.create(w.Local, w.ownerIn("a", name))
			eventually(t, "the namespace has its labels", func() bool { return w.ownersOf(one, name) == 1 })
			take := func() {
				ns := w.namespace(one, name)
				before := ns.DeepCopy()
				if taking(ns); !reflect.DeepEqual(before.ObjectMeta, ns.ObjectMeta) {
					if err := one.Client().Update(t.Context(), ns); err != nil {
						t.Log(err)
					}
				}
			}
			eventually(t, "it is told that others take it", func() bool {
				take()
				return w.has(w.Local, "a", dependents.EventContended, name)
			})
			inIt := &corev1.ConfigMap{ObjectMeta: metaOf(name, copyOf("a"))}
			if err := one.Client().Delete(t.Context(), inIt); err != nil {
				t.Fatal(err)
			}
			eventually(t, "what is in the namespace does not wait for that", func() bool {
				take()
				return w.isThere(one, inIt)
			})
		})
	}
}

// TestDependentsThatLostTheirLabelsWhileNothingRanGoWithTheirOwner: no list by labels finds them.
func TestDependentsThatLostTheirLabelsWhileNothingRanGoWithTheirOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	p := w.run(w.spread())
	for _, name := range []string{"goes", "orphans"} {
		w.create(w.Local, w.owner(name, one.Name))
		w.isCopied(one, name)
	}
	eventually(t, "the program is at rest", p.isAtRest)
	p.stop()
	w.change(w.Local, "orphans", func(cm *corev1.ConfigMap) { cm.Annotations[dependents.DeletionPolicyAnnotation] = "Orphan" })
	for _, name := range []string{"goes", "orphans"} {
		w.change(one, copyOf(name), func(cm *corev1.ConfigMap) { cm.Labels = nil })
		w.remove(w.Local, name)
	}
	w.run(w.spread())
	w.isGone(w.Local, "goes")
	w.isGone(one, copyOf("goes"))
	w.isGone(w.Local, "orphans")
	if left := w.mustGet(one, copyOf("orphans")); isOf(left, "orphans") {
		t.Errorf("what is to stay still has the owner: %v", left.Annotations)
	}
}
