package mcbuilder

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

func TestOnlyErrorsAboutStatesAreNoneOfTheReconcilers(t *testing.T) {
	notReady := &fleet.StateError{Err: fleet.ErrNotReady, Status: fleet.Status{Name: "west"}}
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "one", errors.New("too old"))
	cases := map[string]struct {
		err  error
		want bool
	}{
		"AState":                   {notReady, true},
		"AStateWithContext":        {fmt.Errorf("applying: %w", notReady), true},
		"ASentinel":                {fmt.Errorf("applying: %w", fleet.ErrGone), true},
		"SeveralStates":            {errors.Join(notReady, fmt.Errorf("applying: %w", fleet.ErrUnknown)), true},
		"AStateAndAnother":         {errors.Join(notReady, conflict), false},
		"AStateAndAnotherAsText":   {fmt.Errorf("applying: %w, and %w", notReady, conflict), false},
		"Another":                  {conflict, false},
		"AnotherWithContext":       {fmt.Errorf("applying: %w", conflict), false},
		"AnotherDeepInsideOfAJoin": {errors.Join(notReady, fmt.Errorf("applying: %w", errors.Join(notReady, conflict))), false},
		"None":                     {nil, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := aboutStates(tc.err); got != tc.want {
				t.Errorf("aboutStates(%v) = %t, want %t", tc.err, got, tc.want)
			}
		})
	}
}
