package mcbuilder

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

func TestWhatAnErrorSaysOfClusters(t *testing.T) {
	state := func(why error, name fleet.ClusterName) error {
		return &fleet.StateError{Err: why, Status: fleet.Status{Name: name}}
	}
	west, east, gone := state(fleet.ErrNotReady, "west"), state(fleet.ErrUnknown, "east"), state(fleet.ErrGone, "south")
	theirs, mine := state(fleet.ErrNotOwned, "theirs"), state(fleet.ErrNotOwned, "mine")
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "one", errors.New("too old"))
	cases := map[string]struct {
		err  error
		want complaint
	}{
		"AState":                   {west, complaint{missing: ready("west")}},
		"AStateWithContext":        {fmt.Errorf("applying: %w", west), complaint{missing: ready("west")}},
		"Gone":                     {gone, complaint{}},
		"AnotherReplicas":          {theirs, complaint{own: "mine", another: true}},
		"AnotherReplicasByNow":     {mine, complaint{own: "mine"}},
		"ASentinel":                {fmt.Errorf("applying: %w", fleet.ErrNotReady), complaint{kinds: true, untried: true}},
		"ASentinelThatIsFinal":     {fmt.Errorf("applying: %w", fleet.ErrGone), complaint{}},
		"SeveralStates":            {errors.Join(gone, west, fmt.Errorf("applying: %w", east)), complaint{missing: ready("west", "east")}},
		"AStateAndAKind":           {errors.Join(west, unsynced{}), complaint{missing: ready("west"), kinds: true, untried: true}},
		"AStateAndAKindOfACluster": {errors.Join(west, fmt.Errorf("reading: %w", unsyncedIn{"south"})), complaint{missing: []need{{cluster: "west"}, {"south", secrets}}, kinds: true, untried: true}},
		"AKindThatIsTried":         {fmt.Errorf("reading: %w", triedIn{unsyncedIn{"south"}}), complaint{missing: []need{{"south", secrets}}, kinds: true}},
		"AStateAndAnother":         {errors.Join(west, conflict), complaint{missing: ready("west"), another: true}},
		"AStateAndAnotherAsText":   {fmt.Errorf("applying: %w, and %w", west, conflict), complaint{missing: ready("west"), another: true}},
		"AnAggregateOfStates":      {utilerrors.NewAggregate([]error{west, gone}), complaint{missing: ready("west")}},
		"AnAggregateWithAnother":   {utilerrors.NewAggregate([]error{west, conflict}), complaint{missing: ready("west"), another: true}},
		"Another":                  {conflict, complaint{another: true}},
		"AnotherOfNoParts":         {fmt.Errorf("applying: %w", noParts{}), complaint{another: true}},
		"AnotherThatIsSeveral":     {errors.Join(west, fmt.Errorf("dialling: %w", syscall.ECONNREFUSED)), complaint{missing: ready("west"), another: true}},
		"AnotherWithContext":       {fmt.Errorf("applying: %w", conflict), complaint{another: true}},
		"AnotherDeepInsideOfAJoin": {errors.Join(west, fmt.Errorf("applying: %w", errors.Join(conflict))), complaint{missing: ready("west"), another: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := complaint{own: tc.want.own}
			got.add(tc.err)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(complaint{}, need{})); diff != "" {
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

// unsyncedIn is an error as the fleet's cache returns it, that says which kind is not synced in which cluster.
type unsyncedIn struct{ cluster fleet.ClusterName }

var secrets = schema.GroupKind{Kind: "Secret"}

func (unsyncedIn) Error() string        { return "secrets are not synced" }
func (unsyncedIn) Is(target error) bool { return target == fleet.ErrNotReady }

func (e unsyncedIn) NotSynced() (fleet.ClusterName, schema.GroupKind) { return e.cluster, secrets }

// triedIn is an unsyncedIn of a kind for which a source goes on asking.
type triedIn struct{ unsyncedIn }

func (triedIn) IsTried() bool { return true }

// TestARequestIsQueuedWhenOneOfItsNeedsIsMet, and not since something else of the same cluster is.
func TestARequestIsQueuedWhenOneOfItsNeedsIsMet(t *testing.T) {
	t.Parallel()
	fails := fleet.Status{Name: "east", State: fleet.Ready, NotSynced: []fleet.NotSynced{{Kind: metav1.GroupKind(secrets)}}}
	works := fleet.Status{Name: "east", State: fleet.Ready}
	for name, tc := range map[string]struct {
		needs []need
		told  fleet.Status
		want  int
	}{
		"the kind works":                  {[]need{{"east", secrets}}, works, 1},
		"the kind fails":                  {[]need{{"east", secrets}}, fails, 0},
		"the kind fails, as west is away": {[]need{{"east", secrets}, {cluster: "west"}}, fails, 0},
		"the kind works, as west is away": {[]need{{"east", secrets}, {cluster: "west"}}, works, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := mcqueue.New("", mcqueue.Options[mcreconcile.Request]{})
			defer q.ShutDown()
			w := &waiting[mcreconcile.Request]{}
			w.add(request("a", "x"), tc.needs)
			w.queue(tc.told, q)
			if got := q.Len(); got != tc.want || len(w.needs) != 1-tc.want {
				t.Errorf("%d are queued and %d wait, want %d and %d", got, len(w.needs), tc.want, 1-tc.want)
			}
		})
	}
}

// TestAKindIsWaitedForUntilItIsSyncedOrItsClusterGone: other kinds of the cluster, and its health, change nothing.
func TestAKindIsWaitedForUntilItIsSyncedOrItsClusterGone(t *testing.T) {
	t.Parallel()
	fails := func(kinds ...string) (all []fleet.NotSynced) {
		for _, kind := range kinds {
			all = append(all, fleet.NotSynced{Kind: metav1.GroupKind{Kind: kind}})
		}
		return all
	}
	for name, tc := range map[string]struct {
		status fleet.Status
		want   bool
	}{
		"Fails":          {fleet.Status{State: fleet.Ready, NotSynced: fails("ConfigMap", "Secret")}, false},
		"FailsElsewhere": {fleet.Status{State: fleet.Unreachable, NotSynced: fails("Secret")}, false},
		"AnotherFails":   {fleet.Status{State: fleet.Ready, NotSynced: fails("ConfigMap")}, true},
		"AnotherGroup":   {fleet.Status{State: fleet.Ready, NotSynced: []fleet.NotSynced{{Kind: metav1.GroupKind{Group: "g", Kind: "Secret"}}}}, true},
		"Works":          {fleet.Status{State: fleet.Ready}, true},
		"Gone":           {fleet.Status{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := (need{"a", secrets}).isMet(tc.status); got != tc.want {
				t.Errorf("the request may run: %t, want %t", got, tc.want)
			}
		})
	}
}

// noParts is an error that says to have others in it, and has none.
type noParts struct{}

func (noParts) Error() string { return "it is long" }

// Unwrap returns nothing.
func (noParts) Unwrap() []error { return nil }
