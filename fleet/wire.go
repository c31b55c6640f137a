package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

// send sends a request on a line that is proved. release must be called when the answer was read.
func (w *wire) send(g *generation, req *http.Request) (resp *http.Response, release func(), err error) {
	if gate.Changes(req) {
		return w.sendChange(g, req)
	}
	return w.sendAdmitted(nil, g, req) //nolint:staticcheck // it does not outlive its caller
}

// sendChange sends a request that may change something, if this replica owns the member, and the one on whose behalf it is sent. Where
// members are shared, it waits for the answer although its caller may not, for as long as the gates allow: what was given up under way
// could change the member after the next owner has begun.
func (w *wire) sendChange(g *generation, req *http.Request) (resp *http.Response, release func(), err error) {
	var caller context.Context // of a request that outlives it
	theirs := gate.From(req.Context())
	if (w.gate != nil || theirs != nil) && req.Header.Get("Upgrade") == "" {
		caller = req.Context()
		req = req.WithContext(context.WithoutCancel(caller))
	}
	admitted, done, err := gate.Admit(req, w.gate, theirs)
	if err != nil {
		return nil, func() {}, &refusedError{err}
	}
	if until, ends := admitted.Context().Deadline(); ends && caller != nil {
		g.admit(until)
	}
	g.changing.Add(1)
	end := func() { g.changing.Add(-1); done() }
	resp, sent, err := w.sendAdmitted(caller, g, admitted)
	if err != nil {
		end()
		return resp, sent, err
	}
	return resp, func() { sent(); end() }, nil
}

// refusedError is why a request was not sent. That says nothing about the member.
type refusedError struct{ error }

// Unwrap returns why.
func (e *refusedError) Unwrap() error { return e.error }

func isRefused(err error) bool {
	_, is := errors.AsType[*refusedError](err)
	return is
}

// sendAdmitted sends a request. One that outlives its caller ends with that before it is sent.
func (w *wire) sendAdmitted(caller context.Context, g *generation, req *http.Request) (resp *http.Response, release func(), err error) {
	reconcile := pulse.From(req.Context())
	reconcile.Wait(string(w.name))
	defer reconcile.Heard(string(w.name))
	for range mostLines {
		resp, release, err = w.sendOnce(caller, g, req)
		if !errors.Is(err, errOtherLine) {
			break
		}
		var rewound bool
		if req, rewound = rewind(req); !rewound {
			break
		}
	}
	return resp, release, err
}

// mostLines is on how many lines a request is tried until one is proved.
const mostLines = 30

// errOtherLine is why a line is not proved: the answer came on another one, which is. This happens with HTTP/1, where the
// request has the line for itself, and with HTTP/2 when no more requests fit on it.
var errOtherLine = errors.New("no connection was kept open for which it is proved where it leads")

// rewind returns a request as it was before it was sent, if that can be had.
func rewind(req *http.Request) (*http.Request, bool) {
	if req.Body == nil || req.Body == http.NoBody {
		return req, true
	}
	if req.GetBody == nil {
		return req, false
	}
	body, err := req.GetBody()
	if err != nil {
		return req, false
	}
	again := *req
	again.Body = body
	return &again, true
}

func (w *wire) sendOnce(caller context.Context, g *generation, req *http.Request) (resp *http.Response, release func(), err error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	stay := func() error { return nil }
	if caller != nil {
		detach := context.AfterFunc(caller, func() { cancel(context.Cause(caller)) })
		defer detach()
		stay = func() error {
			detach()
			return context.Cause(caller)
		}
	}
	sent := req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		err := w.prove(ctx, g, got.Conn)
		if err == nil && gate.Changes(req) {
			if err = cmp.Or(stay(), w.recheck(ctx)); err != nil {
				spare(got.Conn)
			}
		}
		if err != nil {
			cancel(err) // nothing is sent
		}
	}}))
	resp, err = g.RoundTrip(sent)
	if err == nil {
		return resp, func() { cancel(nil) }, nil
	}
	if req.Context().Err() == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	cancel(nil)
	return resp, func() {}, err
}

// spare closes a connection that was got for a request which must not be sent. With HTTP/1, the request may be about to leave although
// it was cancelled. With HTTP/2 it is not, and others share the connection.
func spare(conn net.Conn) {
	if l := lineOf(conn); l != nil && !isShared(conn) {
		_ = l.Close()
	}
}

// recheck looks once more whether a request may change something, right before it is sent: it may have waited for a connection.
func (w *wire) recheck(ctx context.Context) error {
	for _, g := range []*gate.Gate{w.gate, gate.From(ctx)} {
		if _, err := g.Check(); err != nil {
			return &refusedError{err}
		}
	}
	return nil
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
	return l.prove(ctx, isShared(conn), func(ctx context.Context) error {
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

// errTooLarge ends an answer that does not end.
var errTooLarge = errors.New("the answer is too large: see Options.MaxResponseBytes")

// countedBody is the body of an ordinary response: the request is under way until it is closed.
type countedBody struct {
	io.ReadCloser
	left int64
	end  func()

	reconcile *pulse.Pulse // that reads it, if one does
	from      string       // the member's name

	// For requests of which health is told, or else nil:
	wire     *wire
	req      *http.Request
	exchange *exchange
}

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	b.reconcile.Wait(b.from)
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.reconcile.Heard(b.from)
	b.left -= int64(n)
	if b.exchange == nil {
		return n, err
	}
	if n > 0 {
		b.exchange.arrives()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.wire.explained(b.req, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *countedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// watchBody is the body of a watch. Each event is a sign of life, and an end that the server did not mean casts doubt on it.
// When the credentials were replaced the watch ends in due form, so that the informer goes on from where it was; at any
// other error it might list everything again.
type watchBody struct {
	io.ReadCloser
	health     *health
	generation *generation
	release    func()
	frames     *frames // nil for events whose length is known
	most       int64   // bytes of one event
}

// Read implements io.Reader.
func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.health.heardEvent()
	}
	if b.frames != nil && b.frames.read(p[:n]) > b.most {
		return 0, errTooLarge
	}
	switch {
	case err == nil || errors.Is(err, io.EOF):
	case b.generation.isRetired():
		err = io.EOF
	default:
		b.health.failed()
	}
	return n, err
}

// Close implements io.Closer.
func (b *watchBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}
