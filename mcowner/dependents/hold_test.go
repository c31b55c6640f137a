package dependents

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/util/workqueue"

	"github.com/fleet-runtime/fleet-runtime/fleet"
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
