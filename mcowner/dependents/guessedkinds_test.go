package dependents_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestAKindThatAMapperGuessesHoldsUpNoMemberThatLeaves: REST mappers add a List for each kind, which no API server serves.
func TestAKindThatAMapperGuessesHoldsUpNoMemberThatLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.spread()
	r.OnMemberLeaving = dependents.LeaveDeleted
	p := w.runShared("one", r)
	var asked atomic.Int32
	p.power.listen(func(req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/configmaplists") || strings.HasSuffix(req.URL.Path, "/lists") {
			asked.Add(1)
		}
	})
	owner := w.owner("a", one.Name, two.Name)
	owner.Annotations[controller+"."+fleetName+".fleet-runtime.dev/kinds"] = "ConfigMapList.v1.,List.v1."
	owner.Annotations[controller+"."+fleetName+".fleet-runtime.dev/given-up"] = "true"
	w.create(w.Local, owner)
	w.isCopied(one, "a")
	w.isCopied(two, "a")
	p.leave(one)
	w.isGone(one, copyOf("a"))
	if n := asked.Load(); n > 0 {
		t.Errorf("it was asked for %d times", n)
	}
}

// TestAKindThatIsNamedAsAListHasDependents, beside one whose List has the name as well: they are made again, and go as the member leaves.
func TestAKindThatIsNamedAsAListHasDependents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	list := w.gadget("v1")
	list.SetKind("AllowList")
	for kind, plural := range map[string]string{"Allow": "allows", "AllowList": "allowlists"} {
		crd := w.gadgetCRD("v1")
		crd.SetName(plural + "." + list.GroupVersionKind().Group)
		names := map[string]any{"kind": kind, "plural": plural, "listKind": kind + "Items"}
		if err := unstructured.SetNestedMap(crd.Object, names, "spec", "names"); err != nil {
			t.Fatal(err)
		}
		w.create(one, crd.DeepCopy())
		w.create(two, crd)
	}
	r := w.ofMoreKinds()
	r.OnMemberLeaving = dependents.LeaveDeleted
	r.Desired = func(context.Context, *corev1.ConfigMap, dependents.Target) ([]client.Object, error) {
		return []client.Object{list.DeepCopy()}, nil
	}
	p := w.runShared("one", r)
	w.create(w.Local, w.owner("a", one.Name, two.Name))
	for _, cp := range w.Members {
		eventually(t, "it is made", func() bool { return w.isThere(cp, list.DeepCopy()) })
	}
	if err := two.Client().Delete(t.Context(), list.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is made again", func() bool { return w.isThere(two, list.DeepCopy()) })
	p.leave(one)
	if w.isThere(one, list.DeepCopy()) {
		t.Error("the member has left with its dependent")
	}
}
