// Package gate keeps requests from changing anything after the replica that sends them has lost the member on whose behalf
// they are sent.
package gate

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Gate lets requests pass for as long as a replica owns a member.
type Gate struct {
	// Remaining says for how long what is sent may still change something. If it is not positive, nothing may be sent.
	Remaining func() time.Duration
	// Refusal returns why nothing may be sent.
	Refusal func() error
}

// Check returns for how long a request may take, or why it may not be sent. A nil gate lets everything pass.
func (g *Gate) Check() (left time.Duration, err error) {
	if g == nil {
		return forever, nil
	}
	if left = g.Remaining(); left <= 0 {
		return 0, g.Refusal()
	}
	return left, nil
}

const forever = time.Duration(1<<63 - 1)

type key struct{}

// With returns a context whose requests pass the gate.
func With(ctx context.Context, g *Gate) context.Context { return context.WithValue(ctx, key{}, g) }

// From returns the gate of a context, nil if there is none.
func From(ctx context.Context) *Gate {
	g, _ := ctx.Value(key{}).(*Gate)
	return g
}

// Is reports whether a key of a context's value is that of its gate.
func Is(k any) bool { return k == key{} }

// Changes reports whether a request may change something. What is upgraded, such as exec, may do anything.
func Changes(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "":
		return req.Header.Get("Upgrade") != ""
	}
	return true
}

// Limit returns a context that ends when the first of the gates is closed at the latest, or why nothing may be sent.
func Limit(ctx context.Context, gates ...*Gate) (limited context.Context, done context.CancelFunc, err error) {
	left, err := remaining(gates)
	if err != nil {
		return nil, nil, err
	}
	if left == forever {
		return ctx, func() {}, nil
	}
	limited, done = context.WithTimeoutCause(ctx, left, errClosed)
	return limited, done, nil
}

// remaining is for how long all gates are open.
func remaining(gates []*Gate) (left time.Duration, err error) {
	left = forever
	for _, g := range gates {
		most, err := g.Check()
		if err != nil {
			return 0, err
		}
		left = min(left, most)
	}
	return left, nil
}

// Admit returns a request as it may be sent, which ends when the first of the gates is closed at the latest: here, and in the API
// server, which heeds the parameter timeout and may have it in a queue. done must be called when its answer was read.
func Admit(req *http.Request, gates ...*Gate) (admitted *http.Request, done context.CancelFunc, err error) {
	ctx, done, err := Limit(req.Context(), gates...)
	if err != nil {
		return nil, nil, err
	}
	until, ends := ctx.Deadline()
	if ctx == req.Context() || !ends {
		return req, done, nil
	}
	admitted = req.WithContext(ctx)
	if req.Header.Get("Upgrade") == "" {
		admitted.URL = limited(req.URL, time.Until(until))
	}
	return admitted, done, nil
}

// errClosed ends a request that has taken until its gate could be closed.
var errClosed = fmt.Errorf("this replica may not own the member any more when the request is answered: %w", context.DeadlineExceeded)

// limited returns an address with which a server gives up a request after a time.
func limited(u *url.URL, left time.Duration) *url.URL {
	query := u.Query()
	if asked, err := time.ParseDuration(query.Get("timeout")); err == nil && asked <= left {
		return u
	}
	query.Set("timeout", max(left.Truncate(time.Millisecond), time.Millisecond).String())
	out := *u
	out.RawQuery = query.Encode()
	return &out
}
