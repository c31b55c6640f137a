package mcbuilder

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

func TestWhatAnErrorSaysOfClusters(t *testing.T) {
	state := func(why error, name fleet.ClusterName) error {
		return &fleet.StateError{Err: why, Status: fleet.Status{Name: name}}
	}
	west, east, gone := state(fleet.ErrNotReady, "west"), state(fleet.ErrUnknown, "east"), state(fleet.ErrGone, "south")
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "one", errors.New("too old"))
	cases := map[string]struct {
		err  error
		want complaint
	}{
		"AState":                   {west, complaint{missing: []fleet.ClusterName{"west"}}},
		"AStateWithContext":        {fmt.Errorf("applying: %w", west), complaint{missing: []fleet.ClusterName{"west"}}},
		"Gone":                     {gone, complaint{}},
		"ASentinel":                {fmt.Errorf("applying: %w", fleet.ErrNotReady), complaint{kinds: true}},
		"ASentinelThatIsFinal":     {fmt.Errorf("applying: %w", fleet.ErrGone), complaint{}},
		"SeveralStates":            {errors.Join(gone, west, fmt.Errorf("applying: %w", east)), complaint{missing: []fleet.ClusterName{"west", "east"}}},
		"AStateAndAKind":           {errors.Join(west, unsynced{}), complaint{missing: []fleet.ClusterName{"west"}, kinds: true}},
		"AStateAndAnother":         {errors.Join(west, conflict), complaint{missing: []fleet.ClusterName{"west"}, another: true}},
		"AStateAndAnotherAsText":   {fmt.Errorf("applying: %w, and %w", west, conflict), complaint{missing: []fleet.ClusterName{"west"}, another: true}},
		"AnAggregateOfStates":      {utilerrors.NewAggregate([]error{west, gone}), complaint{missing: []fleet.ClusterName{"west"}}},
		"AnAggregateWithAnother":   {utilerrors.NewAggregate([]error{west, conflict}), complaint{missing: []fleet.ClusterName{"west"}, another: true}},
		"Another":                  {conflict, complaint{another: true}},
		"AnotherWithContext":       {fmt.Errorf("applying: %w", conflict), complaint{another: true}},
		"AnotherDeepInsideOfAJoin": {errors.Join(west, fmt.Errorf("applying: %w", errors.Join(conflict))), complaint{missing: []fleet.ClusterName{"west"}, another: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got complaint
			got.add(tc.err)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(complaint{})); diff != "" {
				t.Errorf("%v (-want, +got):\n%s", tc.err, diff)
			}
		})
	}
}

// TestWhatServersSayIsFitForTheLog: controller-runtime logs the errors of reconcilers as they are.
func TestWhatServersSayIsFitForTheLog(t *testing.T) {
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "one", errors.New("\x1b[2Jno\u202e"+strings.Repeat("x", maxError)))
	r := &reconciler[mcreconcile.Request]{}
	_, err := r.answer(t.Context(), mcreconcile.Request{}, reconcile.Result{}, fmt.Errorf("creating: %w", denied))
	if strings.ContainsAny(err.Error(), "\x1b\u202e") || len(err.Error()) > maxError {
		t.Errorf("the error is %q", err)
	}
	if !apierrors.IsForbidden(err) {
		t.Error("it is another error")
	}
}

// unsynced is an error as the fleet's cache returns it.
type unsynced struct{}

func (unsynced) Error() string        { return "things are not synced" }
func (unsynced) Is(target error) bool { return target == fleet.ErrNotReady }
