package fleet

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"

	"github.com/fleet-runtime/fleet-runtime/internal/credplugin"
	"github.com/fleet-runtime/fleet-runtime/internal/gate"
)

// generation is the wire with one set of credentials: client-go's transport, with connections of its own that were made
// and authenticated with them.
type generation struct {
	http.RoundTripper
	dialer *connrotation.Dialer      // nil where the config brings its own transport
	until  atomic.Pointer[time.Time] // when the last request that has passed a gate has had its time, nil where members are not shared
	heard  atomic.Int64              // when bytes last arrived, in nanoseconds since 1970
	files  files                     // the credentials that were read from files

	mu       sync.Mutex // guards what follows
	retired  bool
	ordinary int           // requests under way that are no watches
	passed   []*gate.Gate  // by requests under way that may change something
	idle     chan struct{} // closed when retired and no such request is left
}

const (
	dialTimeout = 10 * time.Second
	keepAlive   = 30 * time.Second
)

// newGeneration reads the files that cfg names, and connects to nothing. plugin is where the member waits for programs
// that provide credentials.
func newGeneration(cfg *rest.Config, plugin *credplugin.Plugin) (*generation, error) {
	cfg, read, err := inlined(cfg)
	if err != nil {
		return nil, err
	}
	config, err := cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	g := &generation{files: read, idle: make(chan struct{})}
	if config.Transport == nil {
		g.dialOwn(config)
		if cfg.Dial == nil { // the connections of other dialers may know no deadlines
			config.WrapTransport = transport.Wrappers(withoutHandshakeTimeout, config.WrapTransport)
		}
		if err := parseCertificateLate(&config.TLS); err != nil {
			return nil, err
		}
	}
	if g.RoundTripper, err = transport.New(config); err != nil {
		return nil, err
	}
	g.RoundTripper = plugin.Guard(cfg, g.RoundTripper)
	return g, nil
}

// admit notes until when a request may change something.
func (g *generation) admit(until time.Time) {
	for {
		before := g.until.Load()
		if before != nil && !until.After(*before) || g.until.CompareAndSwap(before, &until) {
			return
		}
	}
}

// pass notes the gates, which may be nil, of a request that may change something, until leave is called.
func (g *generation) pass(gates ...*gate.Gate) (leave func()) {
	gates = slices.DeleteFunc(gates, func(passed *gate.Gate) bool { return passed == nil })
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passed = append(g.passed, gates...)
	return sync.OnceFunc(func() { // whoever reads an answer may close it twice
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, passed := range gates {
			i := slices.Index(g.passed, passed)
			g.passed = slices.Delete(g.passed, i, i+1)
		}
	})
}

// changing returns the gates that requests under way have passed which may change something.
func (g *generation) changing() []*gate.Gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.passed)
}

// late returns an error if what is under way has passed a gate that is closed, and has had its time, by the monotonic clock or by the wall clock.
func (g *generation) late() error {
	now, until := time.Now(), g.until.Load()
	if until != nil && now.Before(*until) && now.Round(0).Before(until.Round(0)) {
		return nil
	}
	for _, passed := range g.changing() {
		if _, err := passed.Check(); err != nil {
			return err
		}
	}
	return nil
}

// dialOwn gives the transport connections of its own. client-go would share them among all members whose TLS settings
// are equal, and keep them for the life of the process, except where there is a function for the proxy.
func (g *generation) dialOwn(config *transport.Config) {
	dial := (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	if config.DialHolder != nil {
		dial = config.DialHolder.Dial
	}
	g.dialer = connrotation.NewDialer(dial)
	config.DialHolder = &transport.DialHolder{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := g.dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newLine(ctx, conn, g), nil
	}}
	if config.Proxy == nil {
		config.Proxy = http.ProxyFromEnvironment
	}
	config.WrapTransport = transport.Wrappers(withoutHeaderTables, config.WrapTransport)
}

// withoutHeaderTables stops HTTP/2 connections from keeping headers that may come again. These tables take 6 KB of each
// member, and most of what is in them does not come again: the paths of requests, and the times and identifiers of answers.
// They would save some hundred bytes in each request and answer of a member that is busy.
func withoutHeaderTables(rt http.RoundTripper) http.RoundTripper {
	const none = 1 // of a byte; zero stands for the default
	if t, ok := rt.(*http.Transport); ok {
		t.HTTP2 = &http.HTTP2Config{MaxDecoderHeaderTableSize: none, MaxEncoderHeaderTableSize: none}
	}
	return rt
}

// withoutHandshakeTimeout leaves it to each line to say how long the TLS handshake may take.
func withoutHandshakeTimeout(rt http.RoundTripper) http.RoundTripper {
	if t, ok := rt.(*http.Transport); ok {
		t.TLSHandshakeTimeout = 0
	}
	return rt
}

// parseCertificateLate leaves it to each handshake to parse the client certificate. There are few, and client-go would keep
// 3 KB that are of no use in between. It returns an error if there is none in the data.
func parseCertificateLate(config *transport.TLSConfig) error {
	cert, key := config.CertData, config.KeyData
	if len(cert) == 0 || len(key) == 0 {
		return nil
	}
	parsed, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	var first atomic.Pointer[tls.Certificate]
	first.Store(&parsed)
	config.CertData, config.KeyData = nil, nil
	config.GetCertHolder = &transport.GetCertHolder{GetCert: func() (*tls.Certificate, error) {
		if parsed := first.Swap(nil); parsed != nil {
			return parsed, nil
		}
		parsed, err := tls.X509KeyPair(cert, key)
		return &parsed, err
	}}
	return nil
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

// retire closes the connections once no ordinary request is under way, or, after a grace that ends with life, none that may change the
// member. Watches end then. Retiring it again waits for the same.
func (g *generation) retire(life context.Context) {
	g.mu.Lock()
	if !g.retired && g.ordinary == 0 {
		close(g.idle)
	}
	g.retired = true
	g.mu.Unlock()
	grace, cancel := context.WithTimeout(life, rotationGrace)
	defer cancel()
	select {
	case <-g.idle:
	case <-grace.Done():
		g.awaitChanges()
	}
	g.closeAll()
	utilnet.CloseIdleConnectionsFor(g.RoundTripper)
}

// awaitChanges waits until what is under way that may change the member was answered, or has had its time.
func (g *generation) awaitChanges() {
	until := g.until.Load()
	if until == nil || len(g.changing()) == 0 {
		return
	}
	select {
	case <-g.idle:
	case <-time.After(time.Until(*until)):
	}
}

// finish retires a generation without a grace.
func (g *generation) finish() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	g.retire(ended)
}

func (g *generation) closeAll() {
	if g.dialer != nil {
		g.dialer.CloseAll()
	}
}
