package fleet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleet-runtime/fleet-runtime/internal/gate"
	"github.com/fleet-runtime/fleet-runtime/internal/life"
)

type valueKey struct{}

// TestWorkEndsWithWhateverEndsFirst: for the cause of that, whether or not somebody waited for it, and so does what was
// derived from its context.
func TestWorkEndsWithWhateverEndsFirst(t *testing.T) {
	stopped := errors.New("the manager stops")
	for name, c := range map[string]struct {
		end  func(e *Engagement, outer context.CancelCauseFunc, leave func())
		want error
	}{
		"the engagement": {func(e *Engagement, _ context.CancelCauseFunc, _ func()) { e.end(errRemoved) }, errRemoved},
		"the context":    {func(_ *Engagement, outer context.CancelCauseFunc, _ func()) { outer(stopped) }, stopped},
		"the work":       {func(_ *Engagement, _ context.CancelCauseFunc, leave func()) { leave() }, context.Canceled},
	} {
		for _, awaited := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", awaited", false: ", not awaited"}[awaited], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					outer, cancel := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "value"))
					defer cancel(nil)
					e := newEngagement(t.Context(), "a")
					defer e.end(errReplaced)
					ctx, leave, err := e.Join(outer, named("a reconcile"))
					if err != nil {
						t.Fatal(err)
					}
					defer leave()
					derived := ctx
					if awaited {
						var stop context.CancelFunc
						derived, stop = context.WithTimeout(ctx, time.Hour)
						defer stop()
					}
					if ctx.Err() != nil || context.Cause(ctx) != nil || derived.Value(valueKey{}) != "value" {
						t.Fatalf("it begins with error %v, cause %v and value %v", ctx.Err(), context.Cause(ctx), derived.Value(valueKey{}))
					}
					c.end(e, cancel, leave)
					synctest.Wait()
					for _, ctx := range []context.Context{ctx, derived} {
						if cause := context.Cause(ctx); !errors.Is(cause, c.want) || !errors.Is(ctx.Err(), context.Canceled) {
							t.Errorf("it ended with %v, for the cause %v, want %v", ctx.Err(), cause, c.want)
						}
						if ctx.Value(valueKey{}) != "value" {
							t.Error("the value is lost")
						}
					}
					<-ctx.Done()
				})
			})
		}
	}
}

// TestWorkKeepsTheFirstCause: what ends later changes nothing, even if nobody looked before.
func TestWorkKeepsTheFirstCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngagement(t.Context(), "a")
		awaitedOrNot := []bool{true, false}
		all := make([]context.Context, 0, len(awaitedOrNot))
		for _, awaited := range awaitedOrNot {
			ctx, leave, err := e.Join(t.Context(), named("a reconcile"))
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
			if awaited {
				context.AfterFunc(ctx, leave)
			} else {
				context.AfterFunc(e.Context(), leave)
			}
			all = append(all, ctx)
		}
		e.end(errRemoved)
		synctest.Wait()
		for _, ctx := range all {
			if cause := context.Cause(ctx); !errors.Is(cause, errRemoved) {
				t.Errorf("the cause is %v, want that of the engagement", cause)
			}
		}
	})
}

// TestReconcilesPassTheGateOfTheirEngagement. What they join beside is done on behalf of the member that they reconcile, and what
// runs for nobody has no gate.
func TestReconcilesPassTheGateOfTheirEngagement(t *testing.T) {
	e, other := newEngagement(t.Context(), "a"), newEngagement(t.Context(), "b")
	for n, engagement := range []*Engagement{e, other} {
		engagement.gate, engagement.epoch = &gate.Gate{}, int64(n+1)
		engagement.resume()
	}
	outer := context.WithValue(t.Context(), valueKey{}, "value")
	own, leave, err := e.reconcile(outer, named("a reconcile"))
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	beside, leave, err := other.Join(own, named("what it needs"))
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	alone, leave, err := other.Join(outer, named("a source"))
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	for name, c := range map[string]struct {
		ctx   context.Context
		gate  *gate.Gate
		epoch any
	}{
		"its own": {own, e.gate, int64(1)}, "beside": {beside, e.gate, int64(1)}, "for nobody": {alone, nil, nil},
	} {
		if got := gate.From(c.ctx); got != c.gate || c.ctx.Value(life.EpochKey{}) != c.epoch || c.ctx.Value(valueKey{}) != "value" {
			t.Errorf("%s: the gate is %p, want %p; the epoch is %v", name, got, c.gate, c.ctx.Value(life.EpochKey{}))
		}
	}
}

// TestReconcilesAreSuspendedHoweverOftenTheyWereResumed, and begin again when they are resumed.
func TestReconcilesAreSuspendedHoweverOftenTheyWereResumed(t *testing.T) {
	e := newEngagement(t.Context(), "a")
	e.gate = &gate.Gate{}
	for range 2 {
		e.resume()
		ctx, leave, err := e.reconcile(t.Context(), named("a reconcile"))
		if err != nil {
			t.Fatal(err)
		}
		e.resume()
		e.suspend(errNo)
		if cause := context.Cause(ctx); !errors.Is(cause, errNo) {
			t.Errorf("a reconcile that runs has ended by %v", cause)
		}
		leave()
		if _, _, err := e.reconcile(t.Context(), named("another")); !errors.Is(err, errNo) {
			t.Errorf("another begins: %v", err)
		}
	}
}
