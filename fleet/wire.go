package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/fleet-runtime/fleet-runtime/internal/gate"
	"github.com/fleet-runtime/fleet-runtime/internal/pulse"
)

// wire is how all requests to one member travel. It tells health what it hears, its credentials can be replaced while it
// is in use, and nothing is sent on a connection before it is proved that it leads to the member's cluster.
type wire struct {
	name   ClusterName
	health *health
	// unreachable returns the error for a member that is Unreachable, nil if it is not. It may be nil.
	unreachable func() *StateError

	most  int64                                                   // bytes of one answer
	ready func(ctx context.Context, over http.RoundTripper) error // asks the API server whether it is ready

	// identify reads which cluster answers. Nil stands for one whose identity the provider says.
	identify func(context.Context, http.RoundTripper) (string, error)

	gate *gate.Gate // for what changes the member, nil for none

	before string // the identity of the engagement whose place it is to take, if there is one

	current atomic.Pointer[generation]

	mu         sync.Mutex // guards what follows
	closed     bool
	identified bool
	identity   string
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Query().Has("watch") {
		return w.watch(req)
	}
	return w.carry(req, w.health.sent())
}

// carry sends an ordinary request. What comes of it is told to health, unless there is no exchange: then it is a question of
// health's own.
func (w *wire) carry(req *http.Request, x *exchange) (*http.Response, error) {
	g, err := w.begin(false)
	if err != nil {
		w.ended(x)
		return nil, err
	}
	resp, release, err := w.send(g, req)
	if err != nil {
		g.end()
		w.ended(x)
		if x != nil && !isRefused(err) {
			w.noteError(g, req)
			err = w.explained(req, err)
		}
		return resp, err
	}
	end := sync.OnceFunc(func() { release(); g.end(); w.ended(x) })
	body := &countedBody{ReadCloser: resp.Body, left: w.most, end: end, reconcile: pulse.From(req.Context()), from: string(w.name)}
	if x != nil {
		w.noteAnswer(resp)
		body.wire, body.req, body.exchange = w, req, x
	}
	resp.Body = body
	return resp, nil
}

func (w *wire) ended(x *exchange) {
	if x != nil {
		w.health.ended(x)
	}
}

// watch sends a request that may last for ever.
func (w *wire) watch(req *http.Request) (*http.Response, error) {
	g, err := w.begin(true)
	if err != nil {
		return nil, err
	}
	resp, release, err := w.send(g, uncompressed(req))
	switch {
	case isRefused(err):
		return resp, err
	case err != nil && g.isRetired() && req.Context().Err() == nil:
		return w.watch(req) // its connection was closed before the watch had begun
	case err != nil:
		w.noteError(g, req)
		return resp, w.explained(req, err)
	}
	w.noteAnswer(resp)
	if resp.StatusCode == http.StatusOK {
		resp.Body = w.watched(resp, g, release)
	} else { // client-go reads to its end why it is refused
		resp.Body = &countedBody{ReadCloser: resp.Body, left: w.most, end: release}
	}
	return resp, nil
}

// noteError tells health of a request that was not answered. A time-out has not heard from the server. A request that was
// cancelled says nothing about it.
func (w *wire) noteError(g *generation, req *http.Request) {
	if !errors.Is(req.Context().Err(), context.Canceled) && !g.isRetired() {
		w.health.failed()
	}
}

func (w *wire) noteAnswer(resp *http.Response) {
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		w.health.failed()
	case resp.StatusCode < http.StatusInternalServerError:
		w.health.worked()
	}
}

// explained returns why a request has failed. If the member cannot be reached, that is why: its connections may have been
// closed for that, and what the request ran into is a consequence.
func (w *wire) explained(req *http.Request, err error) error {
	if req.Context().Err() != nil || w.unreachable == nil {
		return err
	}
	if state := w.unreachable(); state != nil {
		return &unreachableError{state, err}
	}
	return err
}

// unreachableError is why a request to a member failed that is Unreachable. It is the [StateError], by which controllers
// know that the request is to be tried again when the member is back.
type unreachableError struct {
	state *StateError
	err   error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("%v; the request ended with: %v", e.state, e.err)
}

// Unwrap returns the state alone: what the request ran into is no error of its own.
func (e *unreachableError) Unwrap() error { return e.state }

