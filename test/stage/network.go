package stage

import (
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// Network is a network between a program and an API server that breaks on demand. It forwards TCP connections as they are.
// What it holds back arrives later, as with packets that are lost and sent again.
type Network struct {
	// Address is where it is entered.
	Address string

	target  atomic.Pointer[string]
	rate    atomic.Int64 // bytes a second towards the client, 0 for no limit
	delay   atomic.Int64 // of what goes towards the client
	passed  atomic.Int64 // bytes towards the client
	running sync.WaitGroup

	mu       sync.Mutex // guards what follows
	listener net.Listener
	links    map[*link]struct{} // connections that follow what is opened and shut
	stranded map[*link]struct{} // connections that pass nothing for ever
	shutUp   bool
	shutDown bool
	ended    bool
}

// link is one connection through a proxy.
type link struct {
	client, server net.Conn
	up, down       gate // towards the server, and back
	done           chan struct{}
	close          func()
}

// gate lets pass or holds back.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while open
}

func newOpenGate() gate {
	open := make(chan struct{})
	close(open)
	return gate{open: open}
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		if shut {
			g.open = make(chan struct{})
		}
	default:
		if !shut {
			close(g.open)
		}
	}
}

// pass waits until the gate is open, and reports false if the link ended before.
func (g *gate) pass(done <-chan struct{}) bool {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
		return true
	case <-done:
		return false
	}
}

// NewNetwork starts a network that leads to an address. It ends with the test.
func NewNetwork(t *testing.T, target string) *Network {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", mctest.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	return NewNetworkOn(t, listener, target)
}

// NewNetworkTo starts a network that leads to a control plane's API server.
func NewNetworkTo(t *testing.T, cp *mctest.ControlPlane) *Network {
	t.Helper()
	return NewNetwork(t, AddressOf(t, cp))
}

// AddressOf returns the address of a control plane's API server.
func AddressOf(t *testing.T, cp *mctest.ControlPlane) string {
	t.Helper()
	server, err := url.Parse(cp.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	return server.Host
}

// NewNetworkOn starts a network that is entered by a listener.
func NewNetworkOn(t *testing.T, listener net.Listener, target string) *Network {
	t.Helper()
	p := &Network{
		Address: listener.Addr().String(), listener: listener,
		links: map[*link]struct{}{}, stranded: map[*link]struct{}{},
	}
	p.target.Store(&target)
	p.running.Go(func() { p.accept(listener) })
	t.Cleanup(p.end)
	return p
}

// Through is the config with the proxy as the server.
func (p *Network) Through(cfg *rest.Config) *rest.Config {
	server, _ := url.Parse(cfg.Host)
	cfg = rest.CopyConfig(cfg)
	cfg.Host = "https://" + p.Address
	cfg.ServerName = server.Hostname() // what the certificate is for
	return cfg
}

// Limit sets the bytes a second towards the client, 0 for no limit.
func (p *Network) Limit(rate int) { p.rate.Store(int64(rate)) }

// Delay delays what goes towards the client, a few kilobytes at a time.
func (p *Network) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Passed returns how many bytes went towards the client.
func (p *Network) Passed() int64 { return p.passed.Load() }

// LeadTo has new connections go to another address, and breaks those that there are.
func (p *Network) LeadTo(target string) {
	p.target.Store(&target)
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

func (p *Network) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // it was closed
		}
		p.running.Go(func() { p.serve(conn) })
	}
}

func (p *Network) serve(conn net.Conn) {
	server, err := (&net.Dialer{Timeout: 10 * time.Second}).Dial("tcp", *p.target.Load())
	if err != nil {
		_ = conn.Close()
		return
	}
	l := &link{client: conn, server: server, up: newOpenGate(), down: newOpenGate(), done: make(chan struct{})}
	l.close = sync.OnceFunc(func() {
		close(l.done)
		_ = conn.Close()
		_ = server.Close()
	})
	if !p.add(l) {
		l.close()
		return
	}
	p.running.Go(func() { l.forward(server, conn, &l.up, func(int) bool { return true }) })
	l.forward(conn, server, &l.down, func(n int) bool { return p.metered(l, n) })
	p.forget(l)
}

// forward copies until one side ends, and ends the other.
func (l *link) forward(dst io.Writer, src io.Reader, g *gate, before func(n int) bool) {
	defer l.close()
	buf := make([]byte, 4<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if !g.pass(l.done) || !before(n) {
				return
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// metered counts, and waits as long as so many bytes take.
func (p *Network) metered(l *link, n int) bool {
	p.passed.Add(int64(n))
	takes := time.Duration(p.delay.Load())
	if rate := p.rate.Load(); rate > 0 {
		takes += time.Duration(n) * time.Second / time.Duration(rate)
	}
	if takes == 0 {
		return true
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}

func (p *Network) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return false
	}
	l.up.set(p.shutUp)
	l.down.set(p.shutDown)
	p.links[l] = struct{}{}
	return true
}

func (p *Network) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	delete(p.stranded, l)
}

// Hold holds back what goes towards the server, what comes back, or both; both false lets all pass again.
func (p *Network) Hold(up, down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shutUp, p.shutDown = up, down
	for l := range p.links {
		l.up.set(up)
		l.down.set(down)
	}
}

// Strand has the connections of now pass nothing any more, as those that a firewall has forgotten. New ones work.
func (p *Network) Strand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.up.set(true)
		l.down.set(true)
		delete(p.links, l)
		p.stranded[l] = struct{}{}
	}
}

// Refuse closes all connections and refuses new ones.
func (p *Network) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	for l := range p.links {
		l.close()
	}
	for l := range p.stranded {
		l.close()
	}
}

// Reopen takes connections again, at the same address.
func (p *Network) Reopen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.ended {
		return nil
	}
	var err error
	if p.listener, err = net.Listen("tcp", p.Address); err != nil { //nolint:noctx // on loopback
		p.listener = nil
		return errors.Join(errors.New("listening again"), err)
	}
	listener := p.listener
	p.running.Go(func() { p.accept(listener) })
	return nil
}

// end closes everything and returns once nothing runs.
func (p *Network) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.Refuse()
	p.running.Wait()
}
