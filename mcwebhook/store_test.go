package mcwebhook

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// secretWire carries requests for Secrets. It can keep back what watches bring, and counts reads of one Secret.
type secretWire struct {
	held  sync.RWMutex // is locked while watches bring nothing
	reads atomic.Int32
}

func (s *secretWire) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		s.carry(req, resp, err)
		return resp, err
	})
}

func (s *secretWire) carry(req *http.Request, resp *http.Response, err error) {
	switch {
	case err != nil || !strings.Contains(req.URL.Path, "/secrets"):
	case req.URL.Query().Has("watch"):
		resp.Body = &heldBody{resp.Body, &s.held}
	case req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/test"+secretSuffix):
		s.reads.Add(1)
	}
}

type roundTrip func(req *http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

type heldBody struct {
	io.ReadCloser

	held *sync.RWMutex
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.held.RLock()
	defer b.held.RUnlock()
	return n, err
}

// store changes what the Secret holds.
func (w *world) store(m *material) {
	w.t.Helper()
	s := w.secret()
	s.Data = m.data()
	if err := w.Local.Client().Update(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
}

// newWatched returns a program that has begun to serve one member, with the wire to its Secret, and a clock that stands still.
func newWatched(t *testing.T) (*world, *program, *secretWire, *clocktesting.FakePassiveClock) {
	t.Helper()
	w, wire := newWorld(t, 1), &secretWire{}
	w.wrapHub = wire.wrap
	p := w.newProgram("Ignore", nil)
	now := clocktesting.NewFakePassiveClock(time.Now())
	p.hooks.keeper.store.clock = now
	p.start()
	w.isAsked(w.Members[0])
	return w, p, wire, now
}

// TestAKeyThatTheWatchHasNotBroughtCounts, so that a rotation loses no request of a replica whose watch is behind.
func TestAKeyThatTheWatchHasNotBroughtCounts(t *testing.T) {
	w, p, wire, _ := newWatched(t)
	secrets := p.hooks.keeper.store
	rotated, err := secrets.now.Load().rotate("test", p.opts.host(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	old := p.path("member-1", "/validate--v1-configmap")
	e, err := p.GetFleet().Engagement("member-1")
	if err != nil {
		t.Fatal(err)
	}
	fresh := caller{"member-1", e.Identity(), "/validate--v1-configmap"}.path(rotated.key)
	wire.held.Lock()
	release := sync.OnceFunc(wire.held.Unlock)
	t.Cleanup(release)
	w.store(rotated)
	for what, path := range map[string]string{"the new key": fresh, "the old key": old} {
		if code, answer := p.call(path); code == http.StatusNotFound {
			t.Errorf("%s: %s", what, answer)
		}
	}
	release()
	w.eventually("the watch has brought it", func() bool { return string(secrets.now.Load().key) == string(rotated.key) })
	done, err := rotated.switchOver(p.opts.host(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w.store(done.finish(time.Now()))
	w.eventually("the old key is forgotten", func() bool { code, _ := p.call(old); return code == http.StatusNotFound })
	if code, answer := p.call(fresh); code == http.StatusNotFound {
		t.Errorf("the new key afterwards: %s", answer)
	}
}

// TestStrangersDoNotHaveTheSecretRead more than once, however many ask, until some time has passed.
func TestStrangersDoNotHaveTheSecretRead(t *testing.T) {
	_, p, wire, now := newWatched(t)
	forged := caller{"member-1", "", "/validate--v1-configmap"}.path(newKey())
	for round := range int32(2) {
		before := wire.reads.Load()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { p.call(forged) })
		}
		all.Wait()
		if reads := wire.reads.Load() - before; reads > 1 {
			t.Errorf("round %d: 50 requests had it read %d times", round, reads)
		}
		now.SetTime(now.Now().Add(readPause))
	}
	before := wire.reads.Load()
	if p.call(forged); wire.reads.Load() != before+1 {
		t.Error("it is not read again after a while")
	}
}

// TestWhatIsReadLateReplacesNothing: the watch was quicker, and what it has brought since holds.
func TestWhatIsReadLateReplacesNothing(t *testing.T) {
	w, p, _, _ := newWatched(t)
	secrets := p.hooks.keeper.store
	if err := secrets.read(t.Context()); err != nil || secrets.ahead.Load() != nil {
		t.Error("what the watch has brought counts as newer than that")
	}
	secrets.mu.Lock()
	secrets.version = "" // as before the watch has brought anything
	secrets.mu.Unlock()
	if err := secrets.read(t.Context()); err != nil || secrets.ahead.Load() == nil {
		t.Error("what was read first does not count")
	}
	older := &corev1.Secret{Data: w.secret().Data}
	older.ResourceVersion = "1"
	if secrets.seen(older); secrets.ahead.Load() == nil {
		t.Error("an older one has replaced what was read")
	}
	if secrets.seen(w.secret()); secrets.ahead.Load() != nil {
		t.Error("what was read counts on after the watch has brought it")
	}
}
