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
	engagement *fleet.Engagement
	each       TypedSource[request]
	queue      workqueue.TypedRateLimitingInterface[request]
}

// attach starts the source of a member in the background, on a context that ends with the engagement, with ctx, or when stop is
// called. It is tried again until it starts, or that context ends. The engagement's drain waits for all of it, and names what
// if that takes long. An error is the cause of the end of the engagement.
func attach[request comparable](
	ctx context.Context, what fmt.Stringer, e *fleet.Engagement, each TypedSource[request], queue workqueue.TypedRateLimitingInterface[request],
) (stop context.CancelFunc, err error) {
	ctx, stop = context.WithCancel(withCluster(ctx, e.Name()))
	life, leave, err := e.Join(ctx, what)
	if err != nil {
		stop()
		return nil, err
	}
	end := func() {
		leave()
		stop()
	}
	a := &attachment[request]{engagement: e, each: each, queue: queue}
	go func() { // ends when the source has started, or with life; the drain waits for leave
		started := a.start(mcreconcile.WithCluster(life, e.Context(), e.Name(), e.Cluster()))
		context.AfterFunc(life, func() {
			defer end()
			wait(started)
		})
	}()
	return stop, nil
}

// withCluster returns a context whose logger names a cluster.
func withCluster(ctx context.Context, name mcreconcile.ClusterName) context.Context {
	return log.IntoContext(ctx, log.FromContext(ctx).WithValues("cluster", name))
}

// start returns the source when it has started, or nil when life has ended.
func (a *attachment[request]) start(life context.Context) source.TypedSource[request] {
	pauses := retry.Pauses(longestPause)
	logger := log.FromContext(life).WithValues("source", fmt.Sprint(a.each))
	for attempt := 1; life.Err() == nil; attempt++ {
		started, err := a.attempt(life)
		switch {
		case err == nil && attempt > 1:
			logger.Info("The source has started", "attempts", attempt)
			return started
		case err == nil:
			return started
		case attempt == 1 && life.Err() == nil:
			logger.Error(err, "Cannot start the source; trying again")
		}
		retry.Pause(life, &pauses, nil)
	}
	return nil
}

// attempt starts the source once. What an attempt that failed has begun is over when attempt returns.
func (a *attachment[request]) attempt(life context.Context) (source.TypedSource[request], error) {
	ctx, cancel := context.WithCancel(life)
	abandon := func(begun any) {
		cancel()
		wait(begun)
	}
	begun, err := a.begin(ctx)
	if err != nil {
		abandon(begun)
		return nil, err
	}
	return begun, nil
}

// errPanicked is why a source did not start. It is seen only where panics do not end the process.
var errPanicked = errors.New("it panicked")

// begin makes the source and starts it. A panic is logged and ends the process, as that of an event handler does.
func (a *attachment[request]) begin(ctx context.Context) (begun source.TypedSource[request], err error) {
	defer utilruntime.HandleCrashWithContext(ctx)
	err = errPanicked
	made, failed := a.each.ForCluster(ctx, a.engagement.Name(), a.engagement.Cluster())
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
