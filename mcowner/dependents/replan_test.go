package dependents

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// errNoTargets is why an owner is not planned.
var errNoTargets = errors.New("there are no targets")

// newPlanning returns an engine that has read no owner yet, and can plan none: its targets cannot be found. Its owners are of this policy.
func newPlanning(t *testing.T, policy func() (Policy, error)) (*engine, remote.Session, *heard) {
	t.Helper()
	a := newAccounting(t, config{
		fleet: "payments", name: "copier",
		policyOf:  func(context.Context, client.Object) (Policy, error) { return policy() },
		rolloutOf: func(context.Context, client.Object) (Rollout, error) { return Rollout{}, nil },
		targets: func(context.Context, client.Object) ([]mcreconcile.ClusterName, error) {
			return nil, errNoTargets
		},
	}, &plan{})
	home := a.hears(t)
	a.engine.ledger.forget(a.o.req)
	a.engine.tombs = (&shelf{there: &corev1.ConfigMap{}}).tombs()
	return a.engine, remote.Session{ID: mcowner.ByName(mcreconcile.LocalCluster), Cluster: home}, home
}

func noPolicy() (Policy, error) { return Policy{}, nil }

// ownerWith returns an owner with a record.
func ownerWith(r record.Record, held bool) *corev1.ConfigMap {
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", ResourceVersion: "1"}}
	testKeys.Write(owner, r, held)
	return owner
}

// TestAnOwnerThatIsFirstReadAsItGoes is planned if something may have been left in a cluster that was given up, although it has no
// finalizer: it is to be noted that this stays.
func TestAnOwnerThatIsFirstReadAsItGoes(t *testing.T) {
	t.Parallel()
	for name, givenUp := range map[string]bool{"something was left": true, "nothing was": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, at, home := newPlanning(t, noPolicy)
			owner := ownerWith(record.Record{GivenUp: givenUp}, false)
			owner.DeletionTimestamp, owner.Finalizers = new(metav1.Now()), []string{"example.com/held"}
			owner.Annotations[DeletionPolicyAnnotation] = string(metav1.DeletePropagationOrphan)
			home.owner = owner.DeepCopy()
			if err := c.replan(t.Context(), at, owner, true); err != nil {
				t.Fatal(err)
			}
			o := c.ledger.get(requestOf(at.Name(), owner))
			if o == nil {
				if givenUp {
					t.Error("nothing is known of it")
				}
				return
			}
			ref := o.plan.ref
			if _, err := c.account(t.Context(), o, at); err != nil {
				t.Fatal(err)
			}
			if noted, err := c.tombs.has(t.Context(), ref); noted != givenUp || err != nil {
				t.Errorf("it is noted that its dependents stay: %t, %v, want %t", noted, err, givenUp)
			}
		})
	}
}

// TestTheDependentsOfAnOwnerThatCannotBePlannedStay if its policy, as it was read last, says so or makes no sense.
func TestTheDependentsOfAnOwnerThatCannotBePlannedStay(t *testing.T) {
	t.Parallel()
	senseless := errors.New("senseless")
	for name, tc := range map[string]struct {
		policy Policy
		err    error
		stay   bool
	}{
		"they are to go":       {},
		"they are to stay":     {policy: Policy{Keep: true}, stay: true},
		"nobody can tell that": {err: senseless, stay: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, at, _ := newPlanning(t, func() (Policy, error) { return tc.policy, tc.err })
			owner := ownerWith(record.Record{Sites: []record.Site{{Name: "a"}}}, true)
			if err := c.replan(t.Context(), at, owner, true); !errors.Is(err, errNoTargets) && !errors.Is(err, senseless) {
				t.Fatal(err)
			}
			if stay := len(c.leftBehind(t.Context(), requestOf(at.Name(), owner))) > 0; stay != tc.stay {
				t.Errorf("they stay: %t, want %t", stay, tc.stay)
			}
		})
	}
}

// TestAnOwnerIsNotServedAsTheOneBefore that had its name, although it cannot be planned: what that one has left is the collector's.
func TestAnOwnerIsNotServedAsTheOneBefore(t *testing.T) {
	t.Parallel()
	c, at, _ := newPlanning(t, noPolicy)
	before, now := ownerWith(record.Record{Sites: []record.Site{{Name: "a"}}}, true), ownerWith(record.Record{}, false)
	now.UID = "2"
	req := requestOf(at.Name(), before)
	c.ledger.replan(c.ledger.of(req, before.UID), &plan{owner: before, ref: mcowner.Reference{UID: before.UID}}, testKeys)
	c.ledger.writing(at.Name(), before)
	if err := c.replan(t.Context(), at, now, true); !errors.Is(err, errNoTargets) {
		t.Fatal(err)
	}
	if o := c.ledger.get(req); o == nil || o.uid != now.UID || o.concerns("a") {
		t.Errorf("what is known of the owner is %+v", o)
	}
	if n := len(c.ledger.written); n > 0 {
		t.Errorf("writes to %d owners are remembered", n)
	}
}

