package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"
)

// wire is how all requests to one member travel. It tells health what it hears, and its credentials can be replaced
// while it is in use.
type wire struct {
	health  *health
	current atomic.Pointer[generation]
}

// generation is the wire with one set of credentials: connections of its own, made and authenticated with them.
// client-go would share connections among all members whose TLS settings are equal, and keep them for the life of the
// process.
type generation struct {
	http.RoundTripper
	dialer *connrotation.Dialer // nil where the config brings its own transport

	mu       sync.Mutex // guards what follows
	retired  bool
	ordinary int           // requests under way that are no watches
	idle     chan struct{} // closed when retired and no such request is left
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	isWatch := req.URL.Query().Has("watch")
	g, err := w.begin(isWatch)
	if err != nil {
		return nil, err
	}
	if isWatch {
		req = uncompressed(req)
	}
	resp, err := g.RoundTrip(req)
	switch {
	case err != nil && isWatch && g.isRetired():
		return w.RoundTrip(req) // its connection was closed before the watch had begun
	case err != nil:
		if !isWatch {
			g.end()
		}
		// Who gives up waiting has not heard; who was told to stop has nothing to say about the server.
		if !errors.Is(req.Context().Err(), context.Canceled) && !g.isRetired() {
			w.health.failed()
		}
		return resp, err
	case resp.StatusCode == http.StatusUnauthorized:
		w.health.failed()
	case resp.StatusCode < http.StatusInternalServerError:
		w.health.worked()
	}
	if isWatch {
		resp.Body = &watchBody{ReadCloser: resp.Body, health: w.health, generation: g}
	} else {
		resp.Body = &countedBody{ReadCloser: resp.Body, end: sync.OnceFunc(g.end)}
	}
	return resp, nil
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

// redial closes the connections, so that what is sent next makes a new one. Requests under way fail, and watches go on
// from where they were.
func (w *wire) redial() {
	if g := w.current.Load(); g.dialer != nil {
		g.dialer.CloseAll()
	}
}

// close closes all connections. Nothing may be sent any more.
func (w *wire) close() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	w.current.Load().retire(ended)
}

func newGeneration(cfg *rest.Config) (*generation, error) {
	config, err := cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	g := &generation{idle: make(chan struct{})}
	base := config.Transport
	if base == nil {
		if base, g.dialer, err = newTransport(config); err != nil {
			return nil, err
		}
	}
	if g.RoundTripper, err = transport.HTTPWrappersForConfig(config, base); err != nil {
		return nil, err
	}
	if cfg.ExecProvider != nil || cfg.AuthProvider != nil {
		g.RoundTripper = interruptible{g.RoundTripper}
	}
	return g, nil
}

// interruptible lets requests end with their context while a credential plugin runs: client-go does not end it, and one
// that hangs would hold the request, and with it the member's removal, for ever. What waits for the plugin then ends
// with the plugin.
type interruptible struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (i interruptible) RoundTrip(req *http.Request) (*http.Response, error) {
	type answer struct {
		resp *http.Response
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		resp, err := i.RoundTripper.RoundTrip(req) //nolint:bodyclose // whoever gets the answer closes it
		answers <- answer{resp, err}
	}()
	select {
	case a := <-answers:
		return a.resp, a.err
	case <-req.Context().Done():
		go func() {
			if a := <-answers; a.err == nil {
				_ = a.resp.Body.Close()
			}
		}()
		return nil, fmt.Errorf("waiting for the answer, or for a credential plugin: %w", context.Cause(req.Context()))
	}
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (i interruptible) WrappedRoundTripper() http.RoundTripper { return i.RoundTripper }

const (
	dialTimeout      = 10 * time.Second
	keepAlive        = 30 * time.Second
	handshakeTimeout = 10 * time.Second
)

// newTransport returns a transport with the HTTP/2 settings that client-go uses, among them pings, which end connections
// that have died silently.
func newTransport(config *transport.Config) (*http.Transport, *connrotation.Dialer, error) {
	tlsConfig, err := transport.TLSConfigFor(config)
	if err != nil {
		return nil, nil, err
	}
	dial := (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	if config.DialHolder != nil {
		dial = config.DialHolder.Dial
	}
	proxy := http.ProxyFromEnvironment
	if config.Proxy != nil {
		proxy = config.Proxy
	}
	dialer := connrotation.NewDialer(dial)
	return utilnet.SetTransportDefaults(&http.Transport{
		Proxy: proxy, DialContext: dialer.DialContext, TLSClientConfig: tlsConfig, TLSHandshakeTimeout: handshakeTimeout,
		DisableCompression: config.DisableCompression,
	}), dialer, nil
}

// begin notes a request, unless the generation is retired.
func (g *generation) begin(isWatch bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.retired {
		return false
	}
	if !isWatch {
		g.ordinary++
	}
	return true
}

func (g *generation) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ordinary--
	if g.retired && g.ordinary == 0 {
		close(g.idle)
	}
}

func (g *generation) isRetired() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.retired
}

// retire closes the connections once no ordinary request is under way, or ctx ends. Watches end then. It is called once.
func (g *generation) retire(ctx context.Context) {
	g.mu.Lock()
	g.retired = true
	if g.ordinary == 0 {
		close(g.idle)
	}
	g.mu.Unlock()
	select {
	case <-g.idle:
	case <-ctx.Done():
	}
	if g.dialer != nil {
		g.dialer.CloseAll()
	}
	utilnet.CloseIdleConnectionsFor(g.RoundTripper)
}

// countedBody is the body of an ordinary response: the request is under way until it is closed.
type countedBody struct {
	io.ReadCloser
	end func()
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
}

// Read implements io.Reader.
func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.health.heardEvent()
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
