package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
)

func newList() *v1alpha1.DependentSliceList {
	return &v1alpha1.DependentSliceList{
		ListMeta: metav1.ListMeta{RemainingItemCount: new(int64(1))},
		Items: []v1alpha1.DependentSlice{{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"key": "value"}},
			Clusters:   []v1alpha1.Cluster{{Name: "a", Identities: []types.UID{"1"}, Objects: []v1alpha1.Object{{Name: "a"}}}},
		}},
	}
}

func TestACopyIsEqualAndSharesNothing(t *testing.T) {
	t.Parallel()
	original := newList()
	changed := original.DeepCopy()
	if diff := cmp.Diff(original, changed); diff != "" {
		t.Fatalf("the copy is not equal (-original, +copy):\n%s", diff)
	}
	*changed.RemainingItemCount = 2
	s := &changed.Items[0]
	s.Labels["key"], s.Clusters[0].Identities[0], s.Clusters[0].Objects[0].Name = "changed", "changed", "changed"
	s.Clusters[0].Name = "changed"
	if diff := cmp.Diff(newList(), original); diff != "" {
		t.Errorf("changing the copy has changed the original (-before, +after):\n%s", diff)
	}
}
