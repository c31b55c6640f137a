package dependents

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestAMemberLeavesNotBeforeItsWorkersHaveTheWait: a source of theirs that has not started may hold it back.
func TestAMemberLeavesNotBeforeItsWorkersHaveTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAccounting(t, config{}, &plan{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := (members{a.engine}).Replay(ctx, &fleet.Engagement{}); !errors.Is(err, context.Canceled) {
			t.Errorf("before the start, Replay() = %v", err)
		}
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[work]())
		defer queue.ShutDown()
		done := make(chan error, 1)
		go func() { done <- members{a.engine}.Replay(t.Context(), &fleet.Engagement{}) }()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("the controller has not started, and Replay() is over")
		}
		if err := a.engine.works.Start(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || queue.Len() != 1 {
			t.Errorf("Replay() = %v, and %d pieces of work are queued, want one", err, queue.Len())
		}
	})
}

// withMembers is a hub that has members.
type withMembers struct{ hubOf }

// GetProvider implements mcmanager.Manager.
func (*withMembers) GetProvider() fleet.Provider { return &fleettest.Provider{} }

// TestAMemberLeavesOnceItIsStoredThatAnOwnerHasNothingThere, and not once that is known: after a restart the owner would
// wait for the member.
func TestAMemberLeavesOnceItIsStoredThatAnOwnerHasNothingThere(t *testing.T) {
	t.Parallel()
	f, _ := fleettest.Run(t, fleet.Options{})
	a := newAccounting(t, config{}, &plan{}, "a")
	a.engine.cfg.ownersIn = mcowner.Clusters{Members: labels.Nothing()}
	a.engine.access = remote.NewAccess(&withMembers{hubOf{fleet: f.Fleet}}, "test", time.Second, true)
	leaving := mcreconcile.WithLeaving(mcreconcile.WithCluster(t.Context(), "a", engage(t, f, "1").Cluster()))
	holds := func(why string) {
		t.Helper()
		if err := a.engine.holdUp(leaving); !errors.Is(err, errOwnersElsewhere) {
			t.Errorf("while %s, holdUp() = %v", why, err)
		}
	}
	holds("the record has the member")
	v, _ := a.o.in("a")
	a.o.report("a", v, report{drop: v.sites})
	a.mustOpen(t)
	holds("the record is being stored without it")
	if a.settle(); a.engine.holdUp(leaving) != nil {
		t.Error("the record is stored without the member, and it does not leave")
	}
}

// TestWhatPassesByItselfIsWaitedFor: an owner whose planning has failed for that is planned soon.
func TestWhatPassesByItselfIsWaitedFor(t *testing.T) {
	t.Parallel()
	req := mcreconcile.Request{ClusterName: "east"}
	for name, tc := range map[string]struct {
		err  error
		vain bool
	}{
		"it is planned":                        {},
		"its targets are not known":            {errors.New("nobody knows"), true},
		"its cluster is not known":             {fmt.Errorf("cluster: %w", mcmanager.ErrNoIdentity), true},
		"the one before it cannot be noted":    {fmt.Errorf("noting: %w", errNoNamespace), true},
		"its cluster gives no answer":          {fmt.Errorf("reading: %w", context.DeadlineExceeded), false},
		"its cluster knows nobody, for now":    {errNobody, false},
		"its cluster cannot be used":           {&fleet.StateError{Err: fleet.ErrNotReady}, false},
		"it was written by another, meanwhile": {record.ErrOutdated, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger()
			l.tried(req, errors.New("it was in vain before"))
			if l.tried(req, tc.err); l.isVain(req) != tc.vain {
				t.Errorf("it is vain: %t, want %t", !tc.vain, tc.vain)
			}
			if l.forgetOrigin("east"); len(l.vain) > 0 {
				t.Error("it is remembered when its cluster is forgotten")
			}
		})
	}
}
