package dependents_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestWhatIsDesiredInAnotherVersionIsNotTakenForChanged: it is desired in another one than that of Kinds, in which it is read, and has no spec, so
// that all of it is compared. What others have added is theirs, and a status is no change.
func TestWhatIsDesiredInAnotherVersionIsNotTakenForChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, crd := w.Members[0], w.gadgetCRD("v1", "v2")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		v.(map[string]any)["subresources"] = map[string]any{"status": map[string]any{}} //nolint:forcetypeassert // it is one
	}
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	w.create(one, crd)
	r := w.spread()
	r.Kinds = []client.Object{w.gadget("v1")}
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		obj := w.gadget("v2")
		obj.Object["value"] = owner.Data["value"]
		return []client.Object{obj}, nil
	}
	var drifted atomic.Bool
	var seen atomic.Value // the version in which it was looked at last
	seen.Store("")
	r.Status = func(_ context.Context, _ *corev1.ConfigMap, results []dependents.Result) error {
		for _, result := range results {
			for _, o := range result.Objects {
				if o.State == dependents.Drifted {
					drifted.Store(true)
				}
				if o.Object != nil {
					seen.Store(o.Object.GetResourceVersion())
				}
			}
		}
		return nil
	}
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	gadget := w.gadget("v2")
	eventually(t, "it is there", func() bool { return w.isThere(one, gadget) })
	touched := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "it was looked at", func() bool { return seen.Load() == gadget.GetResourceVersion() })
		eventually(t, "all is at rest", p.isAtRest)
	}
	for i := range 6 {
		label := fmt.Appendf(nil, `{"metadata": {"labels": {"of-others": "%d"}}}`, i)
		touched(one.Client().Patch(t.Context(), gadget, client.RawPatch(types.MergePatchType, label)))
	}
	before := p.power.writes.Load()
	for i := range 6 {
		status := fmt.Appendf(nil, `{"status": {"n": %d}}`, i)
		touched(one.Client().Status().Patch(t.Context(), gadget, client.RawPatch(types.MergePatchType, status)))
	}
	if n := p.power.writes.Load() - before; n > 0 {
		t.Errorf("%d requests to write were made for its status", n)
	}
	if drifted.Load() || w.has(w.Local, "a", dependents.EventContended, "") {
		t.Errorf("it was taken for drifted: %t, or contended", drifted.Load())
	}
	if now := w.gadget("v2"); !w.isThere(one, now) || now.GetResourceVersion() != gadget.GetResourceVersion() {
		t.Errorf("it was written: %v", now)
	}
	if err := one.Client().Delete(t.Context(), crd); err != nil {
		t.Error(err)
	}
}
