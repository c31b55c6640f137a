package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/internal/credplugin"
	"github.com/fleet-runtime/fleet-runtime/internal/pulse"
)

// newTestGeneration returns the way to a server of a test.
func newTestGeneration(t *testing.T, server *httptest.Server) *generation {
	t.Helper()
	g, err := newGeneration(&rest.Config{Host: server.URL}, &credplugin.Plugin{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.finish)
	return g
}

// newTestWire returns a wire to a server, for which identify says which cluster it is.
func newTestWire(t *testing.T, server *httptest.Server, identify func() (string, error)) *wire {
	t.Helper()
	w := &wire{
		most:  1 << 20,
		ready: func(context.Context, http.RoundTripper) error { return nil },
		identify: func(ctx context.Context, rt http.RoundTripper) (string, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/identity", nil)
			if err != nil {
				return "", err
			}
			resp, err := rt.RoundTrip(req)
			if err != nil {
				return "", err
			}
			_ = resp.Body.Close()
			return identify()
		},
	}
	w.health = newHealth(Options{}.withDefaults().Health, w, func(State, error) {}, func() {})
	w.current.Store(newTestGeneration(t, server))
	return w
}

func get(t *testing.T, w *wire, url string) error {
	t.Helper()
	resp, err := (&http.Client{Transport: w}).Get(url) //nolint:noctx // the server is of the test
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// asked is a server that counts what it is asked, but for the identity.
func asked(t *testing.T) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/identity" {
			n.Add(1)
		}
	}))
	t.Cleanup(server.Close)
	return server, &n
}

// TestEachConnectionIsProvedBeforeItIsUsed: what is sent on one that leads to another cluster does not arrive.
func TestEachConnectionIsProvedBeforeItIsUsed(t *testing.T) {
	server, n := asked(t)
	var now atomic.Value
	now.Store("first")
	w := newTestWire(t, server, func() (string, error) { return now.Load().(string), nil })
	if err := get(t, w, server.URL); err != nil {
		t.Fatal(err)
	}
	now.Store("second")
	if err := get(t, w, server.URL); err != nil {
		t.Errorf("a connection that was proved is asked again: %v", err)
	}
	before := n.Load()
	w.redial()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if err := get(t, w, server.URL); !errors.Is(err, ErrAnotherCluster) {
				t.Errorf("a request to another cluster: %v, want ErrAnotherCluster", err)
			}
		})
	}
	wg.Wait()
	if arrived := n.Load() - before; arrived > 0 {
		t.Errorf("%d requests arrived at the other cluster", arrived)
	}
	now.Store("first")
	if err := get(t, w, server.URL); err != nil {
		t.Errorf("the member's cluster is back, and a request fails: %v", err)
	}
}

type connKey struct{}

