package access

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/retry"
)

// Sources makes the tokens of many accesses. [Sources.Close] ends what runs in the background. It is safe for concurrent use.
type Sources struct {
	hub    *Hub
	life   context.Context //nolint:containedctx // of what runs in the background
	cancel context.CancelFunc
	keep   func(granted time.Duration) time.Duration
	// retries are apart, over all accesses: however many get no token, together they ask the hub for few.
	retries *rate.Limiter

	mu      sync.Mutex // guards what follows
	over    bool
	running sync.WaitGroup
}

// NewSources returns sources of tokens that are made with the rights of the hub's client.
func NewSources(hub *Hub) *Sources {
	life, cancel := context.WithCancel(context.Background())
	return &Sources{hub: hub, life: life, cancel: cancel, keep: keepFor, retries: rate.NewLimiter(retriesPerSecond, retriesPerSecond)}
}

// retriesPerSecond is how many attempts are made in a second for accesses that have just had no token, or one that is not accepted. The hub
// has others to answer.
const retriesPerSecond = 10

// turn returns how long to wait at least until the next attempt after one that was in vain.
func (s *Sources) turn(now time.Time) time.Duration { return s.retries.ReserveN(now, 1).DelayFrom(now) }

// Source returns a source of tokens for an access, which must not be changed. told is called with each token that was made, if
// it is not nil; it must not wait.
func (s *Sources) Source(a *v1alpha1.ClusterAccess, told func(Token)) *Source {
	return &Source{
		mint: func(ctx context.Context) (Token, error) { return s.hub.Token(ctx, a) },
		told: told, begin: s.begin, keep: s.keep, turn: s.turn, pauses: retry.Pauses(retry.Longest),
	}
}

// begin runs a function in the background, unless that is over.
func (s *Sources) begin(run func(ctx context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.running.Go(func() { run(s.life) })
	}
	return !s.over
}

// Close ends what runs in the background, and waits for it. Tokens that were made go on being used.
func (s *Sources) Close() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.cancel()
	s.running.Wait()
}
