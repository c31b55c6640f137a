package dependents_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// forgetful is a way to a member whose watches can be interrupted, and after which its API server remembers no version from which to go on.
type forgetful struct {
	http.RoundTripper

	*memory
}

type memory struct {
	mu   sync.Mutex // guards what follows
	open context.Context
	end  context.CancelFunc
	lost bool // watches do not go on from a version
}

var errInterrupted = errors.New("the test has interrupted the watch")

func newMemory(ctx context.Context) *memory {
	m := &memory{}
	m.open, m.end = context.WithCancel(ctx)
	return m
}

// interrupt ends all watches, and lets none begin.
func (m *memory) interrupt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end()
}

// forget lets watches begin again, none of which goes on from a version.
func (m *memory) forget(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open, m.end = context.WithCancel(ctx)
	m.lost = true
}

// RoundTrip implements http.RoundTripper.
func (f *forgetful) RoundTrip(req *http.Request) (*http.Response, error) {
	q := req.URL.Query()
	if !q.Has("watch") {
		return f.RoundTripper.RoundTrip(req)
	}
	f.mu.Lock()
	open, lost := f.open, f.lost
	f.mu.Unlock()
	switch {
	case open.Err() != nil:
		return nil, errInterrupted
	case lost && !q.Has("sendInitialEvents"):
		status := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}`
		return &http.Response{
			StatusCode: http.StatusGone, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(status)), Request: req,
		}, nil
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	context.AfterFunc(open, func() { cancel(errInterrupted) })
	return f.RoundTripper.RoundTrip(req.WithContext(ctx))
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (f *forgetful) WrappedRoundTripper() http.RoundTripper { return f.RoundTripper }

// TestWhatIsDeletedBeforeACacheHasSeenItIsCreatedAnew: the watch was interrupted while it was created and deleted, and lists anew, so there is no
// event of either.
func TestWhatIsDeletedBeforeACacheHasSeenItIsCreatedAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	w.Members = nil
	m := newMemory(t.Context())
	r := w.spread()
	dependents.Hasten(r, time.Second)
	p := w.run(r)
	cfg := one.Config()
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { return &forgetful{through, m} })
	if err := p.members.Set(fleet.Member{Name: fleet.ClusterName(one.Name), Config: p.power.feed(cfg)}); err != nil {
		t.Fatal(err)
	}
	isKnown := func(owner string) {
		t.Helper()
		w.create(w.Local, w.owner(owner, one.Name))
		w.isCopied(one, owner)
		eventually(t, "the cache knows of it", func() bool { return p.knows(one, w.mustGet(one, copyOf(owner))) })
	}
	isKnown("before")
	m.interrupt()
	w.create(w.Local, w.owner("a", one.Name))
	w.isCopied(one, "a")
	w.remove(one, copyOf("a"))
	m.forget(t.Context())
	isKnown("later")
	w.isCopied(one, "a")
}
