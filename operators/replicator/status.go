package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

// status writes to the status of a Replicator what came of it.
func (c *controller) status(_ context.Context, r *v1alpha1.Replicator, results []dependents.Result) error {
	s := dependents.Summarize(results)
	now := &r.Status
	now.ObservedGeneration = r.Generation
	now.Targets, now.Synced, now.Pending, now.Failed, now.Unreachable = s.Targets, s.Done, s.Pending, s.Failed, s.Unreachable
	now.NotReady, now.Leaving, now.NotSyncedIn = s.NotReady, s.Leaving, notSyncedIn(results)
	var conditions []metav1.Condition // apart: what becomes so and at once no more would count as a change
	s.SetConditions(&conditions, r.Generation)
	if s.Targets == 0 && r.DeletionTimestamp.IsZero() && s.FirstError == nil {
		meta.SetStatusCondition(&conditions, metav1.Condition{
			Type: v1alpha1.ConditionSynced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoTargets,
			ObservedGeneration: r.Generation, Message: "no member of the fleet is chosen by spec.clusters",
		})
	}
	if _, why := c.choice(r); why != nil && r.DeletionTimestamp.IsZero() {
		meta.SetStatusCondition(&conditions, invalid(r, why))
	}
	for _, condition := range conditions {
		meta.SetStatusCondition(&now.Conditions, condition)
	}
	return nil
}

// invalid says why nothing is done for a Replicator as it is.
func invalid(r *v1alpha1.Replicator, why error) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.ConditionSynced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalid,
		ObservedGeneration: r.Generation, Message: why.Error(),
	}
}

// errOfSpec says why the spec of a Replicator cannot be decoded, nil if it can.
func errOfSpec(r *v1alpha1.Replicator) error {
	if r.Spec.DecodeError == "" {
		return nil
	}
	return fmt.Errorf("the spec cannot be decoded: %s", oneline.Text(r.Spec.DecodeError, mostSaid))
}

const (
	mostNamed    = 3  // how many clusters are named where there is room for few
	longestNamed = 63 // how much of a name there is then, in bytes
)

// notSyncedIn names clusters that are not as desired, each with a word for why.
func notSyncedIn(results []dependents.Result) string {
	var names []string
	more := 0
	for _, r := range results {
		switch {
		case dependents.Summarize([]dependents.Result{r}).Done > 0:
		case len(names) == mostNamed:
			more++
		default:
			names = append(names, oneline.Text(string(r.Cluster), longestNamed)+" ("+word(r)+")")
		}
	}
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// word says in one why a cluster is not as desired.
func word(r dependents.Result) string {
	if state, ok := errors.AsType[*fleet.StateError](r.Err); ok && state.Status.State != "" {
		if state.Status.State == fleet.Ready && state.Status.Paused {
			return fleet.ReasonPaused
		}
		return string(state.Status.State)
	}
	switch {
	case errors.Is(r.Err, fleet.ErrUnknown), errors.Is(r.Err, fleet.ErrGone):
		return "Unknown"
	case !r.Targeted, errors.Is(r.Err, dependents.ErrLeaving):
		return "Leaving"
	case errors.Is(r.Err, dependents.ErrHalted):
		return dependents.ReasonHalted
	case r.Stuck:
		return "Stuck"
	case errors.Is(r.Err, dependents.ErrPending), errors.Is(r.Err, dependents.ErrWaiting):
		return dependents.ReasonPending
	case dependents.Summarize([]dependents.Result{r}).Unreachable > 0:
		return dependents.ReasonUnreachable
	case r.Err == nil:
		return string(dependents.Suspended)
	}
	worst := "Invalid"
	for _, o := range r.Objects {
		switch {
		case o.Err == nil, errors.Is(o.Err, dependents.ErrPending), errors.Is(o.Err, dependents.ErrWaiting): // something else is in their way
		case o.State != dependents.Waiting:
			return string(o.State)
		default: // what waits tells less than what is refused
			worst = string(o.State)
		}
	}
	return worst
}
