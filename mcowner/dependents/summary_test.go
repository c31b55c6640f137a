package dependents_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// The status of an owner of many clusters has counts, conditions, and what is in the way first.
func ExampleSummarize() {
	results := []dependents.Result{ // as Status gets them
		{Cluster: "a", Targeted: true},
		{Cluster: "b", Targeted: true, Err: dependents.ErrPending},
		{Cluster: "c", Targeted: true, Err: errors.New("quota exceeded")},
	}
	var status struct { // of an owner
		dependents.Summary

		Conditions []metav1.Condition
	}
	status.Summary = dependents.Summarize(results)
	status.SetConditions(&status.Conditions, 1)
	fmt.Println(status.Done, "of", status.Targets)
	for _, c := range status.Conditions {
		fmt.Println(c.Type, c.Status, c.Reason, c.Message)
	}
	// Output:
	// 1 of 3
	// Synced False Failed 1 of 3 clusters are as desired; cluster "c": quota exceeded
	// Progressing True Pending 1 clusters are pending, 0 are being left
}

func TestASummaryCountsEachTargetOnceAndHasTheFirstFailure(t *testing.T) {
	t.Parallel()
	failed, away := errors.New("refused"), fmt.Errorf("using it: %w", fleet.ErrNotReady)
	halted := fmt.Errorf("%w: %w", dependents.ErrWaiting, dependents.ErrHalted)
	for what, c := range map[string]struct {
		results       []dependents.Result
		want          dependents.Summary
		synced        string
		isProgressing bool
		isSynced      bool
	}{
		"nothing": {nil, dependents.Summary{}, dependents.ReasonDone, false, true},
		"a failure after a cluster that is away": {
			[]dependents.Result{
				{Cluster: "a", Targeted: true, Err: away},
				{Cluster: "b", Targeted: true, Err: failed},
				{Cluster: "c", Targeted: true},
				{Cluster: "d", Targeted: true, Err: dependents.ErrPending},
			},
			dependents.Summary{Targets: 4, Done: 1, Pending: 1, Unreachable: 1, Failed: 1, FirstError: failed, FirstCluster: "b"},
			dependents.ReasonFailed, true, false,
		},
		"a cluster that is away and to be left": {
			[]dependents.Result{{Cluster: "a", Err: away}},
			dependents.Summary{Leaving: 1, FirstError: away, FirstCluster: "a"},
			dependents.ReasonUnreachable, false, false,
		},
		"a cluster that is to be left, and refuses": {
			[]dependents.Result{{Cluster: "a", Err: failed}},
			dependents.Summary{Leaving: 1, FirstError: failed, FirstCluster: "a"},
			dependents.ReasonFailed, false, false,
		},
		"a cluster that is being left": {
			[]dependents.Result{{Cluster: "a", Err: dependents.ErrPending}},
			dependents.Summary{Leaving: 1},
			dependents.ReasonPending, true, false,
		},
		"clusters that wait, and are not ready": {
			[]dependents.Result{
				{Cluster: "a", Targeted: true, Err: fmt.Errorf("%w: for others", dependents.ErrWaiting)},
				{Cluster: "b", Targeted: true, Unready: dependents.ErrWaiting},
			},
			dependents.Summary{Targets: 2, Done: 1, Pending: 1, NotReady: 1},
			dependents.ReasonPending, true, false,
		},
		"clusters that wait since one has failed": {
			[]dependents.Result{
				{Cluster: "a", Targeted: true, Unready: dependents.ErrWaiting},
				{Cluster: "b", Targeted: true, Err: halted, Stuck: true},
				{Cluster: "c", Targeted: true, Err: halted},
			},
			dependents.Summary{Targets: 3, Done: 1, Pending: 2, NotReady: 1, Halted: halted, Stuck: 1, FirstStuck: "b"},
			dependents.ReasonPending, false, false,
		},
		"a cluster that is not ready": {
			[]dependents.Result{{Cluster: "a", Targeted: true, Unready: dependents.ErrWaiting}},
			dependents.Summary{Targets: 1, Done: 1, NotReady: 1},
			dependents.ReasonDone, true, true,
		},
		"a cluster in which something is suspended": {
			[]dependents.Result{
				{Cluster: "a", Targeted: true},
				{Cluster: "b", Targeted: true, Objects: []dependents.ObjectResult{{State: dependents.Unchanged}, {State: dependents.Suspended}}},
			},
			dependents.Summary{Targets: 2, Done: 1, Suspended: 1},
			dependents.ReasonSuspended, false, false,
		},
		"clusters that are stuck": {
			[]dependents.Result{
				{Cluster: "a", Targeted: true, Unready: dependents.ErrWaiting, Stuck: true},
				{Cluster: "b", Targeted: true, Err: dependents.ErrPending, Stuck: true},
			},
			dependents.Summary{Targets: 2, Done: 1, Pending: 1, NotReady: 1, Stuck: 2, FirstStuck: "a"},
			dependents.ReasonPending, false, false,
		},
	} {
		got := dependents.Summarize(c.results)
		if diff := cmp.Diff(c.want, got, cmpopts.EquateErrors()); diff != "" {
			t.Errorf("%s (-want, +got):\n%s", what, diff)
		}
		var conditions []metav1.Condition
		got.SetConditions(&conditions, 1)
		if synced := meta.FindStatusCondition(conditions, dependents.ConditionSynced); synced.Reason != c.synced ||
			(synced.Status == metav1.ConditionTrue) != c.isSynced {
			t.Errorf("%s: the condition is %+v", what, synced)
		}
		if meta.IsStatusConditionTrue(conditions, dependents.ConditionProgressing) != c.isProgressing {
			t.Errorf("%s: the conditions are %+v", what, conditions)
		}
	}
}
