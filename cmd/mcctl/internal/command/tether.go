package command

import (
	"cmp"
	"context"
	"io"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// requestTimeout is how long a request may take, unless --request-timeout says otherwise. An API server gives up one that is no watch after as
// long by itself, so what takes longer is not answered at all.
const requestTimeout = "1m"

// endingWith returns a wrapper of transports whose requests end with ctx too. Discovery sends requests that have no context of the caller.
func endingWith(ctx context.Context) func(http.RoundTripper) http.RoundTripper {
	return func(rt http.RoundTripper) http.RoundTripper {
		return tethered{rt, func(of context.Context) (context.Context, func()) {
			merged, end := context.WithCancelCause(of)
			unwatch := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
			return merged, func() { unwatch(); end(nil) }
		}}
	}
}

// tethered lets requests end with more than their own context.
type tethered struct {
	http.RoundTripper

	// tether returns a context that ends with more than the given one. It is to be released.
	tether func(context.Context) (merged context.Context, release func())
}

var _ utilnet.RoundTripperWrapper = tethered{}

// RoundTrip implements [http.RoundTripper].
func (t tethered) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, release := t.tether(req.Context())
	resp, err := t.RoundTripper.RoundTrip(req.WithContext(ctx))
	if err != nil {
		err = cmp.Or(context.Cause(ctx), err) // which HTTP/2 does not tell
		release()
		return nil, err
	}
	resp.Body = &tetheredBody{resp.Body, release}
	return resp, nil
}

// WrappedRoundTripper implements [utilnet.RoundTripperWrapper].
func (t tethered) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// tetheredBody can be read until the context of its request ends, or it is closed.
type tetheredBody struct {
	io.ReadCloser

	release func()
}

// Close implements [io.Closer].
func (b *tetheredBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}
