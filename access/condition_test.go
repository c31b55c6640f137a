package access

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
)

// TestAConditionSaysWhatIsWrongNow, also where something else of the same reason was wrong before. What only the cause says is no news.
func TestAConditionSaysWhatIsWrongNow(t *testing.T) {
	t.Parallel()
	hub, member := "the hub does not allow it", "the cluster gives no token"
	because := func(message, cause string) error {
		return fmt.Errorf("checking: %w", &Error{v1alpha1.ReasonNotAllowed, message, errors.New(cause)})
	}
	for name, tc := range map[string]struct {
		before, now error
		generation  int64 // now, and 1 before
		says        error
	}{
		"another message":                {before: because(hub, "a"), now: because(member, "a"), generation: 1, says: because(member, "a")},
		"another cause":                  {before: because(hub, "a"), now: because(hub, "b"), generation: 1, says: because(hub, "a")},
		"another cause, of another spec": {before: because(hub, "a"), now: because(hub, "b"), generation: 2, says: because(hub, "b")},
		"a longer name":                  {before: because(hub+"2", "a"), now: because(hub, "a"), generation: 1, says: because(hub, "a")},
		"another answer": {
			before: &Error{v1alpha1.ReasonNotAllowed, member, apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("rbac"))},
			now:    &Error{v1alpha1.ReasonNotAllowed, member, apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("a policy"))}, generation: 1,
			says: &Error{v1alpha1.ReasonNotAllowed, member, apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("a policy"))},
		},
		"what others say":                 {before: errors.New("port 1"), now: errors.New("port 2"), generation: 1, says: errors.New("port 1")},
		"what others say of another spec": {before: errors.New("port 1"), now: errors.New("port 2"), generation: 2, says: errors.New("port 2")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conditions []metav1.Condition
			setCondition(&conditions, 1, v1alpha1.ConditionReady, metav1.ConditionFalse, tc.before)
			setCondition(&conditions, tc.generation, v1alpha1.ConditionReady, metav1.ConditionFalse, tc.now)
			if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c.Message != tc.says.Error() || c.ObservedGeneration != tc.generation {
				t.Errorf("generation %d says %q, want %d and %q", c.ObservedGeneration, c.Message, tc.generation, tc.says)
			}
		})
	}
}

// TestAConditionSaysWhatKeepsATokenFromBeingRenewedNow: the hub and the cluster may refuse for one reason, one after the other.
func TestAConditionSaysWhatKeepsATokenFromBeingRenewedNow(t *testing.T) {
	t.Parallel()
	life := minterLife{made: time.Unix(1e9, 0), expires: time.Unix(1e9, 0).Add(week)}
	refused := func(message, answer string) error {
		return life.endsFor(&Error{v1alpha1.ReasonNotAllowed, message, apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New(answer))})
	}
	var conditions []metav1.Condition
	for _, why := range []error{
		refused("the cluster gives no token", "a policy"), refused("the cluster gives no token", "rbac"), refused("the Secret cannot be written", "rbac"),
	} {
		setCondition(&conditions, 1, v1alpha1.ConditionReady, metav1.ConditionTrue, why)
		if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c.Reason != v1alpha1.ReasonNotRenewed || c.Message != why.Error() {
			t.Errorf("it says %s: %q, want %q", c.Reason, c.Message, why)
		}
	}
}

// TestAMintersTokenThatCannotBeRenewedIsTriedSeldomAtFirst, and in time: each attempt may make a token that is of no use.
func TestAMintersTokenThatCannotBeRenewedIsTriedSeldomAtFirst(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	for name, tc := range map[string]struct {
		life minterLife
		want time.Duration
	}{
		"not due for long":       {minterLife{made: now, expires: now.Add(week)}, checkEvery},
		"due for a moment":       {minterLife{made: now.Add(-week * 9 / 10), expires: now.Add(week / 10)}, checkEvery},
		"it expires soon":        {minterLife{made: now.Add(-week), expires: now.Add(12 * time.Minute)}, 3 * time.Minute},
		"it expires at any time": {minterLife{made: now.Add(-week), expires: now.Add(time.Minute)}, renewFloor},
		"it has expired":         {minterLife{made: now.Add(-week), expires: now.Add(-time.Minute)}, renewFloor},
	} {
		if got := tc.life.next(now); got != tc.want {
			t.Errorf("%s: looked at again in %s, want %s", name, got, tc.want)
		}
	}
}

const week = 7 * 24 * time.Hour
