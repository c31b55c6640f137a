// Package retry holds the pauses between attempts.
package retry

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// First is the first pause.
const First = 500 * time.Millisecond

// Longest is the longest pause where nobody has chosen another.
const Longest = 10 * time.Second

// longestKey is the key of a context's value that is the longest pause of what lives with it.
type longestKey struct{}

// WithLongest returns a context that carries the longest pause between attempts, for [PausesIn].
func WithLongest(ctx context.Context, longest time.Duration) context.Context {
	return context.WithValue(ctx, longestKey{}, longest)
}

// PausesIn is [Pauses] with the longest pause that a context carries, or else with [Longest].
func PausesIn(ctx context.Context) wait.Backoff {
	if longest, ok := ctx.Value(longestKey{}).(time.Duration); ok {
		return Pauses(longest)
	}
	return Pauses(Longest)
}

// jitter lengthens each pause by up to this share at random, so that many members do not retry in step.
const jitter = 0.2

// Pauses returns the pauses between attempts: doubling from First, and none longer than most.
func Pauses(most time.Duration) wait.Backoff {
	longest := time.Duration(float64(most) / (1 + jitter))
	return wait.Backoff{Duration: min(First, longest), Factor: 2, Jitter: jitter, Cap: longest, Steps: math.MaxInt}
}

// Pause waits for the next of the pauses. It returns earlier if wake has something to receive or is closed; it may be nil.
// The answer is false if ctx is done.
func Pause(ctx context.Context, pauses *wait.Backoff, wake <-chan struct{}) bool {
	return PauseFor(ctx, pauses.Step(), wake)
}

// PauseFor is [Pause] of a given length.
func PauseFor(ctx context.Context, pause time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