// TestAConnectionIsProvedByItsOwnAnswer: each connection leads to another cluster in turn, also where the question finds
// no place on the connection that it is about.
func TestAConnectionIsProvedByItsOwnAnswer(t *testing.T) {
	type way struct {
		http2    bool
		clusters int64
	}
	for _, way := range []way{{false, 1}, {true, 1}, {false, 2}, {true, 2}} {
		t.Run(fmt.Sprintf("%+v", way), func(t *testing.T) {
			var conns, strayed atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				cluster := r.Context().Value(connKey{}).(int64) % way.clusters //nolint:forcetypeassert // ConnContext has set it
				if r.URL.Path != "/identity" && cluster != 0 {
					strayed.Add(1)
				}
				w.Header().Set("Cluster", strconv.FormatInt(cluster, 10))
			}))
			server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
				return context.WithValue(ctx, connKey{}, conns.Add(1)-1)
			}
			server.EnableHTTP2 = way.http2
			server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 5}
			server.StartTLS()
			t.Cleanup(server.Close)
			w := newTestWire(t, server, nil)
			w.identify = func(ctx context.Context, rt http.RoundTripper) (string, error) {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/identity", nil)
				if err != nil {
					return "", err
				}
				resp, err := rt.RoundTrip(req)
				if err != nil {
					return "", err
				}
				return resp.Header.Get("Cluster"), resp.Body.Close()
			}
			g, err := newGeneration(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, &credplugin.Plugin{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(g.finish)
			w.current.Store(g)
			w.identified, w.identity = true, "0"
			var wg sync.WaitGroup
			for range 60 {
				wg.Go(func() {
					resp, err := (&http.Client{Transport: w}).Post(server.URL, "text/plain", strings.NewReader("x")) //nolint:noctx // the server is of the test
					switch {
					case err == nil:
						_ = resp.Body.Close()
					case way.clusters == 1 || !errors.Is(err, ErrAnotherCluster):
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if strayed.Load() > 0 {
				t.Errorf("%d requests arrived at the other cluster", strayed.Load())
			}
		})
	}
}

// TestARequestThatEndsHarmsNoOtherOnItsConnection: it was waiting until it is proved where that leads.
func TestARequestThatEndsHarmsNoOtherOnItsConnection(t *testing.T) {
	var arrived atomic.Int64
	asked, answer := make(chan struct{}, 10), make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ended":
			arrived.Add(1)
		case "/identity":
			asked <- struct{}{}
			<-answer
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	w := newTestWire(t, server, func() (string, error) { return "a", nil })
	g, err := newGeneration(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, &credplugin.Plugin{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.finish)
	w.current.Store(g)
	patient := make(chan error, 1)
	go func() { patient <- get(t, w, server.URL) }()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/ended", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.RoundTrip(req); !errors.Is(err, context.DeadlineExceeded) { //nolint:bodyclose // it fails
		t.Errorf("the request that ends: %v, want its deadline", err)
	}
	close(answer)
	if err := <-patient; err != nil {
		t.Errorf("the request that waits: %v", err)
	}
	if arrived.Load() > 0 {
		t.Error("the request that has ended was sent")
	}
}

// TestAConnectionThatCannotBeProvedIsNotUsed: the server does not say which cluster it is, for now.
func TestAConnectionThatCannotBeProvedIsNotUsed(t *testing.T) {
	server, n := asked(t)
	busy := errors.New("busy")
	answers := []error{busy, nil}
	w := newTestWire(t, server, func() (string, error) {
		err := answers[0]
		answers = answers[1:]
		return "a", err
	})
	if err := get(t, w, server.URL); !errors.Is(err, busy) || n.Load() > 0 {
		t.Errorf("the request ended with %v, and %d arrived, want the reason and none", err, n.Load())
	}
	if err := get(t, w, server.URL); err != nil {
		t.Error(err)
	}
}

// TestAWireThatIsClosedTakesNoNewCredentials: an engagement ends while its credentials are being replaced.
func TestAWireThatIsClosedTakesNoNewCredentials(t *testing.T) {
	server, _ := asked(t)
	w := newTestWire(t, server, func() (string, error) { return "a", nil })
	first := w.current.Load()
	before := w.replace(newTestGeneration(t, server))
	if before != first {
		t.Fatal("the wire does not have the new credentials")
	}
	w.close()
	before.finish() // as rotated does; it may be while close runs, or twice
	before.finish()
	if w.replace(newTestGeneration(t, server)) != nil {
		t.Error("a closed wire took credentials")
	}
	if err := get(t, w, server.URL); !errors.Is(err, errClosed) {
		t.Errorf("a request on a closed wire: %v, want errClosed", err)
	}
}

// TestALineIsFoundBelowTLS: also below that of a proxy.
func TestALineIsFoundBelowTLS(t *testing.T) {
	near, far := net.Pipe()
	defer func() { _, _ = near.Close(), far.Close() }()
	l := newLine(t.Context(), near, &generation{})
	for name, conn := range map[string]net.Conn{"plain": l, "TLS": wrapped{l}, "TLS in TLS": wrapped{wrapped{l}}} {
		if lineOf(conn) != l {
			t.Errorf("%s: the line is not found", name)
		}
	}
	if lineOf(far) != nil || lineOf(nil) != nil {
		t.Error("a line is found where there is none")
	}
}

// wrapped is a connection over another one.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

// TestAWatchIsBoundedWhateverItIsAnsweredWith: client-go reads an error to its end, and what does not say its type as JSON.
func TestAWatchIsBoundedWhateverItIsAnsweredWith(t *testing.T) {
	cases := map[string]struct {
		status int
		kind   []string
		send   string
	}{
		"an error":               {http.StatusInternalServerError, []string{"text/plain"}, "x"},
		"an error in many parts": {http.StatusForbidden, []string{"application/json"}, "{}"},
		"no type":                {http.StatusOK, nil, " "},
		"a type in capitals":     {http.StatusOK, []string{"APPLICATION/JSON"}, " "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = tc.kind
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, strings.Repeat(tc.send, 2<<20))
			}))
			t.Cleanup(server.Close)
			w := newTestWire(t, server, nil)
			w.identify = nil
			resp, err := (&http.Client{Transport: w}).Get(server.URL + "?watch=true") //nolint:noctx // the server is of the test
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			if n, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, errTooLarge) {
				t.Errorf("after %d bytes: %v, want errTooLarge", n, err)
			}
		})
	}
}

