package mcsource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/retry"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// attachment is the source of one member, for one engagement.
type attachment[request comparable] struct {
	what       fmt.Stringer
	engagement *fleet.Engagement
	each       TypedSource[request]
	queue      workqueue.TypedRateLimitingInterface[request]
}

// attach starts the source of a member in the background, on a context that ends with the engagement, with ctx, or when stop is
// called. It is tried again until it starts, or that context ends. The engagement's drain waits for all of it, and names what
// if that takes long. If told is not nil, it is called with the source when that has started, and with nil if it never will. An error
// is the cause of the end of the engagement.
func attach[request comparable](
	ctx context.Context, what fmt.Stringer, e *fleet.Engagement, each TypedSource[request], queue workqueue.TypedRateLimitingInterface[request],
	told func(started source.TypedSource[request]),
) (stop context.CancelFunc, err error) {
	ctx, stop = context.WithCancel(withCluster(ctx, e.Name()))
	life, leave, err := e.Join(ctx, what)
	if err != nil {
		stop()
		return nil, err
	}
	a := &attachment[request]{what: what, engagement: e, each: each, queue: queue}
	go func() { // ends when the source has started, or with life; the drain waits for leave
		started, life, leave := a.start(ctx, life, leave)
		if told != nil {
			told(started)
		}
		context.AfterFunc(life, func() {
			defer stop()
			defer leave()
			wait(started)
		})
	}()
	return stop, nil
}

// withCluster returns a context whose logger names a cluster.
func withCluster(ctx context.Context, name mcreconcile.ClusterName) context.Context {
	return log.IntoContext(ctx, log.FromContext(ctx).WithValues("cluster", name))
}

// start returns the source when it has started, with its life, which was joined by work that ends with leave. If life ends before,
// or it can never start, there is no source.
func (a *attachment[request]) start(
	ctx, life context.Context, leave func(),
) (started source.TypedSource[request], _ context.Context, _ func()) {
	pauses := retry.PausesIn(a.engagement.Context())
	failures := failures{log: log.FromContext(ctx).WithValues("source", fmt.Sprint(a.each))}
	for attempt := 1; life.Err() == nil; attempt++ {
		begun, err := a.begin(life)
		if err == nil {
			if attempt > 1 {
				failures.log.Info("The source has started", "attempts", attempt)
			}
			return begun, life, leave
		}
		if life.Err() == nil {
			failures.tell(err)
		}
		life, leave = a.again(ctx, life, leave, begun) //nolint:fatcontext // a sibling, no child
		if isFinal(err) {
			break
		}
		retry.Pause(life, &pauses, nil)
	}
	return nil, life, leave
}

// isFinal reports whether another attempt to start a source would end as the last one did.
func isFinal(err error) bool {
	return errors.Is(err, reconcile.TerminalError(nil)) || runtime.IsNotRegisteredError(err)
}

// failures logs why a source does not start, once for each reason in a row.
type failures struct {
	log  logr.Logger
	last string
}

func (f *failures) tell(err error) {
	if isFinal(err) {
		f.log.Error(err, "Cannot start the source")
		return
	}
	if reason := withoutNumbers(err.Error()); reason != f.last {
		f.last = reason
		f.log.Error(err, "Cannot start the source; trying again")
	}
}

// withoutNumbers returns what an error says apart from numbers: one that has another port in each attempt is no news.
func withoutNumbers(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, text)
}

// again ends the life of an attempt that failed, and returns that of the next one when nothing is left of what it has begun.
func (a *attachment[request]) again(ctx, life context.Context, leave func(), begun any) (context.Context, func()) {
	next, leaveNext, err := a.engagement.Join(ctx, a.what) // before the drain has nothing left to wait for
	if err != nil {
		wait(begun) // life has ended with the engagement
		return life, leave
	}
	leave()
	wait(begun)
	return next, leaveNext
}

// errPanicked is why a source did not start. It is seen only where panics do not end the process.
var errPanicked = errors.New("it panicked")

// begin makes the source and starts it. A panic is logged and ends the process, as that of an event handler does.
func (a *attachment[request]) begin(life context.Context) (begun source.TypedSource[request], err error) {
	defer utilruntime.HandleCrashWithContext(life)
	err = errPanicked
	e := a.engagement
	ctx := mcreconcile.WithCluster(life, e.Name(), e.Cluster())
	made, failed := a.each.ForCluster(ctx, e.Name(), e.Cluster())
	if failed == nil {
		begun = made
		failed = made.Start(ctx, a.queue)
	}
	err = failed
	return begun, err
}

// waiter is a source that can be waited for after its context ended.
type waiter interface{ Wait() }

// wait waits for a source that was started, nil for none.
func wait(started any) {
	if w, ok := started.(waiter); ok {
		w.Wait()
	}
}
