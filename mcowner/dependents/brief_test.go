package dependents

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// TestALongErrorIsKeptInBrief: it says the beginning of what it said, and is found to be what it was.
func TestALongErrorIsKeptInBrief(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long ", 100_000)
	refused := func(cause metav1.CauseType) *apierrors.StatusError {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "refused: " + long,
			Details: &metav1.StatusDetails{Name: long, Causes: slices.Repeat([]metav1.StatusCause{{Type: cause, Message: long, Field: long}}, 100)},
		}}
	}
	quiet := refused("")
	quiet.ErrStatus.Message = "refused: "
	conflict := &ConflictError{Cluster: "a", Object: "Foo b/c", Why: errors.New("somebody's")}
	isCut := func(err error) bool { return errors.Is(err, errCut) }
	for name, tc := range map[string]struct {
		err error
		is  func(error) bool
	}{
		"AnAnswer":            {fmt.Errorf("refused: %w", refused("")), apierrors.IsForbidden},
		"OnlyTheDetails":      {fmt.Errorf("refused: %w", quiet), apierrors.IsForbidden},
		"ATerminating":        {fmt.Errorf("refused: %w", refused(corev1.NamespaceTerminatingCause)), isTerminating},
		"WhatIsNotDesired":    {fmt.Errorf("refused: %w", denied{refused("")}), isDenied},
		"AWaiting":            {fmt.Errorf("refused: %w: %s", ErrWaiting, long), func(err error) bool { return errors.Is(err, ErrWaiting) }},
		"AConflictAndAnother": {fmt.Errorf("refused: %w: %w", refused(""), conflict), isConflict},
		"Joined":              {errors.Join(errors.New("refused: "), errors.New(long), conflict), isConflict},
		"Withheld":            {remote.Withheld(refused(""), "refused: "), apierrors.IsForbidden},
		"ANotSynced": {
			&unsynced{&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusBadGateway, Message: "refused: " + long}}},
			func(err error) bool {
				_, is := errors.AsType[notSynced](err)
				return is && isUnread(err) && errors.Is(err, fleet.ErrNotReady)
			},
		},
		"AnUnreachable": {&url.Error{Op: "Get", URL: "https://a", Err: errors.New("refused: " + long)}, isUnanswered},
		"AStateError":   {&fleet.StateError{Err: fmt.Errorf("%w: refused: %s", fleet.ErrNotReady, long)}, remote.IsAway},
		"ALongConflict": {&ConflictError{Cluster: "a", Object: "Foo b/c", Why: errors.New("refused: " + long)}, isConflict},
		"ALeaf":         {errors.New("refused: " + long), isCut},
		"JoinedToALeaf": {errors.Join(errors.New("refused: "+long), fmt.Errorf("b: %w", fleet.ErrNotReady)), func(err error) bool { return isCut(err) && errors.Is(err, fleet.ErrNotReady) }},
		"Several":       {faults{conflict, refused("")}, func(err error) bool { return len(each(err)) == 2 && isConflict(err) && apierrors.IsForbidden(err) }},
		"SeveralWithin": {fmt.Errorf("refused: %w", faults{conflict, refused("")}), func(err error) bool { return len(each(err)) == 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			short := brief(tc.err)
			if text := short.Error(); len(text) > 2*mostText || !strings.Contains(text, "refused: ") && name != "Several" {
				t.Errorf("it says %d bytes: %.100s", len(text), text)
			}
			if !tc.is(short) {
				t.Errorf("it is not what it was: %.100v", short)
			}
			if status, ok := errors.AsType[*apierrors.StatusError](short); ok && status.ErrStatus.Size() > 2*mostText+mostWord {
				t.Errorf("%d bytes of the answer are kept", status.ErrStatus.Size())
			}
			if isLong(short) {
				t.Error("it is still long")
			}
		})
	}
	if err := fmt.Errorf("short: %w", conflict); brief(err) != err || brief(nil) != nil { //nolint:errorlint // it is to be itself
		t.Error("a short error is not kept as it is")
	}
}
