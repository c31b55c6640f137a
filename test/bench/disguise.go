package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

// disguise makes one API server many clusters: each address of 127.0.0.0/8 is one, in which a namespace of the server is the tenant's.
// Names and UIDs of clusters are as long as those that they stand for, so that nothing but them changes in what passes.
type disguise struct {
	server    *http.Server
	port      string
	authority []byte
	upstream  *url.URL
	transport http.RoundTripper
	identity  string // the UID of kube-system in the server

	writes atomic.Int64 // requests that change something, but for Leases
}

// disguised is the tenant's namespace as programs see it, and inServer as the server has it for a member.
const disguised = "tenant-0000"

func inServer(member int) string { return fmt.Sprintf("tenant-%04d", member+1) }

// hubMember is the cluster in which nothing but its UID is another.
const hubMember = -1

// identityOf is the UID of a cluster.
func (d *disguise) identityOf(member int) string {
	return d.identity[:len(d.identity)-4] + fmt.Sprintf("%04x", 0xa000+member)
}

func newDisguise(cfg *rest.Config, identity string) (*disguise, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.DisableCompression = true // what is compressed cannot be changed
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	d := &disguise{transport: transport, identity: identity}
	if d.upstream, err = url.Parse(cfg.Host); err != nil {
		return nil, err
	}
	var key []byte
	if d.authority, key, err = certutil.GenerateSelfSignedCertKey("localhost", nil, nil); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(d.authority, key)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "0.0.0.0:0") //nolint:gosec,noctx // of any address of this machine, until the benchmark ends
	if err != nil {
		return nil, err
	}
	if _, d.port, err = net.SplitHostPort(listener.Addr().String()); err != nil {
		return nil, err
	}
	d.server = &http.Server{Handler: d.proxy(), TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}} //nolint:gosec // its callers are the benchmark's
	go func() { _ = d.server.ServeTLS(listener, "", "") }()                                                                                  // until it is closed
	return d, nil
}

func (d *disguise) close() error { return d.server.Close() }

// config is the way to a member.
func (d *disguise) config(member int) *rest.Config {
	i := member + 1
	return &rest.Config{
		Host: fmt.Sprintf("https://127.1.%d.%d:%s", i/250, 1+i%250, d.port), BearerToken: "any",
		TLSClientConfig: rest.TLSClientConfig{ServerName: "localhost", CAData: d.authority},
	}
}

// memberOf returns which member is asked at an address.
func memberOf(address net.Addr) (member int) {
	ip := address.(*net.TCPAddr).IP.To4() //nolint:forcetypeassert // the listener is one of TCP
	return int(ip[2])*250 + int(ip[3]) - 2
}

func (d *disguise) proxy() http.Handler {
	return &httputil.ReverseProxy{
		Transport: d.transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			member := memberOf(r.In.Context().Value(http.LocalAddrContextKey).(net.Addr))      //nolint:forcetypeassert // as net/http says
			if r.In.Method != http.MethodGet && !strings.Contains(r.In.URL.Path, "/leases/") { // by which replicas tell that they live
				d.writes.Add(1)
			}
			r.SetURL(d.upstream)
			r.Out.Header.Del("Authorization")
			r.Out.Header.Del("Accept-Encoding")
			if member == hubMember {
				return
			}
			change := func(text string) string { return strings.ReplaceAll(text, disguised, inServer(member)) }
			r.Out.URL.Path, r.Out.URL.RawPath, r.Out.URL.RawQuery = change(within(r.In)), "", change(r.Out.URL.RawQuery)
			if r.Out.Body != nil {
				r.Out.Body = replaced(r.Out.Body, disguised, inServer(member))
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			member := memberOf(resp.Request.Context().Value(http.LocalAddrContextKey).(net.Addr)) //nolint:forcetypeassert // as above
			resp.Body = replaced(resp.Body, d.identity, d.identityOf(member))
			if member != hubMember {
				resp.Body = replaced(resp.Body, inServer(member), disguised)
			}
			return nil
		},
	}
}

// within is the path of a request, which asks for the tenant's objects in place of those of all namespaces.
func within(req *http.Request) string {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	isCore, isOther := len(parts) == 3 && parts[0] == "api", len(parts) == 4 && parts[0] == "apis"
	if req.Method != http.MethodGet || !isCore && !isOther || parts[len(parts)-1] == "namespaces" {
		return req.URL.Path
	}
	return "/" + strings.Join(slices.Insert(parts, len(parts)-1, "namespaces", disguised), "/")
}

// replaced reads a text in place of another of the same length.
func replaced(body io.ReadCloser, old, with string) io.ReadCloser {
	return &replacing{ReadCloser: body, old: []byte(old), with: []byte(with)}
}

type replacing struct {
	io.ReadCloser

	old, with []byte
	ready     []byte // to be read
	held      []byte // may be the beginning of the text
	err       error
}

// Read implements io.Reader.
func (r *replacing) Read(p []byte) (int, error) {
	for len(r.ready) == 0 && r.err == nil {
		chunk := make([]byte, 32<<10)
		n, err := r.ReadCloser.Read(chunk)
		all := bytes.ReplaceAll(append(r.held, chunk[:n]...), r.old, r.with)
		keep := 0
		if err == nil {
			keep = r.begun(all)
		}
		r.ready, r.held, r.err = all[:len(all)-keep], bytes.Clone(all[len(all)-keep:]), err
	}
	n := copy(p, r.ready)
	if r.ready = r.ready[n:]; len(r.ready) > 0 || n > 0 && r.err == nil {
		return n, nil
	}
	return n, r.err
}

// begun is how much of the text the end of another one has.
func (r *replacing) begun(all []byte) int {
	for n := min(len(all), len(r.old)-1); n > 0; n-- {
		if bytes.HasSuffix(all, r.old[:n]) {
			return n
		}
	}
	return 0
}
