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
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// proxy passes requests on to the control plane, and takes notes.
func (a *Account) proxy(t *testing.T, cp *mctest.ControlPlane) *httptest.Server {
	t.Helper()
	config := cp.Config()
	through := passOn(t, &rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}})
	through.ModifyResponse = a.answered
	return serve(t, func(w http.ResponseWriter, req *http.Request) {
		if a.note(req) {
			through.ServeHTTP(w, req)
		} else {
			doNotStream(w)
		}
	})
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

// note notes what a request asks for, and reports whether it is passed on. The first of its kind that asks for a list as a
// stream is not.
func (a *Account) note(req *http.Request) (pass bool) {
	r, ok := rightOf(req)
	if !ok {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known := slices.Contains(a.asked, r)
	if !known {
		a.asked = append(a.asked, r)
	}
	return known || !req.URL.Query().Has("sendInitialEvents")
}

// doNotStream answers as an API server that knows no streams of lists.
func doNotStream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnprocessableEntity)
	_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,`+
		`"message":"sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"}`)
}

// answered notes what was refused. It lets the events of a watch be held.
func (a *Account) answered(resp *http.Response) error {
	r, ok := rightOf(resp.Request)
	a.judged(r, ok, resp.StatusCode)
	if ok && r.verb == "watch" {
		resp.Body = &events{ReadCloser: resp.Body, done: resp.Request.Context().Done(), held: func() <-chan struct{} {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.held[r.resource]
		}}
	}
	return nil
}

// judged notes what was refused, and what was created by applying. What is granted later was not known to the API server yet: it hears of new roles a moment after
// they were created.
func (a *Account) judged(r right, ok bool, status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case ok && status == http.StatusForbidden:
		a.refused = append(a.refused, r)
	case ok && status == http.StatusCreated && r.verb == patch: // to apply what is absent takes the right to create it, too
		created := r
		created.verb, created.name = "create", ""
		if !slices.Contains(a.asked, created) {
			a.asked = append(a.asked, created)
		}
		fallthrough
	case ok && status < http.StatusBadRequest:
		a.refused = slices.DeleteFunc(a.refused, func(before right) bool { return before == r })
	}
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
