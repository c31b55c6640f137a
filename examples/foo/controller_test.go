package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/examples/foo/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestWhatIsPendingIsNoNews: no event tells of it, and what is known of the Foo as it is holds until the library has looked, as after a restart.
func TestWhatIsPendingIsNoNews(t *testing.T) {
	t.Parallel()
	synced := func(generation int64) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionSynced, Status: metav1.ConditionTrue, Reason: "Synced", ObservedGeneration: generation}}
	}
	for name, tc := range map[string]struct {
		before []metav1.Condition
		err    error
		reason string
	}{
		"it was created":          {nil, dependents.ErrPending, dependents.ReasonPending},
		"it was changed":          {synced(1), dependents.ErrPending, dependents.ReasonPending},
		"it is as it was":         {synced(2), dependents.ErrPending, "Synced"},
		"something must go first": {synced(2), dependents.ErrWaiting, dependents.ReasonPending},
	} {
		foo := newFoo("a", "a")
		foo.Generation, foo.Status.Conditions = 2, tc.before
		if err := status(t.Context(), foo, []dependents.Result{{Targeted: true, Err: tc.err}}); err != nil { // the context has no cluster to record an event in
			t.Fatal(err)
		}
		if c := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionSynced); c.Reason != tc.reason {
			t.Errorf("%s: it is %s, want %s", name, c.Reason, tc.reason)
		}
	}
}
