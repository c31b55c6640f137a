package fleet

import (
	"math/rand/v2"
	"time"
)

// backoff gives the pauses between attempts: doubling from minRetryPeriod up to most, each shortened by up to a fifth
// at random so that many members do not retry in step.
type backoff struct {
	most time.Duration
	last time.Duration
}

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, minRetryPeriod), b.most)
	return b.last - rand.N(b.last/5+1) //nolint:gosec // it hides nothing
}

func (b *backoff) reset() { b.last = 0 }