// TestAConnectionIsProvedOnce: however many requests it has, and one whose proof failed is closed.
func TestAConnectionIsProvedOnce(t *testing.T) {
	var dials atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.EnableHTTP2 = true
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			dials.Add(1)
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	proofs, now := 0, "a"
	w := newTestWire(t, server, func() (string, error) { proofs++; return now, nil })
	g, err := newGeneration(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, &credplugin.Plugin{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.finish)
	w.current.Store(g)
	for range 10 {
		if err := get(t, w, server.URL); err != nil {
			t.Fatal(err)
		}
	}
	if proofs != 1 || dials.Load() != 1 {
		t.Errorf("%d proofs of %d connections for ten requests, want one of one", proofs, dials.Load())
	}
	now = "b"
	w.redial()
	// Each leads to another cluster, and is closed for that. Until the transport knows, it may be handed out again.
	for range 2 {
		before := dials.Load()
		for tries := 0; dials.Load() == before; tries++ {
			if tries == 1000 {
				t.Fatal("a connection to another cluster is kept")
			}
			if err := get(t, w, server.URL); !errors.Is(err, ErrAnotherCluster) && !errors.Is(err, net.ErrClosed) {
				t.Fatalf("a request to another cluster: %v", err)
			}
		}
	}
}

// watchedSeat tells a test when a reconcile yields and reclaims.
type watchedSeat struct{ yielded, reclaimed chan string }

func (s watchedSeat) Yield(to string) { s.yielded <- to }
func (s watchedSeat) Reclaim()        { s.reclaimed <- "" }

// TestAReconcileYieldsWhileAMemberIsSilent: before the answer begins, and in the middle of it.
func TestAReconcileYieldsWhileAMemberIsSilent(t *testing.T) {
	goOn := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/identity" {
			return
		}
		<-goOn
		_, _ = io.WriteString(rw, "the beginning")
		_ = http.NewResponseController(rw).Flush()
		<-goOn
	}))
	t.Cleanup(server.Close)
	w := newTestWire(t, server, func() (string, error) { return "it", nil })
	w.name = "m"
	seat := watchedSeat{make(chan string, 100), make(chan string, 100)}
	p := &pulse.Pulse{}
	p.Begin(t.Context(), "m", seat)
	defer p.End()
	done := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(p, http.MethodGet, server.URL+"/object", nil)
		if err != nil {
			done <- err
			return
		}
		resp, err := (&http.Client{Transport: w}).Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		done <- err
	}()
	for range 2 {
		if to := <-seat.yielded; to != "m" {
			t.Errorf("the reconcile yielded to %q, want m", to)
		}
		goOn <- struct{}{}
		<-seat.reclaimed
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestARequestToAMemberThatCannotBeReachedSaysSo: whether its answer has begun or not, when its connection is closed.
func TestARequestToAMemberThatCannotBeReachedSaysSo(t *testing.T) {
	begun := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
		}
		begun <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	for _, path := range []string{"/head", "/body"} {
		w := newTestWire(t, server, nil)
		w.identify = nil
		w.unreachable = func() *StateError { return &StateError{Err: ErrNotReady, Status: Status{Name: "m"}} }
		ended := make(chan error, 1)
		go func() { ended <- get(t, w, server.URL+path) }()
		<-begun
		w.redial()
		var state *StateError
		if err := <-ended; !errors.Is(err, ErrNotReady) || !errors.As(err, &state) || state.Status.Name != "m" {
			t.Errorf("%s: %v, want that the member is not ready", path, err)
		}
		if w.health.exchanges.oldest != nil {
			t.Errorf("%s: the request is still under way", path)
		}
	}
}

// TestARequestIsSentAgainAsItWas, if its body can be had once more.
func TestARequestIsSentAgainAsItWas(t *testing.T) {
	body := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }
	for name, c := range map[string]struct {
		req  http.Request
		want string
		ok   bool
	}{
		"no body":                {http.Request{}, "", true},
		"an empty body":          {http.Request{Body: http.NoBody}, "", true},
		"one that can be had":    {http.Request{Body: http.NoBody, GetBody: body}, "", true},
		"one that is read again": {http.Request{Body: io.NopCloser(strings.NewReader("")), GetBody: body}, "x", true},
		"one that is gone":       {http.Request{Body: io.NopCloser(strings.NewReader(""))}, "", false},
		"one that is lost": {http.Request{
			Body: io.NopCloser(strings.NewReader("")), GetBody: func() (io.ReadCloser, error) { return nil, errNo },
		}, "", false},
	} {
		again, ok := rewind(&c.req)
		got := ""
		if ok && again.Body != nil {
			read, err := io.ReadAll(again.Body)
			if err != nil {
				t.Error(err)
			}
			got = string(read)
		}
		if ok != c.ok || got != c.want {
			t.Errorf("%s: it is sent again: %t, with %q", name, ok, got)
		}
	}
}
