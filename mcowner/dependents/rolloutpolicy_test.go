package dependents

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/rollout"
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

// TestWhatHasFailedCountsBehindWhatIsNotReady of the same wave.
func TestWhatHasFailedCountsBehindWhatIsNotReady(t *testing.T) {
	t.Parallel()
	kind := remote.Untyped(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
	s := &sequence{everyone: true}
	for _, condition := range []string{"Reconciling", "Stalled", "Reconciling"} {
		obj := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
			"conditions": []any{map[string]any{"type": condition, "status": "True"}},
		}}}
		s.note(remote.Session{}, wanted{kind: kind, obj: obj}, ObjectResult{Object: obj})
	}
	if got := outcomeOf(report{Result: Result{Unready: s.unready}}, true); got != rollout.Stalled {
		t.Errorf("the outcome is %d, as %v", got, s.unready)
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

// TestAClusterThatIsBeingChangedFailsAsItIsAway, and not as Desired needs another one that is.
func TestAClusterThatIsBeingChangedFailsAsItIsAway(t *testing.T) {
	t.Parallel()
	away := func(name mcreconcile.ClusterName) error {
		return fmt.Errorf("finding it: %w", &fleet.StateError{Err: fleet.ErrNotReady, Status: fleet.Status{Name: name, State: fleet.Unreachable}})
	}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"itself":      {away("a"), true},
		"another":     {away("cfg"), false},
		"both":        {errors.Join(away("cfg"), away("a")), true},
		"not visited": {remote.ErrNoVisit, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &plan{mode: serving, targets: []mcreconcile.ClusterName{"a"}}
			o := newOwnerState(mcreconcile.Request{}, "1")
			o.plan, o.progress = p, Rollout{HaltAfter: 1}.next(nil, hash{})
			v := view{plan: p, targeted: true}
			for o.progress.Ask("a", of(1)) != nil {
				o.progress.Note("a", rollout.Other)
				o.progress.Grant(1)
			}
			if o.progressedLocked("a", v, report{Result: Result{Err: tc.err}}); o.progress.HasFailed("a") != tc.want {
				t.Errorf("it has failed: %t, want %t", !tc.want, tc.want)
			}
		})
	}
}

// TestWhichClustersAreHeldUpByOthers, of which cfg can be used by now.
func TestWhichClustersAreHeldUpByOthers(t *testing.T) {
	t.Parallel()
	of := func(name mcreconcile.ClusterName, err error) error {
		return fmt.Errorf("finding it: %w", &fleet.StateError{Err: err, Status: fleet.Status{Name: name}})
	}
	for name, tc := range map[string]struct {
		last error
		want bool
	}{
		"nothing was wrong":                  {nil, false},
		"it was not answered":                {errUnanswered, false},
		"it was away itself":                 {of("a", fleet.ErrGone), false},
		"it was, and needs another":          {errors.Join(of("a", fleet.ErrNotReady), of("lost", fleet.ErrNotReady)), false},
		"it needs one that is away":          {of("lost", fleet.ErrNotReady), true},
		"it needs that, and one that is not": {errors.Join(of("cfg", fleet.ErrNotReady), of("lost", fleet.ErrNotReady)), true},
		"it needs one that is back":          {of("cfg", fleet.ErrNotReady), false},
		"it needs one that was gone":         {of("cfg", fleet.ErrGone), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := isHeldUp("a", tc.last, func(name mcreconcile.ClusterName) bool { return name != "cfg" }); got != tc.want {
				t.Errorf("%v: %t, want %t", tc.last, got, tc.want)
			}
		})
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
		"it gives no answer":         {in(fleet.Unreachable, "", fleet.ErrNotReady), false},
		"it is no more":              {in("", "", fleet.ErrGone), false},
		"nobody says how it is":      {fleet.ErrNotReady, false},
		"it was just connected anew": {fmt.Errorf("finding out which it is: %w", fleet.ErrDisengaged), true},
		"it was lost":                {fmt.Errorf("%w: %w", fleet.ErrDisengaged, in(fleet.Unreachable, "", fleet.ErrNotReady)), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := isAwayForNow(tc.err); got != tc.want {
				t.Errorf("%v: %t, want %t", tc.err, got, tc.want)
			}
		})
	}
}

// of is how many targets there are.
func of(n int) func() int { return func() int { return n } }
