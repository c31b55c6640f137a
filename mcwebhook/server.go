package mcwebhook

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

const (
	// longestReview is how long an API server waits at most for the answer of a webhook.
	longestReview = 30 * time.Second
	// largestReview is what controller-runtime reads of a review, and a little more, so that it says so itself.
	largestReview = 8 << 20
	// reviewsAtOnce is how many requests of one member are served at once, so that one that is hostile, or loops, leaves
	// room for others.
	reviewsAtOnce = 64
	// reviewBytes is how many bytes the requests of all members have together, by what they say of themselves, and apart from
	// the reviewFloor of each.
	reviewBytes = 512 << 20
	// reviewShare is which part of what the others leave of that one member may take: 64 MiB of all.
	reviewShare = 8
	// reviewFloor is what a member may take in any case, whatever the others do.
	reviewFloor = 256 << 10
)

// server answers API servers of members. What does not show that it is one has the same answer whatever it asks for.
type server struct {
	fleet   *fleet.Fleet
	hooks   *registry
	store   *store
	longest time.Duration // of a request, and of reading and answering it

	turns turns
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, authentic := callerOf(r.URL.Path, s.store.keys())
	if !authentic {
		s.store.lookAgain(r.Context())
		c, authentic = callerOf(r.URL.Path, s.store.keys())
	}
	hook := s.hooks.handler(c.hook)
	if !authentic || hook == nil {
		http.NotFound(w, r)
		return
	}
	size := sizeOf(r)
	if !s.turns.take(c.name, size) {
		unavailable(w)
		return
	}
	defer s.turns.give(c.name, size)
	ctx, cancel := context.WithTimeout(r.Context(), s.longest)
	defer cancel()
	ctx, leave, err := s.enter(ctx, c)
	if errors.Is(err, fleet.ErrUnknown) || errors.Is(err, fleet.ErrGone) {
		http.NotFound(w, r)
		return
	}
	if err != nil {
		unavailable(w)
		return
	}
	defer leave()
	r = r.WithContext(ctx)
	r.Body = http.MaxBytesReader(w, r.Body, largestReview)
	hook.ServeHTTP(w, r)
}

// unavailable lets the failurePolicy decide. What keeps a member from being used here is nothing that its users need to know.
func unavailable(w http.ResponseWriter) {
	http.Error(w, "this cluster cannot be served now", http.StatusServiceUnavailable)
}

// enter returns a context that carries the member that calls, and ends when that cannot be used any more. It is not drained before leave
// was called.
func (s *server) enter(ctx context.Context, c caller) (_ context.Context, leave func(), err error) {
	e, err := s.fleet.Engagement(c.name)
	if errors.Is(err, fleet.ErrNotOwned) {
		return s.enterAsGuest(ctx, c)
	}
	if err != nil {
		return nil, nil, err
	}
	if e.Identity() != c.identity {
		return nil, nil, fleet.ErrGone // the cluster that had the name before
	}
	if ctx, leave, err = e.Join(ctx, c); err != nil {
		return nil, nil, err
	}
	return mcreconcile.WithCluster(ctx, c.name, e.Cluster()), leave, nil
}

// enterAsGuest is enter for a member that another replica works on.
func (s *server) enterAsGuest(ctx context.Context, c caller) (_ context.Context, leave func(), err error) {
	g, leaveGuest, err := s.fleet.SharedGuest(ctx, c.name)
	if err != nil {
		return nil, nil, err
	}
	if g.Identity() != c.identity {
		leaveGuest()
		return nil, nil, fleet.ErrGone
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.Context(), func() { cancel(context.Cause(g.Context())) })
	return mcreconcile.WithCluster(ctx, c.name, g.Cluster()), func() {
		stop()
		cancel(nil)
		leaveGuest()
	}, nil
}

// String says what keeps a member from being drained.
func (c caller) String() string { return "webhook " + c.hook }

// sizeOf returns how many bytes of a request are read at most.
func sizeOf(r *http.Request) int64 {
	if r.ContentLength < 0 { // it does not say
		return largestReview
	}
	return min(r.ContentLength, largestReview)
}

// turns are the requests of each member that are served now. The zero value has none.
type turns struct {
	mu    sync.Mutex // guards what follows
	of    map[mcreconcile.ClusterName]share
	bytes int64 // of all
}

// share is what one member takes.
type share struct {
	reviews int
	bytes   int64
}

// take reports whether one more of so many bytes may be served.
func (t *turns) take(name mcreconcile.ClusterName, size int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.of[name]
	left := reviewBytes - (t.bytes - now.bytes)
	if now.reviews >= reviewsAtOnce || now.bytes+size > max(left/reviewShare, reviewFloor) {
		return false
	}
	if t.of == nil {
		t.of = map[mcreconcile.ClusterName]share{}
	}
	t.of[name] = share{now.reviews + 1, now.bytes + size}
	t.bytes += size
	return true
}

// give is called when one was served.
func (t *turns) give(name mcreconcile.ClusterName, size int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes -= size
	if now := t.of[name]; now.reviews > 1 {
		t.of[name] = share{now.reviews - 1, now.bytes - size}
	} else {
		delete(t.of, name)
	}
}
