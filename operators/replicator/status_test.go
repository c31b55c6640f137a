package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

func TestAStatusThatIsWrittenAgainKeepsSinceWhenItIsSo(t *testing.T) {
	t.Parallel()
	r := replicator("r", []string{"east"}, configMap("a"))
	must(t, (&controller{}).status(t.Context(), r, nil))
	was := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionSynced)
	if was == nil || was.Reason != v1alpha1.ReasonNoTargets {
		t.Fatalf("without targets, the condition is %+v", was)
	}
	since := metav1.NewTime(time.Now().Add(-time.Hour))
	for i := range r.Status.Conditions {
		r.Status.Conditions[i].LastTransitionTime = since
	}
	r.Generation++
	must(t, (&controller{}).status(t.Context(), r, nil))
	for _, c := range r.Status.Conditions {
		if c.LastTransitionTime != since || c.ObservedGeneration != r.Generation {
			t.Errorf("%s is so since %s, of generation %d", c.Type, c.LastTransitionTime, c.ObservedGeneration)
		}
	}
}

// TestWhatIsNotSyncedSaysWhy for a cluster that is suspended, paused, or held back by a halt, and for one that another replica cannot visit.
func TestWhatIsNotSyncedSaysWhy(t *testing.T) {
	t.Parallel()
	suspended := []dependents.ObjectResult{{State: dependents.Suspended}}
	paused := fleet.Status{Name: "south", State: fleet.Ready, Paused: true}
	got := notSyncedIn([]dependents.Result{
		{Cluster: "done", Targeted: true, Objects: []dependents.ObjectResult{{State: dependents.Applied}}},
		{Cluster: "east", Targeted: true, Objects: suspended},
		{Cluster: "south", Targeted: true, Err: &fleet.StateError{Err: fleet.ErrNotReady, Status: paused}},
		{Cluster: "west", Targeted: true, Err: fmt.Errorf("visiting it: %w", fleet.ErrDisengaged)},
	})
	if want := "east (Suspended), south (Paused), west (Unreachable)"; got != want {
		t.Errorf("not synced in %q, want %q", got, want)
	}
	halted := fmt.Errorf("%w: %w", dependents.ErrWaiting, dependents.ErrHalted)
	if got := word(dependents.Result{Targeted: true, Err: halted, Stuck: true}); got != dependents.ReasonHalted {
		t.Errorf("one that is held back by a halt is %s", got)
	}
	r := replicator("r", []string{"east"}, configMap("a"))
	must(t, (&controller{}).status(t.Context(), r, []dependents.Result{{Cluster: "east", Targeted: true, Objects: suspended}}))
	if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionSynced); c == nil || c.Status != metav1.ConditionFalse || c.Reason != dependents.ReasonSuspended {
		t.Errorf("what was written nowhere is %+v", c)
	}
}

// outdated keeps a patch, and says that somebody else has written meanwhile.
type outdated struct {
	client.SubResourceWriter
	text string
}

func (o *outdated) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	text, err := patch.Data(obj)
	o.text = string(text)
	return errors.Join(err, apierrors.NewConflict(schema.GroupResource{}, obj.GetName(), nil))
}

// TestNothingIsWrittenOverWhatOthersHaveWritten of a Replicator of which neither spec nor status can be decoded, and that is no error of it.
func TestNothingIsWrittenOverWhatOthersHaveWritten(t *testing.T) {
	t.Parallel()
	r := &v1alpha1.Replicator{}
	must(t, json.Unmarshal([]byte(`{"metadata":{"resourceVersion":"7"},"spec":{"suspend":1},"status":{"failed":1.0000000001}}`), r))
	written := &outdated{}
	_, err := (&controller{statuses: written}).targets(t.Context(), r)
	if err == nil || err.Error() != errOfSpec(r).Error() {
		t.Errorf("the error is %v", err)
	}
	for _, part := range []string{`"resourceVersion":"7"`, `"failed":0`, `"notSyncedIn":null`} {
		if !strings.Contains(written.text, part) {
			t.Errorf("the patch has no %s: %s", part, written.text)
		}
	}
}

func TestTheColumnTellsOfWhatIsRefusedBeforeWhatWaits(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	waits := dependents.ObjectResult{State: dependents.Waiting, Err: errors.New("its namespace is being deleted")}
	behind := dependents.ObjectResult{State: dependents.Waiting, Err: fmt.Errorf("%w: the wave before", dependents.ErrWaiting)}
	unseen := dependents.ObjectResult{State: dependents.Waiting, Err: dependents.ErrPending}
	conflict := dependents.ObjectResult{State: dependents.Conflict, Err: refused}
	done := dependents.ObjectResult{State: dependents.Applied}
	for want, objects := range map[string][]dependents.ObjectResult{
		"east (Conflict)": {done, waits, conflict},
		"east (Waiting)":  {done, waits},
		"east (Invalid)":  {done, unseen, behind},
	} {
		if got := notSyncedIn([]dependents.Result{{Cluster: "east", Targeted: true, Err: refused, Objects: objects}}); got != want {
			t.Errorf("the column says %q, want %q", got, want)
		}
	}
}

// TestTheColumnTellsOfWhatLeaves: of a member that leaves the fleet, and of one that is no target any more.
func TestTheColumnTellsOfWhatLeaves(t *testing.T) {
	t.Parallel()
	got := notSyncedIn([]dependents.Result{
		{Cluster: "east", Targeted: true, Err: fmt.Errorf("it goes first: %w", dependents.ErrLeaving)},
		{Cluster: "west", Err: dependents.ErrPending},
	})
	if want := "east (Leaving), west (Leaving)"; got != want {
		t.Errorf("not synced in %q, want %q", got, want)
	}
}

// TestTheColumnIsOneShortLine: tenants write the names of clusters.
func TestTheColumnIsOneShortLine(t *testing.T) {
	t.Parallel()
	unknown := &fleet.StateError{Err: fleet.ErrUnknown}
	for name, want := range map[string]string{
		"a\nb\x1b[31m":              "a b[31m (Unknown)",
		strings.Repeat("x", 10_000): strings.Repeat("x", 60) + "… (Unknown)",
		strings.Repeat("\n", 253):   " (Unknown)",
	} {
		if got := notSyncedIn([]dependents.Result{{Cluster: fleet.ClusterName(name), Targeted: true, Err: unknown}}); got != want {
			t.Errorf("of a cluster that is called %.20q…, the column says %q, want %q", name, got, want)
		}
	}
}
