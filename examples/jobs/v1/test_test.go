package v1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobv1 "github.com/fleet-runtime/fleet-runtime/examples/jobs/v1"
)

func newList() *jobv1.TestList {
	test := jobv1.Test{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"key": "value"}},
		Spec: jobv1.TestSpec{
			Image: "a", Command: []string{"a"}, BackoffLimit: new(int32(1)), ClusterLabels: map[string]string{"key": "value"},
		},
		Status: jobv1.TestStatus{
			Phase: jobv1.PhaseRunning, Results: []jobv1.Result{{Cluster: "a"}}, Conditions: []metav1.Condition{{Type: "Complete"}},
		},
	}
	return &jobv1.TestList{ListMeta: metav1.ListMeta{ResourceVersion: "1", RemainingItemCount: new(int64(1))}, Items: []jobv1.Test{test}}
}

func TestACopyIsEqualAndSharesNothing(t *testing.T) {
	original := newList()
	changed := original.DeepCopy()
	if diff := cmp.Diff(original, changed); diff != "" {
		t.Fatalf("the copy is not equal (-original, +copy):\n%s", diff)
	}
	*changed.RemainingItemCount = 2
	test := &changed.Items[0]
	test.Labels["key"], test.Spec.Command[0], *test.Spec.BackoffLimit = "changed", "changed", 2
	test.Spec.ClusterLabels["key"], test.Status.Results[0].Cluster, test.Status.Conditions[0].Type = "changed", "changed", "changed"
	if diff := cmp.Diff(newList(), original); diff != "" {
		t.Errorf("changing the copy has changed the original (-before, +after):\n%s", diff)
	}
}
