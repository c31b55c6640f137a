package dependents_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// names is a Desired that returns ConfigMaps of the names that the owner's value has.
func (w *world) names(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
	var all []client.Object
	for name := range strings.FieldsSeq(owner.Data["value"]) {
		all = append(all, w.configMap(name))
	}
	return all, nil
}

// TestNothingIsPrunedUntilAllThatIsDesiredIsThere: what was desired before stays as long as the new one is refused.
func TestNothingIsPrunedUntilAllThatIsDesiredIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Desired = w.names
	w.run(r)
	owner := w.owner("a", one.Name)
	owner.Data["value"] = "old"
	w.create(w.Local, owner)
	eventually(t, "the first is there", func() bool { return w.get(one, "old") != nil })
	old := w.mustGet(one, "old")
	w.create(one, w.configMap("taken"))
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "taken new" })
	w.told(w.Local, "a", dependents.EventConflict, "taken")
	eventually(t, "what is not refused is there", func() bool { return w.get(one, "new") != nil })
	w.unharmed(one, old)
	w.remove(one, "taken")
	w.isGone(one, "old")
	if left := len(w.list(one)); left != 2 {
		t.Errorf("there are %d dependents, want 2", left)
	}
}

// TestNothingIsPrunedWhateverKeepsSomethingFromBeingThere: what was desired before goes once all is there that is desired then.
func TestNothingIsPrunedWhateverKeepsSomethingFromBeingThere(t *testing.T) {
	t.Parallel()
	for name, beside := range map[string]func(w *world) ([]client.Object, error){
		"AnErrorOfDesired":     func(*world) ([]client.Object, error) { return nil, errors.New("the rest is not known") },
		"AKindThatIsNotServed": func(w *world) ([]client.Object, error) { return []client.Object{w.gadget("v1")}, nil },
		"ALaterWaveThatIsNotDue": func(w *world) ([]client.Object, error) {
			return []client.Object{w.job("job"), inWave("1", w.configMap("later"))}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			r := w.spread()
			r.Kinds = append(r.Kinds, &batchv1.Job{}, w.gadget("v1"))
			r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
				switch owner.Data["value"] {
				case "1":
					return []client.Object{w.configMap("old")}, nil
				case "2":
					more, err := beside(w)
					return append(more, w.configMap("new")), err
				default:
					return []client.Object{w.configMap("new")}, nil
				}
			}
			told := listen(r)
			p := w.run(r)
			w.create(w.Local, w.owner("a", one.Name))
			eventually(t, "the first is there", func() bool { return w.get(one, "old") != nil })
			old := w.mustGet(one, "old")
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
			eventually(t, "what can be there is, and the result says that the rest is not", func() bool {
				results := told.of("a")
				return w.get(one, "new") != nil && len(results) == 1 && results[0].Err != nil && len(results[0].Objects) > 0
			})
			eventually(t, "all is at rest", p.isAtRest)
			w.unharmed(one, old)
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "3" })
			w.isGone(one, "old")
		})
	}
}

// configMap returns one of the world's namespace.
func (w *world) configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metaOf(w.ns, name)}
}

// TestADependentInAnotherVersionIsOfTheKind: it is created once, changed, left alone, and removed.
func TestADependentInAnotherVersionIsOfTheKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Kinds = []client.Object{&autoscalingv1.HorizontalPodAutoscaler{}}
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		most, err := strconv.ParseInt(owner.Data["value"], 10, 32)
		if err != nil || most == 0 {
			return nil, err
		}
		return []client.Object{&autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: owner.Name},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "d"}, MaxReplicas: int32(most),
			},
		}}, nil
	}
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	hpa := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "a"}}
	has := func(most int32) func() bool {
		return func() bool {
			return one.Client().Get(t.Context(), client.ObjectKeyFromObject(hpa), hpa) == nil && hpa.Spec.MaxReplicas == most
		}
	}
	eventually(t, "the dependent is there", has(1))
	uid := hpa.UID
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "the dependent follows", has(2))
	eventually(t, "nothing is written any more", p.isAtRest)
	p.stop()
	p = w.run(r)
	w.create(w.Local, w.owner("b", one.Name)) // it is done after the first, or beside it
	eventually(t, "the second is there", func() bool {
		return one.Client().Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "b"}, &autoscalingv1.HorizontalPodAutoscaler{}) == nil
	})
	eventually(t, "nothing is written any more", p.isAtRest)
	if !has(2)() || hpa.UID != uid {
		t.Errorf("the dependent was created anew: %v", hpa.ObjectMeta)
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "0" })
	eventually(t, "the dependent is gone", func() bool {
		return apierrors.IsNotFound(one.Client().Get(t.Context(), client.ObjectKeyFromObject(hpa), hpa))
	})
}

