package mcbuilder

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
)

// leaver is what a controller does for members that leave.
type leaver[request mcreconcile.ClusterAware[request]] struct {
	replayers []mcsource.Replayer
	waiting   *waiting[request]
	begun     chan struct{} // closed when the controller has started
	// What follows is set before begun is closed. queue is nil for one of another kind, of which it is not known when it is done.
	queue *mcqueue.Queue[request]
	ended <-chan struct{} // closed when the controller ends
}

var _ fleet.Leaver = (*leaver[mcreconcile.Request])(nil)

func newLeaver[request mcreconcile.ClusterAware[request]](sources []source.TypedSource[request], w *waiting[request]) *leaver[request] {
	l := &leaver[request]{waiting: w, begun: make(chan struct{})}
	for _, src := range sources {
		if r, ok := src.(mcsource.Replayer); ok {
			l.replayers = append(l.replayers, r)
		}
	}
	return l
}

// begin says that the controller has started, and lives as long as ctx. It is called once.
func (l *leaver[request]) begin(ctx context.Context, queue *mcqueue.Queue[request]) {
	l.queue, l.ended = queue, ctx.Done()
	close(l.begun)
}

// Replay implements fleet.Leaver.
func (l *leaver[request]) Replay(ctx context.Context, e *fleet.Engagement) error {
	select {
	case <-l.begun:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	replaying, ctx := errgroup.WithContext(ctx)
	for _, r := range l.replayers {
		replaying.Go(func() error { return r.Replay(ctx, e) })
	}
	return replaying.Wait()
}

// AwaitDone implements fleet.Leaver.
func (l *leaver[request]) AwaitDone(ctx context.Context, name fleet.ClusterName) error {
	if !l.hasBegun() || l.queue == nil {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for _, over := range []<-chan struct{}{l.waiting.none(name), l.queue.Settled(name)} {
		select {
		case <-over:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if isClosed(l.ended) { // its queue has dropped what was to be done
		<-ctx.Done()
	}
	return context.Cause(ctx)
}

func (l *leaver[request]) hasBegun() bool { return isClosed(l.begun) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// mostUndone is how many requests are named.
const mostUndone = 3

// Undone implements fleet.Leaver.
func (l *leaver[request]) Undone(name fleet.ClusterName) (requests int, some []string) {
	switch {
	case !l.hasBegun():
		return 0, nil
	case l.queue == nil:
		return 1, []string{"what a queue holds that is no mcqueue.Queue"}
	}
	n, undone := l.waiting.undone(name, l.queue, mostUndone)
	for _, req := range undone {
		some = append(some, fmt.Sprint(req))
	}
	if n == 0 && isClosed(l.ended) { // which was so before its queue dropped anything
		return 1, []string{"what it had to do when it ended"}
	}
	return n, some
}
