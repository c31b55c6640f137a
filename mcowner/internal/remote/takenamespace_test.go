package remote

import (
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// TestANamespaceWithoutItsMarkGoesWithItsControllerAlone, unless that has adopted it: nobody has looked what is in it, and whoever took the
// annotation away may use it.
func TestANamespaceWithoutItsMarkGoesWithItsControllerAlone(t *testing.T) {
	t.Parallel()
	in := mcowner.ByName("member")
	sharing := mcowner.Reference{Fleet: "fleet", Cluster: "hub", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "owner", UID: "1"}
	controller := sharing
	controller.Name, controller.UID, controller.Controller = "controller", "2", true
	for name, tc := range map[string]struct {
		owners  []mcowner.Reference
		says    map[string]string
		deleted bool
	}{
		"OneThatSharesIt": {owners: []mcowner.Reference{sharing}},
		"ItsController":   {owners: []mcowner.Reference{controller}, deleted: true},
		"OneThatAdopted":  {owners: []mcowner.Reference{controller}, says: map[string]string{mcowner.AdoptedAnnotation: "fleet"}},
		"OneThatAdopted, whose marks were taken": {
			owners: []mcowner.Reference{controller}, says: map[string]string{mcowner.DesiredAnnotation: "0123" + AdoptedSeal},
		},
		"BothAtOnce": {owners: []mcowner.Reference{sharing, controller}, deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shared", UID: "4", ResourceVersion: "77"}}
			for _, owner := range tc.owners {
				set := mcowner.SetOwnerReference
				if owner.Controller {
					set = mcowner.SetControllerReference
				}
				if err := set(owner, ns, in); err != nil {
					t.Fatal(err)
				}
			}
			maps.Copy(ns.Annotations, tc.says)
			k := Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace")}
			w := &written{}
			deleted, err := TakeAway(t.Context(), &Access{Timeout: time.Minute}, Look{}, w, Session{ID: in}, k, ns, tc.owners, metav1.DeletePropagationBackground)
			if err != nil || deleted != tc.deleted || w.deleted != tc.deleted {
				t.Errorf("deleted: %t, %v, want %t", deleted, err, tc.deleted)
			}
			if !tc.deleted && !strings.Contains(w.patch, `"annotations":null`) {
				t.Errorf("it still has its owner: %s", w.patch)
			}
		})
	}
}
