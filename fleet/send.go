package fleet

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"

	"github.com/fleet-runtime/fleet-runtime/internal/gate"
	"github.com/fleet-runtime/fleet-runtime/internal/paths"
	"github.com/fleet-runtime/fleet-runtime/internal/pulse"
)

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
	leave := g.pass(w.gate, theirs)
	end := func() { leave(); done() }
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
	return is || errors.Is(err, paths.ErrBeyond)
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
	ctx, let, cancel := gate.Tether(req.Context(), caller)
	defer func() { _ = let() }()
	sent := req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		err := w.prove(ctx, g, got.Conn)
		if err == nil && gate.Changes(req) {
			if err = cmp.Or(let(), w.recheck(ctx)); err != nil {
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
	if l := lineOf(conn); l != nil && !gate.IsShared(conn) {
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
