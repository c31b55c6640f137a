package sweep

import (
	"context"

	"k8s.io/client-go/util/flowcontrol"
)

// limit holds requests apart evenly: what was not used in one second is not made up for in the next. Lists have half of it, and all else the other
// half, as long as both wait: proofs for what somebody makes up do not keep others from being listed, nor do many lists hold up a proof.
type limit struct {
	rate          flowcontrol.RateLimiter
	lists, others chan struct{} // each has room for the one that waits next
}

func newLimit(qps float32) *limit {
	return &limit{flowcontrol.NewTokenBucketRateLimiter(qps, 1), make(chan struct{}, 1), make(chan struct{}, 1)}
}

// Wait waits until a request may be made that is no list of dependents.
func (l *limit) Wait(ctx context.Context) error { return l.waitIn(ctx, l.others) }

// waitToList waits until a page of dependents may be asked for.
func (l *limit) waitToList(ctx context.Context) error { return l.waitIn(ctx, l.lists) }

func (l *limit) waitIn(ctx context.Context, queue chan struct{}) error {
	select {
	case queue <- struct{}{}:
		defer func() { <-queue }()
		return l.rate.Wait(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
