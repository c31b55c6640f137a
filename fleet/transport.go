package fleet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// newHTTPClient returns a client with connections of its own. client-go's would share them among all members whose TLS
// settings are equal, and keep them for the life of the process.
func newHTTPClient(cfg *rest.Config, health *health) (*http.Client, error) {
	config, err := cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	base := config.Transport
	if base == nil {
		if base, err = newTransport(config); err != nil {
			return nil, err
		}
	}
	wrapped, err := transport.HTTPWrappersForConfig(config, base)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &listening{RoundTripper: wrapped, health: health}, Timeout: cfg.Timeout}, nil
}

const (
	dialTimeout      = 10 * time.Second
	keepAlive        = 30 * time.Second
	handshakeTimeout = 10 * time.Second
)

// newTransport returns a transport with the HTTP/2 settings that client-go uses, among them pings, which end connections
// that have died silently.
func newTransport(config *transport.Config) (*http.Transport, error) {
	tlsConfig, err := transport.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	dial := (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	if config.DialHolder != nil {
		dial = config.DialHolder.Dial
	}
	proxy := http.ProxyFromEnvironment
	if config.Proxy != nil {
		proxy = config.Proxy
	}
	return utilnet.SetTransportDefaults(&http.Transport{
		Proxy: proxy, DialContext: dial, TLSClientConfig: tlsConfig, TLSHandshakeTimeout: handshakeTimeout,
		DisableCompression: config.DisableCompression,
	}), nil
}

// listening is a round tripper that tells health what it hears.
type listening struct {
	http.RoundTripper
	health *health
}

// RoundTrip implements http.RoundTripper.
func (l *listening) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(req)
	switch {
	case err != nil:
		// Who gives up waiting has not heard; who was told to stop has nothing to say about the server.
		if !errors.Is(req.Context().Err(), context.Canceled) {
			l.health.failed()
		}
	case resp.StatusCode == http.StatusUnauthorized:
		l.health.failed()
	case resp.StatusCode < http.StatusInternalServerError:
		l.health.worked()
		if req.URL.Query().Has("watch") {
			resp.Body = &listeningBody{ReadCloser: resp.Body, health: l.health}
		}
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport beneath, to close its connections.
func (l *listening) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

var _ utilnet.RoundTripperWrapper = (*listening)(nil)

// listeningBody is the body of a watch: each event proves health, and its end casts doubt on it, unless the server
// ended the watch in due form.
type listeningBody struct {
	io.ReadCloser
	health *health
}

func (b *listeningBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.health.worked()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.health.failed()
	}
	return n, err
}
