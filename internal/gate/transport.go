package gate

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptrace"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Transport lets the requests of contexts that have a gate pass it. Once such a request may change something, its answer is awaited
// although its caller has given up, for as long as the gate allows.
type Transport struct{ http.RoundTripper }

var _ utilnet.RoundTripperWrapper = Transport{}

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	g := From(req.Context())
	if g == nil || !Changes(req) {
		return t.RoundTripper.RoundTrip(req)
	}
	var caller context.Context // of a request that outlives it
	ctx := req.Context()
	if req.Header.Get("Upgrade") == "" {
		caller, ctx = ctx, context.WithoutCancel(ctx)
	}
	ctx, let, end := Tether(ctx, caller)
	defer func() { _ = let() }()
	admitted, done, err := Admit(req.WithContext(sending(ctx, g, let, end)), g)
	if err != nil {
		end(nil)
		return nil, err
	}
	resp, err := t.RoundTripper.RoundTrip(admitted)
	if err != nil {
		err = cmp.Or(context.Cause(ctx), err)
		done()
		end(nil)
		return resp, err
	}
	resp.Body = &body{resp.Body, func() { done(); end(nil) }}
	return resp, nil
}

// sending returns a context with which a request looks once more whether it may be sent, when it has a connection.
func sending(ctx context.Context, g *Gate, let func() error, end context.CancelCauseFunc) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		err := let()
		if err == nil {
			_, err = g.Check()
		}
		if err == nil {
			return
		}
		end(err)
		if !IsShared(got.Conn) { // with HTTP/1, the request may be about to leave although it was cancelled
			_ = got.Conn.Close()
		}
	}})
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (t Transport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
