package dependents_test

import (
	"context"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestANamespaceThatWasCreatedForAnOwnerBecomesItsDependent once the owner desires it itself. It is deleted only if it is empty of
// others, as before.
func TestANamespaceThatWasCreatedForAnOwnerBecomesItsDependent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, ns := w.Members[0], w.ns+"-new"
	var itself atomic.Bool
	r := w.inNamespaces()
	r.Kinds = append(r.Kinds, &corev1.Namespace{})
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, at dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, at)
		if itself.Load() {
			all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{"mine": "yes"}}})
		}
		return all, err
	}
	w.run(r)
	w.create(w.Local, w.ownerIn("a", ns))
	eventually(t, "the dependent is there", func() bool { return w.isThere(one, &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf("a"))}) })
	before := w.namespace(one, ns)
	itself.Store(true)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["again"] = "yes" })
	eventually(t, "the namespace is as desired", func() bool { return w.namespace(one, ns).Labels["mine"] == "yes" })
	now := w.namespace(one, ns)
	if by, ok := mcowner.ControllerOf(now, mcowner.ByName("member-1")); !ok || by.Name != "a" || now.UID != before.UID {
		t.Errorf("the namespace is controlled by %s, and has the UID %s, before %s", by, now.UID, before.UID)
	}
	w.create(one, &corev1.Secret{ObjectMeta: metaOf(ns, "db")})
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	if w.namespace(one, ns) == nil {
		t.Error("the namespace is being deleted, with the Secret of others in it")
	}
}

// adoptingNamespaces is a reconciler whose owner b desires a namespace itself, with the annotations, which may be there for others.
func (w *world) adoptingNamespaces(ns string, annotations map[string]string) *dependents.Reconciler[*corev1.ConfigMap] {
	r := w.inNamespaces()
	r.Kinds, r.Policy.Conflict = append(r.Kinds, &corev1.Namespace{}), dependents.AdoptUnowned
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, at dependents.Target) ([]client.Object, error) {
		if owner.Name == "b" {
			meta := metav1.ObjectMeta{Name: ns, Labels: map[string]string{"by": "b"}, Annotations: annotations}
			return []client.Object{&corev1.Namespace{ObjectMeta: meta}}, nil
		}
		return desired(ctx, owner, at)
	}
	return r
}

// TestANamespaceThatWasCreatedForAnOwnerBecomesAnothersDependent, where the policy lets that one have what nobody controls. It stays for either,
// and goes with the last of them if it is empty of others.
func TestANamespaceThatWasCreatedForAnOwnerBecomesAnothersDependent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		first, last string
		used        bool // by others
	}{
		"it was created for the one that goes first": {first: "a", last: "b"},
		"its controller goes first":                  {first: "b", last: "a"},
		"others use it":                              {first: "a", last: "b", used: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one, ns := w.Members[0], w.ns+"-new"
			r := w.adoptingNamespaces(ns, nil)
			w.run(r)
			w.create(w.Local, w.ownerIn("a", ns))
			inIt := &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf("a"))}
			eventually(t, "what it was created for is there", func() bool { return w.isThere(one, inIt.DeepCopy()) })
			before := w.namespace(one, ns)
			w.create(w.Local, w.ownerIn("b", ns))
			eventually(t, "it is as desired", func() bool { return w.namespace(one, ns).Labels["by"] == "b" })
			if by, ok := mcowner.ControllerOf(w.namespace(one, ns), mcowner.ByName("member-1")); !ok || by.Name != "b" || w.ownersOf(one, ns) != 2 {
				t.Errorf("it is controlled by %s, and has %d owners", by, w.ownersOf(one, ns))
			}
			if tc.used {
				w.create(one, &corev1.Secret{ObjectMeta: metaOf(ns, "db")})
			}
			w.remove(w.Local, tc.first)
			w.isGone(w.Local, tc.first)
			now := w.namespace(one, ns)
			if now == nil || now.UID != before.UID || w.ownersOf(one, ns) != 1 {
				t.Fatalf("it is not the other one's alone: %v", now)
			}
			if there := w.isThere(one, inIt.DeepCopy()); there != (tc.last == "a") {
				t.Errorf("what it was created for is there: %t", there)
			}
			w.remove(w.Local, tc.last)
			w.isGone(w.Local, tc.last)
			switch now := w.namespace(one, ns); {
			case (now != nil) != tc.used:
				t.Errorf("after its last owner it is there: %t", now != nil)
			case tc.used && (w.ownersOf(one, ns) > 0 || now.Annotations[mcowner.CreatedByAnnotation] != "" || now.Labels[mcowner.FleetLabel] != ""):
				t.Errorf("it is not nobody's: %v", now)
			}
		})
	}
}

// TestANamespaceThatAnOwnerAdoptedAndThatLostItsMarkStays, and what others have in it, also if nothing runs that could see it.
func TestANamespaceThatAnOwnerAdoptedAndThatLostItsMarkStays(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		first, last string
		runs        bool // as the mark is taken
	}{
		"nothing runs, and its controller goes last":  {first: "a", last: "b"},
		"nothing runs, and its controller goes first": {first: "b", last: "a"},
		"it was seen, and its controller goes last":   {first: "a", last: "b", runs: true},
		"it was seen, and its controller goes first":  {first: "b", last: "a", runs: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one, ns := w.Members[0], w.ns+"-new"
			p := w.run(w.adoptingNamespaces(ns, nil))
			w.create(w.Local, w.ownerIn("a", ns))
			eventually(t, "it is there", func() bool { return w.isThere(one, &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf("a"))}) })
			w.create(w.Local, w.ownerIn("b", ns))
			eventually(t, "it is adopted", func() bool { return w.namespace(one, ns).Labels["by"] == "b" })
			w.create(one, &corev1.Secret{ObjectMeta: metaOf(ns, "db")})
			if !tc.runs {
				p.stop()
			}
			before := w.namespace(one, ns)
			marks := `"` + mcowner.CreatedByAnnotation + `":null`
			if !tc.runs {
				marks += `,"` + mcowner.AdoptedAnnotation + `":null`
			}
			take := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{`+marks+`}}}`))
			if err := one.Client().Patch(t.Context(), before.DeepCopy(), take); err != nil {
				t.Fatal(err)
			}
			if tc.runs {
				eventually(t, "it says that it stays", func() bool { return w.namespace(one, ns).Annotations[dependents.DeletionPolicyAnnotation] == "Orphan" })
			}
			w.remove(w.Local, tc.first)
			if !tc.runs {
				w.run(w.adoptingNamespaces(ns, nil))
			}
			w.isGone(w.Local, tc.first)
			w.remove(w.Local, tc.last)
			w.isGone(w.Local, tc.last)
			now := w.namespace(one, ns)
			if now == nil || now.UID != before.UID || !w.isThere(one, &corev1.Secret{ObjectMeta: metaOf(ns, "db")}) {
				t.Fatalf("it is being deleted, with the Secret of others in it: %v", now)
			}
			for key := range now.Annotations {
				t.Errorf("it is nobody's, and still says %s", key)
			}
		})
	}
}
