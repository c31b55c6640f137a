package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// gateway stands in front of control planes, as a load balancer or a gateway for many clusters does: clients see one
// address, one certificate and one set of credentials, whichever cluster is behind.
type gateway struct {
	server *httptest.Server
	ca     []byte
	behind atomic.Pointer[backend] // of new connections
	handle atomic.Pointer[http.HandlerFunc]
}

// backend is what connections lead to that were made at the same time.
type backend struct {
	atomic.Pointer[httputil.ReverseProxy]
}

type backendKey struct{}

// gatewayToken is what clients show to a gateway.
const gatewayToken = "token-of-the-gateway"

// newGateway starts a gateway with the certificate of an authority, at an address of its own.
func newGateway(t *testing.T, a *authority, cp *mctest.ControlPlane) *gateway {
	t.Helper()
	g := &gateway{ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})}
	g.behind.Store(&backend{})
	g.lead(t, cp)
	g.answer(g.serve)
	g.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*g.handle.Load())(w, r) }))
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", mctest.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = g.server.Listener.Close()
	g.server.Listener = listener
	g.server.EnableHTTP2 = true
	g.server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, backendKey{}, g.behind.Load())
	}
	g.server.TLS = &tls.Config{Certificates: []tls.Certificate{a.serving(t, "gateway.test")}, MinVersion: tls.VersionTLS12}
	g.server.StartTLS()
	t.Cleanup(func() {
		g.server.CloseClientConnections()
		g.server.Close()
	})
	return g
}

// answer makes the gateway answer by itself. serve is what it does at first.
func (g *gateway) answer(handle http.HandlerFunc) { g.handle.Store(&handle) }

func (g *gateway) serve(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+gatewayToken {
		http.Error(w, "credentials are missing", http.StatusUnauthorized)
		return
	}
	r.Header.Del("Authorization")
	to, _ := r.Context().Value(backendKey{}).(*backend)
	to.Load().ServeHTTP(w, r)
}

// lead has what comes from now on go to a control plane, whose administrator the gateway is, also on connections that
// there are.
func (g *gateway) lead(t *testing.T, cp *mctest.ControlPlane) {
	t.Helper()
	transport, err := rest.TransportFor(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(cp.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	if to.Scheme == "" {
		to.Scheme = "https"
	}
	g.behind.Load().Store(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			http.Error(w, "nothing answers behind the gateway", http.StatusBadGateway)
		},
	})
}

// failOver leads new connections to another control plane, and breaks those that there are.
func (g *gateway) failOver(t *testing.T, cp *mctest.ControlPlane) {
	t.Helper()
	g.behind.Store(&backend{})
	g.lead(t, cp)
	g.server.CloseClientConnections()
}

// config is the way to the gateway.
func (g *gateway) config() *rest.Config {
	return &rest.Config{
		Host: g.server.URL, BearerToken: gatewayToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: g.ca, ServerName: "gateway.test"},
	}
}

// serving returns a certificate for a server.
func (a *authority) serving(t *testing.T, host string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// newConnectProxy starts an HTTP proxy that connects to the given address, whatever it is asked for.
func newConnectProxy(t *testing.T, to string) *url.URL {
	t.Helper()
	var tunnels sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // t.Context ends before clean-up
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
			return
		}
		far, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", to)
		if err != nil {
			http.Error(w, "cannot connect", http.StatusBadGateway)
			return
		}
		near, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			_ = far.Close()
			return
		}
		_, _ = io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n")
		stop := context.AfterFunc(ctx, func() { _, _ = near.Close(), far.Close() })
		tunnels.Go(func() { defer stop(); _, _ = io.Copy(far, near); _ = far.Close() })
		tunnels.Go(func() { _, _ = io.Copy(near, far); _ = near.Close() })
	}))
	t.Cleanup(func() {
		cancel()
		server.Close()
		tunnels.Wait()
	})
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return address
}