func (w *wire) watched(resp *http.Response, g *generation, release func()) *watchBody {
	body := &watchBody{ReadCloser: resp.Body, health: w.health, generation: g, release: release}
	// client-go takes an answer that does not say what it is for JSON.
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "" || strings.Contains(kind, "json") {
		body.frames, body.most = &frames{}, min(mostEvent, w.most)
	}
	return body
}

// prove proves that a connection leads to the member's cluster.
func (w *wire) prove(ctx context.Context, g *generation, conn net.Conn) error {
	l := lineOf(conn)
	if l == nil {
		return nil
	}
	l.open()
	if w.identify == nil {
		return nil
	}
	return l.prove(ctx, gate.IsShared(conn), func(ctx context.Context) error {
		var answered *line
		trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { answered = lineOf(got.Conn) }}
		if err := w.verifyOver(httptrace.WithClientTrace(ctx, trace), g); err != nil {
			return err
		}
		if answered != nil && answered != l {
			answered.proved.Store(true)
			return errOtherLine
		}
		return nil
	})
}

// verify implements link.
func (w *wire) verify(ctx context.Context) error { return w.verifyOver(ctx, w.current.Load()) }

// verifyOver asks which cluster answers over a generation. The first answer is what the member's cluster is from then on;
// another one is an [anotherClusterError].
func (w *wire) verifyOver(ctx context.Context, g *generation) error {
	if w.identify == nil {
		return nil
	}
	w.mu.Lock()
	known := cmp.Or(w.identity, w.before)
	w.mu.Unlock()
	now, err := w.identify(ctx, g)
	if now, err = orUnknown(known, now, err); err != nil {
		return err
	}
	w.mu.Lock()
	if !w.identified {
		w.identified, w.identity = true, now
	}
	known = w.identity
	w.mu.Unlock()
	if now == known {
		return nil
	}
	another := &anotherClusterError{known: known, now: now}
	w.health.lost(another)
	return another
}

// probe implements link. A server that is frozen may open the connection as late as it may answer: to make another one
// meanwhile costs more than the probe.
func (w *wire) probe(ctx context.Context) error { return w.ready(openingMeanwhile(ctx), asking{w}) }

// asking is the wire for questions of health's own.
type asking struct{ *wire }

// RoundTrip implements http.RoundTripper.
func (a asking) RoundTrip(req *http.Request) (*http.Response, error) { return a.carry(req, nil) }

// settle returns which cluster answers, which does not change any more.
func (w *wire) settle(ctx context.Context) (string, error) {
	w.mu.Lock()
	identified := w.identified
	w.mu.Unlock()
	if !identified { // its transport is not ours, or the provider says it
		if err := w.verify(ctx); err != nil {
			return "", err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.identity, nil
}

// uncompressed returns a copy of a request whose answer is not compressed. The window that it takes to decompress a
// stream is 44 KB, held for as long as the watch lasts, in each member and for each kind.
func uncompressed(req *http.Request) *http.Request {
	req = utilnet.CloneRequest(req)
	req.Header.Set("Accept-Encoding", "identity")
	return req
}

// errClosed is returned for requests to a member whose engagement has ended.
var errClosed = errors.New("the engagement has ended, and its connections are closed")

// begin returns the generation with which a request travels.
func (w *wire) begin(isWatch bool) (*generation, error) {
	for g := w.current.Load(); ; {
		if g.begin(isWatch) {
			return g, nil
		}
		next := w.current.Load()
		if next == g {
			return nil, errClosed
		}
		g = next // it was replaced this very moment
	}
}

// replace puts next in the place of the current generation, which it returns. It returns nil if the wire is closed:
// next is of no use then.
func (w *wire) replace(next *generation) (before *generation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	return w.current.Swap(next)
}

// redial closes the connections, so that what is sent next makes a new one. Requests under way fail, and watches go on
// from where they were.
func (w *wire) redial() { w.current.Load().closeAll() }

// heard is when bytes last arrived.
func (w *wire) heard() time.Time { return time.Unix(0, w.current.Load().heard.Load()) }

// close closes all connections. Nothing may be sent any more.
func (w *wire) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.current.Load().finish()
}
