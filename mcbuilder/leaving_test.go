package mcbuilder

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// leaving reports that a member leaves, of whose controllers this is one.
func (a *attending) leaving(name fleet.ClusterName) (left <-chan struct{}) {
	a.t.Helper()
	a.fleet.Controller("c").OnLeave(a.leaver)
	left, err := a.fleet.Leave(fleet.Member{Name: name, Cluster: a.engagement(name).Cluster()})
	if err != nil {
		a.t.Fatal(err)
	}
	synctest.Wait()
	return left
}

func (a *attending) wantUndone(name fleet.ClusterName, want int, when string) {
	a.t.Helper()
	synctest.Wait()
	if n, some := a.leaver.Undone(name); n != want || len(some) != min(want, mostUndone) {
		a.t.Errorf("%s: %d requests are undone, such as %q, want %d", when, n, some, want)
	}
}

// TestAMemberHasNotLeftWhileARequestOfItWaits for another cluster, or to be tried again since its own was not ready.
func TestAMemberHasNotLeftWhileARequestOfItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		a.ready("a")
		a.set(fleet.Member{Name: "b", Err: errors.New("it is broken")})
		needs := failing(missing(fleet.ErrNotReady, "b"))
		r := a.reconciling(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			if !mcreconcile.Leaving(ctx) {
				t.Error("the reconciler does not see that the member leaves")
			}
			return needs(ctx, req)
		})
		req := mcreconcile.Request{ClusterName: "a"}
		a.queue.Add(req)
		left := a.leaving("a")
		a.wantUndone("a", 1, "while it is in the queue")
		taken, _ := a.queue.Get()
		if result, err := r.Reconcile(t.Context(), taken); err != nil || result.RequeueAfter != 0 {
			t.Errorf("Reconcile() = %v, %v", result, err)
		}
		a.queue.Done(taken)
		a.wantUndone("a", 1, "while it waits for another cluster")
		select {
		case <-left:
			t.Error("the member has left")
		default:
		}
		needs = failing(nil)
		a.ready("b")
		a.wantUndone("a", 1, "when the other cluster is ready")
		taken, _ = a.queue.Get()
		if _, err := r.Reconcile(t.Context(), taken); err != nil {
			t.Error(err)
		}
		a.wantUndone("a", 1, "while it is reconciled")
		begin := time.Now()
		a.queue.Done(taken)
		<-left
		if took := time.Since(begin); took > 0 {
			t.Errorf("it was noticed after %s that nothing is undone any more", took)
		}
	})
}

// TestARequestThatIsDroppedIsDone, and those of other members are no matter of its member.
func TestARequestThatIsDroppedIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		a.ready("a")
		for _, name := range []string{"one", "two", "three", "four"} {
			a.waiting.add(request("a", name), ready("east"))
		}
		a.waiting.add(request("b", "other"), ready("east"))
		done := make(chan error, 1)
		go func() { done <- a.leaver.AwaitDone(t.Context(), "a") }()
		synctest.Wait()
		if n, some := a.leaver.Undone("a"); n != 4 || len(some) != mostUndone {
			t.Errorf("%d requests are undone, such as %q, want 4, and the names of %d", n, some, mostUndone)
		}
		a.waiting.purge("a")
		synctest.Wait()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("AwaitDone() = %v", err)
			}
		default:
			t.Error("it waits for requests that are gone")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := a.leaver.AwaitDone(ctx, "b"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("AwaitDone() = %v for a cluster of which a request waits", err)
		}
		a.waiting.forget(request("b", "other"))
		a.queue.Add(request("b", "queued"))
		queued, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := a.leaver.AwaitDone(queued, "b"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("AwaitDone() = %v for a cluster of which a request is queued", err)
		}
	})
}

func TestARequestThatIsTriedAgainSoonIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		a.set(fleet.Member{Name: "a", Err: errors.New("it is broken")})
		r := a.reconciling(failing(nil))
		req := mcreconcile.Request{ClusterName: "a"}
		result, err := r.Reconcile(t.Context(), req)
		if err != nil || result.RequeueAfter != soon {
			t.Errorf("Reconcile() = %v, %v", result, err)
		}
		a.wantUndone("a", 1, "after its cluster was not ready")
		a.wantUndone("b", 0, "of another cluster")
		a.waiting.purge("a")
		a.wantUndone("a", 0, "after it was purged")
	})
}

// replayed is a source that can tell all once more.
type replayed struct {
	source.TypedSource[mcreconcile.Request]

	times int
	err   error
}

// Replay implements mcsource.Replayer.
func (r *replayed) Replay(context.Context, *fleet.Engagement) error {
	r.times++
	return r.err
}

func TestAControllerThatHasNotStartedIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &replayed{}
		l := newLeaver([]source.TypedSource[mcreconcile.Request]{src}, &waiting[mcreconcile.Request]{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		soonOver, giveUp := context.WithTimeout(t.Context(), time.Second)
		defer giveUp()
		if err := l.Replay(soonOver, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before the start, Replay() = %v", err)
		}
		if err := l.AwaitDone(soonOver, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before the start, AwaitDone() = %v", err)
		}
		if n, _ := l.Undone("a"); n != 0 {
			t.Errorf("before the start, %d requests are undone", n)
		}
		done := make(chan error, 1)
		go func() { done <- l.Replay(ctx, nil) }()
		synctest.Wait()
		if src.times != 0 {
			t.Error("its sources are asked before it has started")
		}
		l.begin(t.Context(), nil) // a queue of another kind
		if err := <-done; err != nil || src.times != 1 {
			t.Errorf("Replay() = %v after %d questions, want one", err, src.times)
		}
		src.err = errors.New("not now")
		if err := l.Replay(ctx, nil); !errors.Is(err, src.err) {
			t.Errorf("Replay() = %v, want the error of the source", err)
		}
		if n, some := l.Undone("a"); n != 1 || len(some) != 1 {
			t.Errorf("of a queue of another kind %d requests are undone: %q; want a word about it", n, some)
		}
		if err := l.AwaitDone(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("AwaitDone() = %v, want that it waits", err)
		}
	})
}

// TestAControllerThatHasEndedIsNotDone: what it was about to do is not in its queue any more.
func TestAControllerThatHasEndedIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		a.ready("a")
		a.queue.Add(mcreconcile.Request{ClusterName: "a"})
		left := a.leaving("a")
		a.wantUndone("a", 1, "before the end")
		a.stop()
		a.queue.Purge("a")
		if n, some := a.leaver.Undone("a"); n == 0 || len(some) == 0 {
			t.Errorf("%d requests are undone, such as %q, after the end", n, some)
		}
		synctest.Wait()
		select {
		case <-left:
			t.Error("the member has left")
		default:
		}
	})
}
