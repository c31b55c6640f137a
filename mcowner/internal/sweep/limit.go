package sweep

import (
	"context"

	"k8s.io/client-go/util/flowcontrol"
)

// limit holds requests apart evenly: what was not used in one second is not made up for in the next. Lists have as much of it as questions after kinds
// that are not served, and as all else, as long as these wait: what somebody makes up does not keep others from being listed, nor do many lists hold
// up a proof.
type limit struct {
	rate                     flowcontrol.RateLimiter
	lists, questions, others chan struct{} // each has room for the one that waits next
}

func newLimit(qps float32) *limit {
	return &limit{flowcontrol.NewTokenBucketRateLimiter(qps, 1), make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)}
}

// Wait waits until a request may be made that is no list of dependents, nor a question after a kind.
func (l *limit) Wait(ctx context.Context) error { return l.waitIn(ctx, l.others) }

// waitToList waits until a page of dependents may be asked for.
func (l *limit) waitToList(ctx context.Context) error { return l.waitIn(ctx, l.lists) }

// waitAfterQuestion waits once a kind was found not to be served. Nobody knows before whether there is anything to ask: of most kinds there is not.
func (l *limit) waitAfterQuestion(ctx context.Context) error { return l.waitIn(ctx, l.questions) }

func (l *limit) waitIn(ctx context.Context, queue chan struct{}) error {
	select {
	case queue <- struct{}{}:
		defer func() { <-queue }()
		return l.rate.Wait(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
