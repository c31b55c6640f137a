package main

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

func TestAStatusThatIsWrittenAgainKeepsSinceWhenItIsSo(t *testing.T) {
	t.Parallel()
	r := replicator("r", []string{"east"}, configMap("a"))
	must(t, status(t.Context(), r, nil))
	was := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionSynced)
	if was == nil || was.Reason != v1alpha1.ReasonNoTargets {
		t.Fatalf("without targets, the condition is %+v", was)
	}
	since := metav1.NewTime(time.Now().Add(-time.Hour))
	for i := range r.Status.Conditions {
		r.Status.Conditions[i].LastTransitionTime = since
	}
	r.Generation++
	must(t, status(t.Context(), r, nil))
	for _, c := range r.Status.Conditions {
		if c.LastTransitionTime != since || c.ObservedGeneration != r.Generation {
			t.Errorf("%s is so since %s, of generation %d", c.Type, c.LastTransitionTime, c.ObservedGeneration)
		}
	}
}

func TestTheColumnTellsOfWhatIsRefusedBeforeWhatWaits(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	waits := dependents.ObjectResult{State: dependents.Waiting, Err: dependents.ErrWaiting}
	conflict := dependents.ObjectResult{State: dependents.Conflict, Err: refused}
	done := dependents.ObjectResult{State: dependents.Applied}
	for want, objects := range map[string][]dependents.ObjectResult{
		"east (Conflict)": {done, waits, conflict},
		"east (Waiting)":  {done, waits},
		"east (Invalid)":  {done},
	} {
		if got := notSyncedIn([]dependents.Result{{Cluster: "east", Targeted: true, Err: refused, Objects: objects}}); got != want {
			t.Errorf("the column says %q, want %q", got, want)
		}
	}
}
