package dependents_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
)

// lagging holds back what watches of ConfigMaps say while it has something to wait for, and counts how often the owner a is read.
type lagging struct {
	until atomic.Pointer[chan struct{}]
	reads atomic.Int32
}

type laggingTransport struct {
	http.RoundTripper

	of *lagging
}

// RoundTrip implements http.RoundTripper.
func (l laggingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/configmaps/a") {
		l.of.reads.Add(1)
	}
	resp, err := l.RoundTripper.RoundTrip(req)
	if err == nil && strings.HasSuffix(req.URL.Path, "/configmaps") && req.URL.Query().Get("watch") != "" {
		resp.Body = laggingBody{resp.Body, l.of}
	}
	return resp, err
}

type laggingBody struct {
	io.ReadCloser

	of *lagging
}

// Read implements io.Reader.
func (b laggingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if until := b.of.until.Load(); until != nil {
		<-*until
	}
	return n, err
}

// TestAnOwnerThatIsOrphanedWhileItsWatchLagsKeepsItsDependents: the watch has yet to say how it is being deleted.
func TestAnOwnerThatIsOrphanedWhileItsWatchLagsKeepsItsDependents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	one := w.Members[0]
	r := w.orphaning()
	r.Targets, r.ReleaseAfter, r.Sweep.Interval = nil, time.Millisecond, time.Hour
	local, lag := w.Local.Config(), &lagging{}
	local.Wrap(func(rt http.RoundTripper) http.RoundTripper { return laggingTransport{rt, lag} })
	p := w.runAs(local, func(mgr mcmanager.Manager) error { return r.SetupWithManager(mgr) })
	w.create(w.Local, w.owner("a"))
	for _, cp := range w.Members {
		w.isCopied(cp, "a")
	}
	eventually(t, "the program is at rest", p.isAtRest)
	before, until := w.mustGet(one, copyOf("a")), make(chan struct{})
	lag.until.Store(&until)
	<-p.members.Remove("member-2")
	eventually(t, "it is noted", func() bool { return !strings.Contains(placedIn(w.mustGet(w.Local, "a")), "member-2") })
	reads := lag.reads.Load()
	w.removeAsOrphan("a")
	<-p.members.Remove("member-3")
	eventually(t, "the owner is read time and again, or its dependents are gone", func() bool {
		now := w.get(one, copyOf("a"))
		return now == nil || now.DeletionTimestamp != nil || lag.reads.Load() >= reads+3
	})
	lag.until.Store(nil)
	close(until)
	w.isGone(w.Local, "a")
	w.isReleased(one, before)
}
