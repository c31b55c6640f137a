package dependents_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// unserve has a cluster not serve the first version of a kind any more.
func (w *world) unserve(cp *mctest.ControlPlane, crd *unstructured.Unstructured) {
	w.t.Helper()
	unserved := client.RawPatch(types.JSONPatchType, []byte(`[{"op": "replace", "path": "/spec/versions/0/served", "value": false}]`))
	if err := cp.Client().Patch(w.t.Context(), crd, unserved); err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, "the version is not served any more", func() bool { return !w.isThere(cp, w.gadget("v1")) })
}

// withGadgetUnless returns a reconciler that brings a gadget of the first version too, unless its owner says no, and what it says.
func (w *world) withGadgetUnless() (*dependents.Reconciler[*corev1.ConfigMap], *latest) {
	results := &latest{}
	r := w.spread()
	r.Kinds = append(r.Kinds, w.gadget("v1"))
	r.Status = results.note
	copies := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := copies(ctx, owner, target)
		if owner.Data["gadget"] != "no" {
			all = append(all, w.gadget("v1"))
		}
		return all, err
	}
	return r, results
}

// TestWhatIsNotDesiredAnyMoreGoesInAnotherVersion than that of Kinds, where the cluster does not serve that any more, and the kind with it.
func TestWhatIsNotDesiredAnyMoreGoesInAnotherVersion(t *testing.T) {
	t.Parallel()
	for name, starts := range map[string]bool{"after a start": true, "while the program runs": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			r, results := w.withGadgetUnless()
			crd := w.gadgetCRD("v1", "v2")
			w.create(one, crd)
			p := w.run(r)
			w.create(w.Local, w.owner("a", one.Name))
			eventually(t, "it is there", func() bool { return w.isThere(one, w.gadget("v2")) })
			eventually(t, "all is at rest", p.isAtRest)
			if starts {
				p.stop()
			}
			w.unserve(one, crd)
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["gadget"] = "no" })
			if starts {
				p = w.run(r)
			}
			eventually(t, "it is gone", func() bool { return !w.isThere(one, w.gadget("v2")) })
			eventually(t, "its kind is not noted any more", func() bool { return !w.hasNoted(w.Local, "a", "Gadget") })
			eventually(t, "all is well", func() bool { return results.of("a", one).Err == nil })
			eventually(t, "all is at rest", p.isAtRest)
			if err := one.Client().Delete(t.Context(), crd); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWhatIsNotDesiredAnyMoreGoesInAnotherVersionElsewhere: in a member of another replica, which this one has no cache of.
func TestWhatIsNotDesiredAnyMoreGoesInAnotherVersionElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	_, other := w.pair(func() *dependents.Reconciler[*corev1.ConfigMap] {
		r, _ := w.withGadgetUnless()
		return r
	})
	cp := w.of(other)[0]
	crd := w.gadgetCRD("v1", "v2")
	w.create(cp, crd)
	w.create(w.Local, w.owner("a", cp.Name))
	eventually(t, "it is there", func() bool { return w.isThere(cp, w.gadget("v2")) })
	w.unserve(cp, crd)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["gadget"] = "no" })
	eventually(t, "it is gone", func() bool { return !w.isThere(cp, w.gadget("v2")) })
	eventually(t, "its kind is not noted any more", func() bool { return !w.hasNoted(w.Local, "a", "Gadget") })
	if err := cp.Client().Delete(t.Context(), crd); err != nil {
		t.Error(err)
	}
}

// TestAKindStaysNotedInAVersionThatIsNotServedAnyMore while something of it is there, which a deletion with Orphan releases. The rest of what is
// desired fails, so nothing goes before that.
func TestAKindStaysNotedInAVersionThatIsNotServedAnyMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r, results := w.withGadgetUnless()
	copies := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := copies(ctx, owner, target)
		if owner.Data["gadget"] == "no" {
			all = append(all, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "No name"}})
		}
		return all, err
	}
	crd := w.gadgetCRD("v1", "v2")
	w.create(one, crd)
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	eventually(t, "it is there", func() bool { return w.isThere(one, w.gadget("v2")) })
	eventually(t, "all is at rest", p.isAtRest)
	p.stop()
	w.unserve(one, crd)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["gadget"], cm.Data["value"] = "no", "2" })
	w.run(r)
	w.says(one, copyOf("a"), "2")
	eventually(t, "the rest fails", func() bool { return apierrors.IsInvalid(results.of("a", one).Err) })
	if gadget := w.gadget("v2"); !w.isThere(one, gadget) || !w.hasNoted(w.Local, "a", "Gadget") {
		t.Fatalf("it is there: %v; the owner has noted %v", gadget.GetLabels(), w.mustGet(w.Local, "a").Annotations)
	}
	w.removeAsOrphan("a")
	w.isGone(w.Local, "a")
	if gadget := w.gadget("v2"); !w.isThere(one, gadget) || len(gadget.GetLabels())+len(gadget.GetAnnotations()) > 0 {
		t.Errorf("it is gone, or says still whose it is: %v", gadget.GetAnnotations())
	}
	if err := one.Client().Delete(t.Context(), crd); err != nil {
		t.Error(err)
	}
}

// TestAStrayIsFoundInAnotherVersion than that of Kinds, where the cluster does not serve that any more.
func TestAStrayIsFoundInAnotherVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r, _ := w.withGadgetUnless()
	crds := []*unstructured.Unstructured{w.gadgetCRD("v1", "v2"), w.gadgetCRD("v1", "v2")}
	w.create(one, crds[0])
	w.create(two, crds[1])
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	eventually(t, "it is there", func() bool { return w.isThere(one, w.gadget("v2")) })
	eventually(t, "all is at rest", p.isAtRest)
	p.stop()
	stray := w.gadget("v2")
	owner := w.to(w.mustGet(w.Local, "a"), func(r *mcowner.Reference) { r.Manager = controller })
	if err := mcowner.SetControllerReference(owner, stray, mcowner.ByName(fleet.ClusterName(two.Name))); err != nil {
		t.Fatal(err)
	}
	w.create(two, stray)
	w.unserve(two, crds[1])
	r.Sweep.Interval, r.Sweep.Listing = 50*time.Millisecond, 50*time.Millisecond
	w.run(r)
	eventually(t, "it is gone", func() bool { return !w.isThere(two, w.gadget("v2")) })
	if !w.isThere(one, w.gadget("v1")) {
		t.Error("what is desired is gone")
	}
	for i, cp := range []*mctest.ControlPlane{one, two} {
		if err := cp.Client().Delete(t.Context(), crds[i]); err != nil {
			t.Error(err)
		}
	}
}

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
			w.unserve(one, crd)
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
