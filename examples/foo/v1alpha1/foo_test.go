package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/examples/foo/v1alpha1"
)

func newList() *v1alpha1.FooList {
	foo := v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"key": "value"}},
		Spec:       v1alpha1.FooSpec{DeploymentName: "a", Replicas: new(int32(1))},
		Status:     v1alpha1.FooStatus{AvailableReplicas: 1, Conditions: []metav1.Condition{{Type: "Synced"}}},
	}
	return &v1alpha1.FooList{ListMeta: metav1.ListMeta{ResourceVersion: "1", RemainingItemCount: new(int64(1))}, Items: []v1alpha1.Foo{foo}}
}

func TestACopyIsEqualAndSharesNothing(t *testing.T) {
	original := newList()
	changed := original.DeepCopy()
	if diff := cmp.Diff(original, changed); diff != "" {
		t.Fatalf("the copy is not equal (-original, +copy):\n%s", diff)
	}
	*changed.RemainingItemCount = 2
	foo := &changed.Items[0]
	foo.Labels["key"], *foo.Spec.Replicas, foo.Status.Conditions[0].Type = "changed", 2, "changed"
	if diff := cmp.Diff(newList(), original); diff != "" {
		t.Errorf("changing the copy has changed the original (-before, +after):\n%s", diff)
	}
}
