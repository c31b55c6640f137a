// Package credplugin lets requests end with their context while a credential plugin runs: a program that client-go runs, waits for
// whatever a request's context says, and never ends. One that hangs would hold the request, and what waits for that, for ever.
package credplugin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
)

// Plugin is where the requests to one cluster meet that wait for its credential plugin. While one is given up that still waits, no
// other begins to: a program that hangs holds no more than what waited for it at first. The zero value is ready for use, by several
// goroutines at once.
type Plugin struct {
	mu      sync.Mutex // guards what follows
	hanging int
	over    chan struct{} // closed when none hangs any more
}

// Guard returns the transport of a config, with which requests end with their context. It is rt itself if the config has no plugin.
func (p *Plugin) Guard(cfg *rest.Config, rt http.RoundTripper) http.RoundTripper {
	if cfg.ExecProvider == nil && cfg.AuthProvider == nil {
		return rt
	}
	return interruptible{rt, p}
}

// errHangs is why a request was not sent.
var errHangs = errors.New("the credential plugin that was started before has not answered yet; end the program if it hangs")

// ready waits until no plugin hangs.
func (p *Plugin) ready(ctx context.Context) error {
	p.mu.Lock()
	hangs, over := p.hanging > 0, p.over
	p.mu.Unlock()
	if !hangs {
		return nil
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errHangs, context.Cause(ctx))
	}
}

func (p *Plugin) hangs() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hanging == 0 {
		p.over = make(chan struct{})
	}
	p.hanging++
}

func (p *Plugin) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hanging--
	if p.hanging == 0 {
		close(p.over)
	}
}

// interruptible lets requests end with their context while a plugin runs.
type interruptible struct {
	http.RoundTripper
	plugin *Plugin
}

// RoundTrip implements http.RoundTripper.
func (i interruptible) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := i.plugin.ready(req.Context()); err != nil {
		return nil, err
	}
	type answer struct {
		resp *http.Response
		err  error
	}
	answers, abandoned := make(chan answer), make(chan struct{})
	go func() {
		resp, err := i.RoundTripper.RoundTrip(req)
		select {
		case answers <- answer{resp, err}:
		case <-abandoned:
			if err == nil {
				_ = resp.Body.Close()
			}
			i.plugin.answered()
		}
	}()
	select {
	case a := <-answers:
		return a.resp, a.err
	case <-req.Context().Done():
		i.plugin.hangs()
		close(abandoned)
		return nil, fmt.Errorf("waiting for the answer, or for a credential plugin: %w", context.Cause(req.Context()))
	}
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (i interruptible) WrappedRoundTripper() http.RoundTripper { return i.RoundTripper }
