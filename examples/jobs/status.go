package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobv1 "github.com/fleet-runtime/fleet-runtime/examples/jobs/v1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// mayCome reports whether a cluster may be a member that no provider has reported yet, since the program began.
type mayCome func(mcreconcile.ClusterName) bool

// status writes to the status of a Test what came of its Jobs.
func (may mayCome) status(_ context.Context, test *jobv1.Test, results []dependents.Result) error {
	if !test.DeletionTimestamp.IsZero() {
		return nil
	}
	test.Status.Results = may.merge(test.Status.Results, results)
	if !test.Status.Phase.IsFinal() {
		test.Status.Phase = phaseOf(test.Status.Results)
	}
	setCondition(test, jobv1.ConditionComplete, jobv1.PhaseFinished)
	setCondition(test, jobv1.ConditionFailed, jobv1.PhaseFailed)
	return nil
}

// merge returns the results of all clusters. A Job that has ended counts for ever, also when it is deleted or its cluster
// leaves. A cluster that has waited for its Job, and is not known yet, waits on.
func (may mayCome) merge(before []jobv1.Result, now []dependents.Result) []jobv1.Result {
	merged := map[mcreconcile.ClusterName]jobv1.Result{}
	for _, r := range before {
		switch {
		case r.State.IsFinal():
			merged[r.Cluster] = r
		case may(r.Cluster):
			merged[r.Cluster] = jobv1.Result{Cluster: r.Cluster, State: jobv1.StatePending, Message: fleet.ErrUnknown.Error()}
		}
	}
	for _, r := range now {
		left := !r.Targeted && r.Err == nil // if it cannot be told that it was left, it counts
		switch {
		case merged[r.Cluster].State.IsFinal():
		case left:
			delete(merged, r.Cluster)
		default:
			merged[r.Cluster] = resultOf(r)
		}
	}
	all := make([]jobv1.Result, 0, len(merged))
	for _, r := range merged {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b jobv1.Result) int { return cmp.Compare(a.Cluster, b.Cluster) })
	shorten(all)
	return all
}

// mostOfOne and mostOfAll bound messages, in bytes. JSON may make six of one, and an object has a megabyte.
const mostOfOne, mostOfAll = 1000, 100_000

// shorten cuts off messages of clusters that say too much, and of the last ones where all together do.
func shorten(results []jobv1.Result) {
	room := mostOfAll
	for i := range results {
		message := &results[i].Message
		if most := min(mostOfOne, room); len(*message) > most {
			*message = strings.ToValidUTF8((*message)[:most], "") // half a character is none
		}
		room -= len(*message)
	}
}

// phaseOf returns how far a Test has come: one cluster is enough to finish it, and all must fail for it to fail.
func phaseOf(results []jobv1.Result) jobv1.Phase {
	failed := 0
	for _, r := range results {
		switch r.State {
		case jobv1.StateComplete:
			return jobv1.PhaseFinished
		case jobv1.StateFailed:
			failed++
		case jobv1.StatePending, jobv1.StateRunning:
		}
	}
	if failed > 0 && failed == len(results) {
		return jobv1.PhaseFailed
	}
	return jobv1.PhaseRunning
}

// resultOf returns how far the Job of one cluster has come.
func resultOf(r dependents.Result) jobv1.Result {
	result := jobv1.Result{Cluster: r.Cluster, State: jobv1.StatePending, Message: reasonOf(r)}
	for _, d := range r.Dependents() {
		job := d.(*batchv1.Job).Status //nolint:forcetypeassert // it is the only kind
		if job.Active > 0 {
			result.State = jobv1.StateRunning
		}
		for _, c := range job.Conditions {
			switch {
			case c.Status != corev1.ConditionTrue:
			case c.Type == batchv1.JobComplete:
				result.State, result.Message = jobv1.StateComplete, c.Message
			case c.Type == batchv1.JobFailed:
				result.State, result.Message = jobv1.StateFailed, c.Message
			}
		}
	}
	return result
}

// reasonOf says why there is no Job, if something is in the way. It does not repeat errors that may be different each
// time: the library's events have them.
func reasonOf(r dependents.Result) string {
	if in, ok := errors.AsType[*fleet.StateError](r.Err); ok && in.Status.State == fleet.Ready && in.Status.Paused {
		return "the cluster is paused"
	}
	for _, known := range []error{fleet.ErrUnknown, fleet.ErrNotReady, fleet.ErrGone} {
		if errors.Is(r.Err, known) {
			return known.Error()
		}
	}
	conflict, isConflict := errors.AsType[*dependents.ConflictError](r.Err)
	summary := dependents.Summarize([]dependents.Result{r})
	switch {
	case summary.Suspended > 0:
		return fmt.Sprintf("the Job is not as it should be, and is left so: the annotation %s says so", dependents.SuspendAnnotation)
	case r.Err == nil, summary.Pending > 0:
		return ""
	case isConflict:
		return fmt.Sprintf("%s exists already: %v", conflict.Object, conflict.Why)
	default:
		return "the Job is not as it should be; the events say why"
	}
}

// setCondition sets a condition to True if the Test has come to that phase.
func setCondition(test *jobv1.Test, condition string, phase jobv1.Phase) {
	c := metav1.Condition{Type: condition, Status: metav1.ConditionFalse, ObservedGeneration: test.Generation}
	if test.Status.Phase == phase {
		c.Status = metav1.ConditionTrue
	}
	switch test.Status.Phase {
	case jobv1.PhaseRunning:
		c.Reason, c.Message = "Running", "No cluster has completed its Job so far"
	case jobv1.PhaseFinished:
		c.Reason, c.Message = "Finished", "A cluster has completed its Job"
	case jobv1.PhaseFailed:
		c.Reason, c.Message = "Failed", fmt.Sprintf("The Jobs of all clusters (%d) have failed", len(test.Status.Results))
	}
	meta.SetStatusCondition(&test.Status.Conditions, c)
}
