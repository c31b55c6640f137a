package command_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// leasesOfEstates is the CustomResourceDefinition of a kind that is called as one of Kubernetes' own.
func leasesOfEstates() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "leases.estate.example.com"},
		"spec": map[string]any{
			"group": "estate.example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "leases", "singular": "lease", "kind": "Lease", "listKind": "LeaseList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
}

func TestANamespaceStaysInWhichOthersHaveSomethingWhateverItsKindIsCalled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	c := s.Members[0].Client()
	if err := c.Create(t.Context(), leasesOfEstates()); err != nil {
		t.Fatal(err)
	}
	house := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "estate.example.com/v1", "kind": "Lease", "metadata": map[string]any{"namespace": "fleet-system", "name": "house"},
	}}
	eventually(t, "the kind is served", func() bool {
		err := c.Create(t.Context(), house.DeepCopy())
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	r := s.run(t, "leave", "east", "--member-context", "member")
	namespace := &corev1.Namespace{}
	err := c.Get(t.Context(), client.ObjectKey{Name: "fleet-system"}, namespace)
	if err != nil || namespace.DeletionTimestamp != nil || !strings.Contains(r.errOut, "kept, since Lease house is in it") {
		t.Errorf("the namespace: %v, deleted at %v\n%s", err, namespace.DeletionTimestamp, r.errOut)
	}
}