// gadgetCRD describes a kind of the world's own, in these versions.
func (w *world) gadgetCRD(versions ...string) *unstructured.Unstructured {
	group := w.ns + ".example.com"
	all := make([]any, 0, len(versions))
	for i, v := range versions {
		all = append(all, map[string]any{
			"name": v, "served": true, "storage": i == len(versions)-1,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "gadgets." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "versions": all,
			"names": map[string]any{"kind": "Gadget", "plural": "gadgets"},
		},
	}}
}

// gadget returns an object of the world's own kind.
func (w *world) gadget(version string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: w.ns + ".example.com", Version: version, Kind: "Gadget"})
	obj.SetNamespace(w.ns)
	obj.SetName("g")
	return obj
}

// withGadget lets a reconciler bring a gadget too, and returns that.
func (w *world) withGadget(r *dependents.Reconciler[*corev1.ConfigMap]) *unstructured.Unstructured {
	gadget, desired := w.gadget("v1"), r.Desired
	r.Kinds = append(r.Kinds, gadget.DeepCopy())
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		return append([]client.Object{gadget.DeepCopy()}, all...), err
	}
	return gadget
}

// isThere reports whether an object is in a cluster, and reads it.
func (w *world) isThere(cp *mctest.ControlPlane, obj client.Object) bool {
	return cp.Client().Get(w.t.Context(), client.ObjectKeyFromObject(obj), obj) == nil
}

// TestAKindThatIsNotServedBlocksOnlyWhatNeedsIt, and that is made once it is served.
func TestAKindThatIsNotServedBlocksOnlyWhatNeedsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	var results latest
	r := w.spread()
	gadget := w.withGadget(r)
	r.Status = results.note
	w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	w.isCopied(one, "a")
	eventually(t, "the result says so", func() bool {
		return slices.Equal(results.states("a", one), []dependents.State{dependents.NotServed, dependents.Applied}) ||
			slices.Equal(results.states("a", one), []dependents.State{dependents.NotServed, dependents.Unchanged})
	})
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "what needs it not goes on", func() bool { return w.mustGet(one, copyOf("a")).Data["value"] == "2" })
	crd := w.gadgetCRD("v1")
	w.create(one, crd)
	eventually(t, "what needs it is made", func() bool { return w.isThere(one, gadget.DeepCopy()) })
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	w.isGone(one, copyOf("a"))
	if err := one.Client().Delete(t.Context(), crd); err != nil {
		t.Error(err)
	}
}

// TestACRDBesideItsObjects comes from one owner, and goes with it.
func TestACRDBesideItsObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	crd, gadget := w.gadgetCRD("v1"), w.gadget("v1")
	r := w.spread()
	r.Kinds = nil
	r.MoreKinds = func(schema.GroupVersionKind) error { return nil }
	r.Desired = func(context.Context, *corev1.ConfigMap, dependents.Target) ([]client.Object, error) {
		return []client.Object{gadget.DeepCopy(), crd.DeepCopy()}, nil
	}
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	eventually(t, "the object is there", func() bool { return w.isThere(one, gadget.DeepCopy()) })
	eventually(t, "nothing is written any more", p.isAtRest)
	before := gadget.DeepCopy()
	if err := one.Client().Get(t.Context(), client.ObjectKeyFromObject(before), before); err != nil {
		t.Fatal(err)
	}
	p.stop()
	p = w.run(r)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	p.is(one, "Ready")
	eventually(t, "nothing is written any more", p.isAtRest)
	if after := gadget.DeepCopy(); !w.isThere(one, after) || after.GetUID() != before.GetUID() {
		t.Errorf("the object was created anew, or is gone: %v", after)
	}
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	eventually(t, "the CRD is gone", func() bool { return !w.isThere(one, crd.DeepCopy()) })
}