// TestNothingIsDoneForAnOwnerThatIsGoneWhileThatCannotBeNoted: its dependents are to stay, and are not created anew.
func TestNothingIsDoneForAnOwnerThatIsGoneWhileThatCannotBeNoted(t *testing.T) {
	t.Parallel()
	for name, isGone := range map[string]bool{"it is gone": true, "another one has its name": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, at, home := newPlanning(t, noPolicy)
			c.tombs.namespace = func() (string, error) { return "", errNoNamespace }
			before, now := ownerWith(record.Record{Sites: []record.Site{{Name: "a"}}}, true), ownerWith(record.Record{}, false)
			before.Annotations[DeletionPolicyAnnotation], now.UID = string(metav1.DeletePropagationOrphan), "2"
			req := requestOf(at.Name(), before)
			o := c.ledger.of(req, before.UID)
			p := &plan{owner: before, ref: mcowner.Reference{UID: before.UID}}
			c.ledger.replan(o, p, testKeys)
			o.did(EventCreated, "a", "ConfigMap a")
			home.owner = now
			err := c.replan(t.Context(), at, now, true)
			if want := []string{EventFailed}; !slices.Equal(home.reasons, want) {
				t.Errorf("the one that has its name has the events %q, want %q", home.reasons, want)
			}
			if isGone {
				err = c.gone(t.Context(), req)
			}
			if !errors.Is(err, errNoNamespace) {
				t.Fatal(err)
			}
			a := &accounting{engine: c, o: o, home: at}
			if _, is := o.begin("a"); is || a.open() {
				t.Error("it is served")
			}
			if left := c.leftBehind(t.Context(), req); len(left) != 1 || left[0].UID != before.UID {
				t.Errorf("what is to stay is of %v", left)
			}
			if c.ledger.replan(o, p, testKeys); !a.open() {
				t.Error("it is not served once it is planned again")
			}
		})
	}
}

// TestAnOwnerThatGetsTooManyKindsIsTold while its plan from before goes on.
func TestAnOwnerThatGetsTooManyKindsIsTold(t *testing.T) {
	t.Parallel()
	c, at, home := newPlanning(t, noPolicy)
	placed := []record.Site{{Name: "a"}}
	before := &plan{owner: ownerWith(record.Record{Sites: placed}, true), ref: mcowner.Reference{UID: "1"}}
	owner := ownerWith(record.Record{Sites: placed, Kinds: numberedKinds(record.MostKinds + 1)}, true)
	o := c.ledger.of(requestOf(at.Name(), owner), owner.UID)
	c.ledger.replan(o, before, testKeys)
	if err := c.replan(t.Context(), at, owner, true); err == nil || !strings.Contains(err.Error(), testKeys.Kinds) {
		t.Errorf("it is planned, with the error %v", err)
	}
	if want := []string{EventFailed}; !slices.Equal(home.reasons, want) {
		t.Errorf("the events are %q, want %q", home.reasons, want)
	}
	if o.plan != before {
		t.Errorf("it has the plan %v", o.plan)
	}
}

// TestAnOwnerThatWaitsForTheNoteOfTheOneBeforeIsTold although nothing was read of that one: it went while it was to keep its dependents, and
// that cannot be noted.
func TestAnOwnerThatWaitsForTheNoteOfTheOneBeforeIsTold(t *testing.T) {
	t.Parallel()
	c, at, home := newPlanning(t, noPolicy)
	c.tombs.namespace = func() (string, error) { return "", errNoNamespace }
	before := ownerWith(record.Record{Sites: []record.Site{{Name: "a"}}}, true)
	before.UID = "0"
	before.Annotations[DeletionPolicyAnnotation] = string(metav1.DeletePropagationOrphan)
	c.deletions.mayLeave = c.mayLeave
	c.deletions.predicate(mcreconcile.LocalCluster, home).Delete(event.DeleteEvent{Object: before})
	if err := c.replan(t.Context(), at, ownerWith(record.Record{}, false), true); !errors.Is(err, errNoNamespace) {
		t.Errorf("it is planned, with the error %v", err)
	}
	if want := []string{EventFailed}; !slices.Equal(home.reasons, want) {
		t.Errorf("the events are %q, want %q", home.reasons, want)
	}
}
