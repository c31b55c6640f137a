package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobv1 "github.com/fleet-runtime/fleet-runtime/examples/jobs/v1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// reported says that all clusters but one are known.
var reported mayCome = func(name mcreconcile.ClusterName) bool { return name == "late" }

func TestStatus(t *testing.T) {
	running := jobv1.Result{State: jobv1.StateRunning}
	failed, complete := jobv1.Result{State: jobv1.StateFailed}, jobv1.Result{Cluster: "sub", State: jobv1.StateComplete}
	cases := map[string]struct {
		before jobv1.TestStatus
		now    []dependents.Result
		want   jobv1.Phase
		in     []jobv1.Result
	}{
		"NothingIsKnown": {want: jobv1.PhaseRunning},
		"AClusterThatIsNotReadyMayComplete": {
			now:  []dependents.Result{result("", batchv1.JobFailed), {Cluster: "sub", Targeted: true, Err: fleet.ErrNotReady}},
			want: jobv1.PhaseRunning,
			in:   []jobv1.Result{failed, {Cluster: "sub", State: jobv1.StatePending, Message: fleet.ErrNotReady.Error()}},
		},
		"AClusterThatIsPausedMayCompleteToo": {
			now: []dependents.Result{result("", batchv1.JobFailed), {Cluster: "sub", Targeted: true, Err: &fleet.StateError{
				Err: fleet.ErrNotReady, Status: fleet.Status{Name: "sub", State: fleet.Ready, Paused: true},
			}}},
			want: jobv1.PhaseRunning,
			in:   []jobv1.Result{failed, {Cluster: "sub", State: jobv1.StatePending, Message: "the cluster is paused"}},
		},
		"AClusterThatIsPausedAndAwayIsNotReady": {
			now: []dependents.Result{{Targeted: true, Err: &fleet.StateError{
				Err: fleet.ErrNotReady, Status: fleet.Status{State: fleet.Unreachable, Paused: true},
			}}},
			want: jobv1.PhaseRunning,
			in:   []jobv1.Result{{State: jobv1.StatePending, Message: fleet.ErrNotReady.Error()}},
		},
		"AClusterThatIsNotKnownYetMayCompleteToo": {
			before: jobv1.TestStatus{Phase: jobv1.PhaseRunning, Results: []jobv1.Result{failed, {Cluster: "sub", State: jobv1.StateRunning}}},
			now:    []dependents.Result{result("", batchv1.JobFailed), {Cluster: "sub", Err: fleet.ErrUnknown}},
			want:   jobv1.PhaseRunning,
			in:     []jobv1.Result{failed, {Cluster: "sub", State: jobv1.StatePending, Message: fleet.ErrUnknown.Error()}},
		},
		"AClusterThatHasNeverHadTheJobMayCompleteToo": {
			before: jobv1.TestStatus{Phase: jobv1.PhaseRunning, Results: []jobv1.Result{failed, {Cluster: "late", State: jobv1.StatePending}}},
			now:    []dependents.Result{result("", batchv1.JobFailed)},
			want:   jobv1.PhaseRunning,
			in:     []jobv1.Result{failed, {Cluster: "late", State: jobv1.StatePending, Message: fleet.ErrUnknown.Error()}},
		},
		"AClusterThatWasLeftDoesNotCount": {
			before: jobv1.TestStatus{Results: []jobv1.Result{failed, {Cluster: "late", State: jobv1.StatePending}}},
			now:    []dependents.Result{result("", batchv1.JobFailed), {Cluster: "late"}},
			want:   jobv1.PhaseFailed,
			in:     []jobv1.Result{failed},
		},
		"AClusterThatIsNoMemberAnyMoreDoesNotCount": {
			before: jobv1.TestStatus{Results: []jobv1.Result{failed, {Cluster: "sub", State: jobv1.StatePending}}},
			now:    []dependents.Result{result("", batchv1.JobFailed)},
			want:   jobv1.PhaseFailed,
			in:     []jobv1.Result{failed},
		},
		"AClusterThatIsNoLongerSelectedDoesNotCount": {
			before: jobv1.TestStatus{Results: []jobv1.Result{failed, {Cluster: "sub", State: jobv1.StateRunning}}},
			now:    []dependents.Result{result("", batchv1.JobFailed), {Cluster: "sub"}},
			want:   jobv1.PhaseFailed,
			in:     []jobv1.Result{failed},
		},
		"AJobThatIsGoneHasBeenComplete": {
			before: jobv1.TestStatus{Phase: jobv1.PhaseFinished, Results: []jobv1.Result{running, complete}},
			now:    []dependents.Result{result("", batchv1.JobFailed), {Cluster: "sub", Targeted: true}},
			want:   jobv1.PhaseFinished,
			in:     []jobv1.Result{failed, complete},
		},
		"AFailureIsFinal": {
			before: jobv1.TestStatus{Phase: jobv1.PhaseFailed, Results: []jobv1.Result{failed}},
			now:    []dependents.Result{{Targeted: true}, result("sub", batchv1.JobComplete)},
			want:   jobv1.PhaseFailed,
			in:     []jobv1.Result{failed, complete},
		},
		"WhatIsSuspendedIsTold": {
			now:  []dependents.Result{{Targeted: true, Objects: []dependents.ObjectResult{{State: dependents.Suspended}}}},
			want: jobv1.PhaseRunning,
			in:   []jobv1.Result{{State: jobv1.StatePending, Message: "the Job is not as it should be, and is left so: the annotation fleet-runtime.dev/suspend says so"}},
		},
		"WhatIsPendingIsNothingWrong": {
			now:  []dependents.Result{{Targeted: true, Err: dependents.ErrPending}},
			want: jobv1.PhaseRunning,
			in:   []jobv1.Result{{State: jobv1.StatePending}},
		},
		"AnErrorIsNotRepeated": {
			now:  []dependents.Result{{Targeted: true, Err: errors.New("read tcp 127.0.0.1:4711->127.0.0.1:443")}},
			want: jobv1.PhaseRunning,
			in:   []jobv1.Result{{State: jobv1.StatePending, Message: "the Job is not as it should be; the events say why"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			test := &jobv1.Test{Status: tc.before}
			must(t, reported.status(t.Context(), test, tc.now))
			if test.Status.Phase != tc.want {
				t.Errorf("the phase is %q, want %q", test.Status.Phase, tc.want)
			}
			if diff := cmp.Diff(append([]jobv1.Result{}, tc.in...), test.Status.Results); diff != "" {
				t.Errorf("results (-want, +got):\n%s", diff)
			}
		})
	}
}

// result is that of a cluster with a Job which has ended.
func result(cluster fleet.ClusterName, how batchv1.JobConditionType) dependents.Result {
	job := &batchv1.Job{}
	job.Status.Conditions = []batchv1.JobCondition{
		{Type: batchv1.JobSuspended, Status: corev1.ConditionFalse},
		{Type: how, Status: corev1.ConditionTrue},
	}
	return dependents.Result{Cluster: cluster, Targeted: true, Objects: []dependents.ObjectResult{{State: dependents.Unchanged, Object: job}}}
}

func TestTheStatusOfATestThatIsBeingDeletedStays(t *testing.T) {
	test := newTest("deleted")
	test.DeletionTimestamp = new(metav1.Now())
	test.Status = jobv1.TestStatus{Phase: jobv1.PhaseRunning}
	before := test.DeepCopy()
	must(t, reported.status(t.Context(), test, []dependents.Result{result("", batchv1.JobFailed)}))
	if diff := cmp.Diff(before, test); diff != "" {
		t.Errorf("the status has changed (-before, +after):\n%s", diff)
	}
}

// TestWhatClustersSayHasBoundedRoom: whoever writes Jobs in one says what he likes, such as what JSON makes six times as long.
func TestWhatClustersSayHasBoundedRoom(t *testing.T) {
	w := newWorld(t)
	test := w.create(t, "a")
	said := make([]dependents.Result, 3000)
	for i := range said {
		r := result(mcreconcile.ClusterName(fmt.Sprintf("cluster-%04d", i)), batchv1.JobFailed)
		conditions := r.Dependents()[0].(*batchv1.Job).Status.Conditions //nolint:forcetypeassert // result has made it
		conditions[len(conditions)-1].Message = "ä" + strings.Repeat("<ä", 5_000)
		said[i] = r
	}
	for range 2 { // what was said before is bounded too
		must(t, reported.status(t.Context(), test, said))
		must(t, w.main.Client().Status().Update(t.Context(), test))
		for i, r := range test.Status.Results {
			if n := len(r.Message); !utf8.ValidString(r.Message) || i < 50 && (n < 990 || n > 1000) {
				t.Errorf("the message of %s has %d bytes: %q", r.Cluster, n, r.Message)
			}
		}
	}
}

// TestWhatHasEndedIsNotRunAgain when its Job is deleted.
func TestWhatHasEndedIsNotRunAgain(t *testing.T) {
	failedInSub := []jobv1.Result{{State: jobv1.StateRunning}, {Cluster: "sub", State: jobv1.StateFailed}}
	cases := map[string]struct {
		status jobv1.TestStatus
		in     dependents.Target
		want   int
	}{
		"New":                {in: dependents.Target{Cluster: "sub"}, want: 1},
		"RunningThere":       {jobv1.TestStatus{Phase: jobv1.PhaseRunning, Results: failedInSub}, dependents.Target{}, 1},
		"EndedThere":         {jobv1.TestStatus{Phase: jobv1.PhaseRunning, Results: failedInSub}, dependents.Target{Cluster: "sub"}, 0},
		"FinishedSomewhere":  {jobv1.TestStatus{Phase: jobv1.PhaseFinished}, dependents.Target{Cluster: "sub"}, 0},
		"FinishedAndThereIs": {jobv1.TestStatus{Phase: jobv1.PhaseFinished}, dependents.Target{Cluster: "sub", Dependents: []client.Object{newJob("a")}}, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			test := newTest("a")
			test.Status = tc.status
			jobs, err := jobOf(t.Context(), test, tc.in)
			if err != nil || len(jobs) != tc.want {
				t.Errorf("%d Jobs are desired (%v), want %d", len(jobs), err, tc.want)
			}
		})
	}
}
