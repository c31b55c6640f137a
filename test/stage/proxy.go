package stage

import (
	"context"
	"encoding/pem"
	"io"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// proxy passes requests on to the control plane.
func (a *Account) proxy(t *testing.T, cp *mctest.ControlPlane) *httptest.Server {
	t.Helper()
	config := cp.Config()
	through := passOn(t, &rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}})
	through.ModifyResponse = a.answered
	return serve(t, through.ServeHTTP)
}

// passOn passes requests on to an API server. When that cannot be reached, connections break.
func passOn(t *testing.T, config *rest.Config) *httputil.ReverseProxy {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      quiet,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

var quiet = stdlog.New(io.Discard, "", 0)

// serve serves by HTTPS until the test ends.
func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = quiet
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// configFor is the way to reach a server, without credentials.
func configFor(server *httptest.Server) *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// answered lets the events of a watch be held.
func (a *Account) answered(resp *http.Response) error {
	if resource := watched(resp.Request); resource != "" {
		resp.Body = &events{ReadCloser: resp.Body, done: resp.Request.Context().Done(), held: func() <-chan struct{} {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.held[resource]
		}}
	}
	return nil
}

// watched returns the resource that a request watches, and nothing if it does not watch.
func watched(req *http.Request) string {
	if req.URL.Query().Get("watch") == "" {
		return ""
	}
	return path.Base(req.URL.Path)
}

// events are those of a watch.
type events struct {
	io.ReadCloser
	done <-chan struct{}        // the watch has ended
	held func() <-chan struct{} // until when they are held, nil if they never were
}

// Read implements io.Reader.
func (e *events) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if release := e.held(); release != nil {
		select {
		case <-release:
		case <-e.done:
			return 0, context.Canceled
		}
	}
	return n, err
}
