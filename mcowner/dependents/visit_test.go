package dependents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestWhatAVisitWatchHasSeenHoldsAfterOwnersMoved: an owner's cluster was another replica's when its dependent was listed, and is this
// one's when that is deleted.
func TestWhatAVisitWatchHasSeenHoldsAfterOwnersMoved(t *testing.T) {
	t.Parallel()
	c := placing().engine
	c.works = &feed[work]{}
	c.watches = newWatches(c.cfg.fleet, c.cfg.name, nil, c.ledger)
	others := true
	c.watches.placing, c.watches.isOthers = c.placing, func(mcreconcile.ClusterName) bool { return others }
	kind := remote.Untyped(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	seen := &dependentsSeen{of: &visitWatch{all: newVisitWatches(c), in: at.Name, kind: kind, tried: make(chan struct{}), unlisted: 1}}
	dependent := &metav1.PartialObjectMetadata{ObjectMeta: owned(t, ownerNamed("a")).ObjectMeta}
	_ = seen.Replace([]any{dependent}, "1") // it has no errors
	dependent.ResourceVersion = "2"
	_ = seen.Update(dependent)
	if n := len(c.works.early); n != 0 {
		t.Errorf("there are %d requests for an owner that another replica works on", n)
	}
	others = false
	_ = seen.Delete(dependent)
	if n := len(c.works.early); n != 1 {
		t.Errorf("there are %d requests once it is deleted, want one for the owner", n)
	}
}

// hubOf is a hub whose fleet runs.
type hubOf struct {
	hub
	fleet *fleet.Fleet
}

// GetFleet implements mcmanager.Manager.
func (h *hubOf) GetFleet() *fleet.Fleet { return h.fleet }

// TestNothingIsKeptOfAClusterThatIsGone: neither that it is to be visited, nor in which tenure its owners were read, unless it is back.
func TestNothingIsKeptOfAClusterThatIsGone(t *testing.T) {
	t.Parallel()
	f, _ := fleettest.Run(t, fleet.Options{})
	c := &engine{ledger: newLedger(), access: &remote.Access{Manager: &hubOf{fleet: f.Fleet}}, works: &feed[work]{}, deletions: &deletions{}}
	visits := work{requestFor("hub", "a"), "b", visit}
	o := c.ledger.of(visits.owner, "1")
	if err := f.Set(fleet.Member{Name: visits.in, Err: errors.New("away")}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.visit(t.Context(), visits); !errors.Is(err, fleet.ErrNotReady) || len(o.toVisit()) != 1 {
		t.Errorf("a visit has failed: %v; %v are to be visited again, want the cluster", err, o.toVisit())
	}
	c.ledger.inTenure(visits.in, 7)
	m := members{c}
	m.removed(visits.in, false)
	if len(c.ledger.tenures) != 1 {
		t.Error("the tenure of a cluster that is back is not known")
	}
	<-f.Remove(visits.in)
	if _, err := c.visit(t.Context(), visits); !errors.Is(err, fleet.ErrGone) || len(o.toVisit()) != 0 {
		t.Errorf("a visit has failed: %v; %v are to be visited again, want none", err, o.toVisit())
	}
	if m.removed(visits.in, false); len(c.ledger.tenures) != 0 {
		t.Error("the tenure of a cluster that is gone is known")
	}
}

// TestAWatchTellsOwnersOfNoPlanThatWasNotDone: a visit is about to find out what comes of it, which would not begin otherwise.
func TestAWatchTellsOwnersOfNoPlanThatWasNotDone(t *testing.T) {
	t.Parallel()
	c := placing().engine
	c.works = &feed[work]{}
	w := &visitWatch{all: newVisitWatches(c), in: at.Name}
	o := c.ledger.of(requestFor("source", "a"), "1")
	since := time.Date(2030, time.January, 2, 3, 4, 5, 0, time.UTC)
	for seq := range uint64(2) {
		o.plan = &plan{seq: seq, targets: []mcreconcile.ClusterName{w.in}}
		w.turned(since, errors.New("no route"))
		if p := o.parts[w.in]; p != nil && p.seq == seq {
			t.Errorf("plan %d was not done, and is told to be", seq)
		}
		o.report(w.in, view{plan: o.plan}, report{})
		w.turned(since, errors.New("no route"))
		if err := o.parts[w.in].result.Err; !errors.Is(err, fleet.ErrNotReady) || !strings.Contains(err.Error(), "since 2030-01-02T03:04:05Z") {
			t.Errorf("plan %d was done, and what came of it is %v", seq, err)
		}
	}
}

// TestAMemberThatAnswersIsNotAway although what it answers is an error, or too large: that is no news of the member, and takes back that it is
// away.
func TestAMemberThatAnswersIsNotAway(t *testing.T) {
	t.Parallel()
	reset := &url.Error{Op: "Get", URL: "https://member", Err: syscall.ECONNRESET}
	for name, tc := range map[string]struct {
		err  error
		away bool
	}{
		"Answer":     {nil, false},
		"Error":      {apierrors.NewInternalError(errors.New("etcd")), false},
		"NotServed":  {&meta.NoKindMatchError{}, false},
		"TooLarge":   {fmt.Errorf("reading: %w", errors.New("the answer is too large")), false},
		"Reset":      {reset, true},
		"NoKinds":    {fmt.Errorf("asking which versions API group %q has: %w", "apps", reset), true},
		"OutOfTime":  {context.DeadlineExceeded, true},
		"HalfAnswer": {fmt.Errorf("reading: %w", io.ErrUnexpectedEOF), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &visitWatch{}
				notes := func(err error) {
					w.noteLocked(err)
					<-time.After(awayAfter)
					w.noteLocked(err)
				}
				if notes(tc.err); w.away != tc.away {
					t.Errorf("it is away: %t, want %t", w.away, tc.away)
				}
				notes(reset)
				if notes(tc.err); w.away != tc.away {
					t.Errorf("it is away since before: %t, want %t", w.away, tc.away)
				}
			})
		})
	}
}
