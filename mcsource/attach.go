package mcsource

import (
	"context"
	"errors"
	"fmt"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/retry"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// longestPause is the longest pause between two attempts to start the source of a member.
const longestPause = 10 * time.Second

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
// there is no source.
func (a *attachment[request]) start(
	ctx, life context.Context, leave func(),
) (started source.TypedSource[request], _ context.Context, _ func()) {
	pauses := retry.Pauses(longestPause)
	for attempt := 1; life.Err() == nil; attempt++ {
		begun, err := a.begin(life)
		if err == nil {
			if attempt > 1 {
				log.FromContext(ctx).Info("The source has started", "source", fmt.Sprint(a.each), "attempts", attempt)
			}
			return begun, life, leave
		}
		if attempt == 1 && life.Err() == nil {
			log.FromContext(ctx).Error(err, "Cannot start the source; trying again", "source", fmt.Sprint(a.each))
		}
		life, leave = a.again(ctx, life, leave, begun) //nolint:fatcontext // a sibling, no child
		retry.Pause(life, &pauses, nil)
	}
	return nil, life, leave
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
