package dependents

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

func TestRolloutsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for _, r := range []Rollout{
		{MaxParallel: intstr.FromInt32(-1)}, {MaxParallel: intstr.FromString("some")}, {MaxParallel: intstr.FromString("-3%")}, {HaltAfter: -1},
	} {
		if r.validate() == nil {
			t.Errorf("%+v is allowed", r)
		}
	}
	if err := (Rollout{}).validate(); err != nil {
		t.Error(err)
	}
}

// TestARolloutIsFollowedWhileItIsLimited, and what was noted about it counts once that is so.
func TestARolloutIsFollowedWhileItIsLimited(t *testing.T) {
	t.Parallel()
	p := Rollout{HaltAfter: 1}.next(nil, hash{1})
	if p.Recall(record.NewFailures(hash{1}.String(), []mcreconcile.ClusterName{"a"})); !p.HasFailed("a") {
		t.Error("what was noted does not count")
	}
	if same := (Rollout{HaltAfter: 2}).next(p, hash{1}); same != p || !same.HasFailed("a") {
		t.Error("with another policy, it begins anew")
	}
	if (Rollout{}).next(p, hash{1}) != nil {
		t.Error("there is progress where nothing is limited")
	}
}

// TestAfterARestartAClusterThatGivesNoAnswerMayBeBeingChanged: it is so, or has failed, if the next look finds something that is not ready.
func TestAfterARestartAClusterThatGivesNoAnswerMayBeBeingChanged(t *testing.T) {
	t.Parallel()
	stalls := fmt.Errorf("%w: %w", ErrWaiting, errStalled)
	for haltAfter, failed := range map[int]bool{0: false, 1: true} {
		p := &plan{mode: serving, targets: []mcreconcile.ClusterName{"a", "b"}}
		o := newOwnerState(mcreconcile.Request{}, "1")
		o.plan, o.progress = p, Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: haltAfter}.next(nil, hash{})
		v := view{plan: p, targeted: true}
		for _, r := range []Result{{Err: errUnanswered, Unready: stalls}, {Unready: stalls}} {
			o.progressedLocked("a", v, report{Result: r})
		}
		if o.progress.HasFailed("a") != failed || len(o.progress.Involved()) != 1 {
			t.Errorf("HaltAfter %d: it has failed: %t, and %v are involved", haltAfter, !failed, o.progress.Involved())
		}
	}
}

// TestWhichMembersAreAwayForNow: they have not failed.
func TestWhichMembersAreAwayForNow(t *testing.T) {
	t.Parallel()
	in := func(state fleet.State, reason string, err error) error {
		return fmt.Errorf("visiting it: %w", &fleet.StateError{Err: err, Status: fleet.Status{State: state, Reason: reason}})
	}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"it is its turn soon":      {in(fleet.Pending, "", fleet.ErrNotReady), true},
		"it cannot be described":   {in(fleet.Pending, fleet.ReasonInvalid, fleet.ErrNotReady), false},
		"it is being connected":    {in(fleet.Connecting, "", fleet.ErrNotReady), true},
		"connecting it has failed": {in(fleet.Connecting, "Refused", fleet.ErrNotReady), false},
		"nobody knows whose it is": {in(fleet.Suspended, fleet.ReasonUnproved, fleet.ErrNotReady), true},
		"it was handed over":       {in(fleet.Draining, fleet.ReasonHandedOver, fleet.ErrNotOwned), true},
		"it is kept drained elsewhere": {
			fmt.Errorf("%w: %w", remote.ErrNoVisit, in(fleet.NotOwned, fleet.ReasonDrained, fleet.ErrNotOwned)), false,
		},
		"it gives no answer":    {in(fleet.Unreachable, "", fleet.ErrNotReady), false},
		"it is no more":         {in("", "", fleet.ErrGone), false},
		"nobody says how it is": {fleet.ErrNotReady, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := isAwayForNow(tc.err); got != tc.want {
				t.Errorf("%v: %t, want %t", tc.err, got, tc.want)
			}
		})
	}
}
