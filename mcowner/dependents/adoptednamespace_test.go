package dependents_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// desiringNamespaces is a reconciler that adopts, and whose owners desire the namespace that their data says, unless that is empty.
func (w *world) desiringNamespaces() *dependents.Reconciler[*corev1.ConfigMap] {
	r := w.spread()
	r.Kinds = []client.Object{&corev1.Namespace{}}
	r.Policy.Conflict = dependents.Adopt
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		if owner.Data["value"] == "" {
			return nil, nil
		}
		labels := map[string]string{"by": owner.Name, "stage": owner.Data["stage"]}
		return []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: owner.Data["value"], Labels: labels}}}, nil
	}
	return r
}

// TestANamespaceThatWasThereBeforeStays when its owner goes, or does not desire it any more, also in the hands of another owner, and if
// somebody took the mark: with it would go what others have in it. One that was created goes.
func TestANamespaceThatWasThereBeforeStays(t *testing.T) {
	t.Parallel()
	stripped := func(ns *corev1.Namespace) {
		delete(ns.Annotations, mcowner.AdoptedAnnotation)
		delete(ns.Annotations, dependents.DeletionPolicyAnnotation)
	}
	for name, end := range map[string]func(*world, *process, string){
		"its owner goes": func(w *world, _ *process, _ string) {
			w.remove(w.Local, "a")
			w.isGone(w.Local, "a")
		},
		"it is not desired any more": func(w *world, _ *process, _ string) {
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "" })
		},
		"another owner takes it": func(w *world, _ *process, ns string) {
			w.create(w.Local, w.ownerIn("b", ns))
			eventually(w.t, "it is that one's", func() bool { return w.namespace(w.Members[0], ns).Labels["by"] == "b" })
			for _, owner := range []string{"a", "b"} {
				w.remove(w.Local, owner)
				w.isGone(w.Local, owner)
			}
		},
		"somebody takes the mark": func(w *world, _ *process, ns string) {
			now := w.namespace(w.Members[0], ns)
			stripped(now)
			if err := w.Members[0].Client().Update(w.t.Context(), now); err != nil {
				w.t.Fatal(err)
			}
			eventually(w.t, "it has the mark again", func() bool { return w.namespace(w.Members[0], ns).Annotations[mcowner.AdoptedAnnotation] != "" })
			w.remove(w.Local, "a")
			w.isGone(w.Local, "a")
		},
		"somebody takes the mark before a change": func(w *world, p *process, ns string) {
			p.stop()
			now := w.namespace(w.Members[0], ns)
			stripped(now)
			if err := w.Members[0].Client().Update(w.t.Context(), now); err != nil {
				w.t.Fatal(err)
			}
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["stage"] = "next" })
			w.run(w.desiringNamespaces())
			eventually(w.t, "it is as desired now", func() bool { return w.namespace(w.Members[0], ns).Labels["stage"] == "next" })
			w.remove(w.Local, "a")
			w.isGone(w.Local, "a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one, prod, created := w.Members[0], w.ns+"-prod", w.ns+"-created"
			w.create(one, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: prod, Annotations: map[string]string{"whose": "others"}}})
			before := w.namespace(one, prod)
			p := w.run(w.desiringNamespaces())
			w.create(w.Local, w.ownerIn("a", prod))
			w.create(w.Local, w.ownerIn("c", created))
			eventually(t, "it is adopted", func() bool { return w.namespace(one, prod).Labels["by"] == "a" })
			eventually(t, "the other one is created", func() bool { return w.namespace(one, created) != nil })
			end(w, p, prod)
			eventually(t, "it is nobody's", func() bool { return w.ownersOf(one, prod) == 0 })
			now := w.namespace(one, prod)
			if now == nil || now.UID != before.UID || now.Annotations["whose"] != "others" {
				t.Fatalf("it is not what it was: %v", now)
			}
			for _, key := range []string{mcowner.AdoptedAnnotation, dependents.DeletionPolicyAnnotation, mcowner.CreatedByAnnotation} {
				if value, is := now.Annotations[key]; is {
					t.Errorf("it still says %s: %s", key, value)
				}
			}
			w.remove(w.Local, "c")
			w.isGone(w.Local, "c")
			if left := w.namespace(one, created); left != nil {
				t.Errorf("what was created stays: %v", left.Annotations)
			}
		})
	}
}

// TestACRDThatWasThereBeforeStays when its owner goes, or does not desire it any more: with it would go all objects of its kind.
func TestACRDThatWasThereBeforeStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, crd := w.Members[0], w.gadgetCRD("v1")
	w.create(one, crd.DeepCopy())
	r := w.desiringNamespaces()
	r.Kinds = []client.Object{crd.DeepCopy()}
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		if owner.Data["value"] == "" {
			return nil, nil
		}
		desired := w.gadgetCRD("v1")
		desired.SetLabels(map[string]string{"by": owner.Name})
		return []client.Object{desired}, nil
	}
	w.run(r)
	isBy := func(owner string) func() bool {
		return func() bool {
			return w.isThere(one, crd) && crd.GetLabels()["by"] == owner && crd.GetDeletionTimestamp() == nil
		}
	}
	for owner, end := range map[string]func(){
		"a": func() { w.remove(w.Local, "a"); w.isGone(w.Local, "a") },
		"b": func() { w.change(w.Local, "b", func(cm *corev1.ConfigMap) { cm.Data["value"] = "" }) },
	} {
		w.create(w.Local, w.ownerIn(owner, "some"))
		eventually(t, "it is adopted by "+owner, isBy(owner))
		before := crd.GetUID()
		end()
		eventually(t, "it is nobody's", func() bool { return !w.isThere(one, crd) || crd.GetLabels()[mcowner.FleetLabel] == "" })
		if !w.isThere(one, crd) || crd.GetUID() != before || crd.GetDeletionTimestamp() != nil {
			t.Fatalf("%s does not leave what it was: %v", owner, crd.Object["metadata"])
		}
	}
}
