package dependents_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestAnOwnerGoesWithWhatItHasInAVersionThatIsNotServedAnyMore: its objects are there, in another version, although nothing has told the program.
func TestAnOwnerGoesWithWhatItHasInAVersionThatIsNotServedAnyMore(t *testing.T) {
	t.Parallel()
	for name, allow := range map[string]func(*dependents.Reconciler[*corev1.ConfigMap], client.Object){
		"of Kinds": func(r *dependents.Reconciler[*corev1.ConfigMap], gadget client.Object) {
			r.Kinds = append(r.Kinds, gadget)
		},
		"of MoreKinds": func(r *dependents.Reconciler[*corev1.ConfigMap], _ client.Object) {
			r.MoreKinds = func(schema.GroupVersionKind) error { return nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			r := w.spread()
			allow(r, w.gadget("v1"))
			copies := r.Desired
			r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
				all, err := copies(ctx, owner, target)
				return append(all, w.gadget("v1")), err
			}
			crd := w.gadgetCRD("v1", "v2")
			w.create(one, crd)
			p := w.run(r)
			w.create(w.Local, w.owner("a", one.Name))
			eventually(t, "it is there", func() bool { return w.isThere(one, w.gadget("v2")) })
			eventually(t, "all is at rest", p.isAtRest)
			unserved := client.RawPatch(types.JSONPatchType, []byte(`[{"op": "replace", "path": "/spec/versions/0/served", "value": false}]`))
			if err := one.Client().Patch(t.Context(), crd, unserved); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the version is not served any more", func() bool { return !w.isThere(one, w.gadget("v1")) })
			w.remove(w.Local, "a")
			w.isGone(w.Local, "a")
			if w.isThere(one, w.gadget("v2")) {
				t.Error("the owner is gone, and its dependent is there")
			}
			if err := one.Client().Delete(t.Context(), crd); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWhatHangsOnAKindIsDesiredOnceItsDefinitionIsReady, although it was remembered a moment ago that the kind is not served.
func TestWhatHangsOnAKindIsDesiredOnceItsDefinitionIsReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Kinds = nil
	r.MoreKinds = func(schema.GroupVersionKind) error { return nil }
	crd, gadget := w.gadgetCRD("v1"), w.gadget("v1")
	r.Desired = func(_ context.Context, _ *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all := []client.Object{crd.DeepCopy()}
		if target.RESTMapper != nil {
			if _, err := target.RESTMapper.RESTMapping(gadget.GroupVersionKind().GroupKind(), "v1"); err == nil {
				all = append(all, gadget.DeepCopy())
			}
		}
		return all, nil
	}
	w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	eventually(t, "what hangs on it is there", func() bool { return w.isThere(one, gadget.DeepCopy()) })
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
}