// TestAKindThatItsCRDDoesNotServeIsToldOf, once it was awaited for as long as one that is about to be served.
func TestAKindThatItsCRDDoesNotServeIsToldOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	crd := w.gadgetCRD("v1")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	versions[0].(map[string]any)["served"] = false //nolint:forcetypeassert // it is one
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	r := w.spread()
	r.Kinds = nil
	r.MoreKinds = func(schema.GroupVersionKind) error { return nil }
	r.Desired = func(context.Context, *corev1.ConfigMap, dependents.Target) ([]client.Object, error) {
		return []client.Object{crd.DeepCopy(), w.gadget("v1")}, nil
	}
	dependents.AwaitKindsFor(r, time.Second)
	told := listen(r)
	w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	eventually(t, "the result says so", func() bool { return told.are("a", dependents.Unchanged, dependents.NotServed) })
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	eventually(t, "the CRD is gone", func() bool { return !w.isThere(one, crd.DeepCopy()) })
}

// TestAnOwnerFollowsItsKindToAnotherVersion, when the one in which it was known is not served any more.
func TestAnOwnerFollowsItsKindToAnotherVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	crd := w.gadgetCRD("v1", "v2")
	w.create(one, crd)
	r := w.spread()
	r.Kinds = nil
	r.MoreKinds = func(schema.GroupVersionKind) error { return nil }
	version := "v1"
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		obj := w.gadget(version)
		return []client.Object{obj}, unstructured.SetNestedField(obj.Object, owner.Data["value"], "spec", "value")
	}
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	gadget := w.gadget("v2")
	eventually(t, "the object is there", func() bool { return w.isThere(one, gadget) })
	uid := gadget.GetUID()
	p.stop()
	unserved := client.RawPatch(types.JSONPatchType, []byte(`[{"op": "replace", "path": "/spec/versions/0/served", "value": false}]`))
	if err := one.Client().Patch(t.Context(), crd, unserved); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the version is not served any more", func() bool { return !w.isThere(one, w.gadget("v1")) })
	version = "v2"
	w.run(r)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "the object follows", func() bool {
		value := ""
		if w.isThere(one, gadget) {
			value, _, _ = unstructured.NestedString(gadget.Object, "spec", "value")
		}
		return value == "2"
	})
	if gadget.GetUID() != uid {
		t.Error("it was created anew")
	}
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	eventually(t, "the object is gone", func() bool { return !w.isThere(one, gadget) })
	if err := one.Client().Delete(t.Context(), crd); err != nil {
		t.Error(err)
	}
}

// TestAKindIsWatchedInTheVersionThatIsDesired last: what others change is put right also when that is told of in this version alone.
func TestAKindIsWatchedInTheVersionThatIsDesired(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	crd := w.gadgetCRD("v1", "v2")
	w.create(one, crd)
	r := w.spread()
	r.Kinds = nil
	r.MoreKinds = func(schema.GroupVersionKind) error { return nil }
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		obj := w.gadget(owner.Data["value"])
		return []client.Object{obj}, unstructured.SetNestedField(obj.Object, owner.Data["value"], "spec", "value")
	}
	w.run(r)
	owner := w.owner("a", one.Name)
	owner.Data["value"] = "v1"
	w.create(w.Local, owner)
	gadget := w.gadget("v2")
	says := func(value string) func() bool {
		return func() bool {
			if !w.isThere(one, gadget) {
				return false
			}
			said, _, _ := unstructured.NestedString(gadget.Object, "spec", "value")
			return said == value
		}
	}
	eventually(t, "the object is there", says("v1"))
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "v2" })
	eventually(t, "the object follows", says("v2"))
	unserved := client.RawPatch(types.JSONPatchType, []byte(`[{"op": "replace", "path": "/spec/versions/0/served", "value": false}]`))
	if err := one.Client().Patch(t.Context(), crd, unserved); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first version is not served any more", func() bool { return !w.isThere(one, w.gadget("v1")) })
	byHand := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"value": "by hand"}}`))
	if err := one.Client().Patch(t.Context(), gadget, byHand); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is put right", says("v2"))
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	if err := one.Client().Delete(t.Context(), crd); err != nil {
		t.Error(err)
	}
}
