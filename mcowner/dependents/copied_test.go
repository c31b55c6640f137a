package dependents_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestACopyOfADependentIsItsOwnersAlone: what is desired is the owner as it is, with another name, and that is a dependent of another
// installation.
func TestACopyOfADependentIsItsOwnersAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	owner := w.owner("a", "member-1")
	owner.Labels = map[string]string{"app": "shop"}
	theirs := mcowner.Reference{Fleet: "theirs", Manager: "other", APIVersion: "v1", Kind: "ConfigMap", Namespace: w.ns, Name: "origin", UID: "1"}
	if err := mcowner.SetControllerReference(theirs, owner, mcowner.ByName("hub")); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{mcowner.DesiredAnnotation, mcowner.CreatedByAnnotation, mcowner.AdoptedAnnotation} {
		owner.Annotations[key] = "theirs"
	}
	r := w.spread()
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		same := owner.DeepCopy()
		same.Name = copyOf(owner.Name)
		return []client.Object{same}, nil
	}
	w.run(r)
	w.create(w.Local, owner)
	there := w.isCopied(w.Members[0], "a")

	of, is := mcowner.ControllerOf(there, mcowner.ByName("member-1"))
	if !is || of.Name != "a" {
		t.Fatalf("its controller is %+v", of)
	}
	for what, is := range map[string]map[string]string{
		"labels": there.Labels, "annotations": there.Annotations,
	} {
		want := map[string][]string{
			"labels":      {"app", mcowner.FleetLabel, mcowner.OwnerClusterLabel, of.Key()},
			"annotations": {"to", mcowner.DesiredAnnotation, of.Key()},
		}[what]
		slices.Sort(want)
		if keys := slices.Sorted(maps.Keys(is)); !slices.Equal(keys, want) {
			t.Errorf("it has the %s %q, want %q", what, keys, want)
		}
	}
	if len(there.Finalizers) > 0 {
		t.Errorf("it has the finalizers %q", there.Finalizers)
	}
	w.remove(w.Local, "a")
	w.isGone(w.Members[0], copyOf("a"))
}
