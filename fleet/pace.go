package fleet

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// pace lets first attempts to connect begin a few at a time. Thousands of handshakes at once would keep each other from
// finishing in time, and what they need for a moment would stay in the heap: 10 KB for each member. One that cannot be
// finished soon, such as with a server that does not answer, makes room for the next while it goes on.
type pace struct{ places chan struct{} }

const (
	placesPerCPU = 4
	// headStart is for how long an attempt has its place at most. So with two CPUs, each hundred servers that do not answer
	// delay the others by 0.6 seconds.
	headStart = 50 * time.Millisecond
)

func newPace() pace { return pace{make(chan struct{}, placesPerCPU*runtime.GOMAXPROCS(0))} }

// enter waits for a place, in turn. leave must be called when the attempt has ended; it may be later than the head start.
func (p pace) enter(ctx context.Context) (leave func(), err error) {
	select {
	case p.places <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	free := sync.OnceFunc(func() { <-p.places })
	timer := time.AfterFunc(headStart, free)
	return func() {
		timer.Stop()
		free()
	}, nil
}
