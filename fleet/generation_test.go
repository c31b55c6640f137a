package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"

	"github.com/fleet-runtime/fleet-runtime/internal/credplugin"
	"github.com/fleet-runtime/fleet-runtime/internal/gate"
)

// counting is a server that tells when its last connection is closed. What it answers is up to the test.
type counting struct {
	*httptest.Server
	mu    sync.Mutex
	conns map[net.Conn]struct{}
	none  chan struct{} // has a token when the last connection was closed
}

func newCounting(t *testing.T, answer http.HandlerFunc) *counting {
	t.Helper()
	c := &counting{conns: map[net.Conn]struct{}{}, none: make(chan struct{}, 1)}
	c.Server = httptest.NewUnstartedServer(answer)
	c.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch state {
		case http.StateNew:
			c.conns[conn] = struct{}{}
		case http.StateClosed, http.StateHijacked:
			delete(c.conns, conn)
			if len(c.conns) == 0 {
				wake(c.none)
			}
		case http.StateActive, http.StateIdle:
		}
	}
	c.Start()
	t.Cleanup(c.Close)
	return c
}

// comes waits for something to receive. The time is there to end a test that fails; no test passes because of it.
func comes[T any](t *testing.T, c <-chan T, what string) (got T) {
	t.Helper()
	patience := time.NewTimer(time.Minute)
	defer patience.Stop()
	select {
	case got = <-c:
	case <-patience.C:
		t.Fatalf("still not so: %s", what)
	}
	return got
}

// areClosed waits until no connection is open.
func (c *counting) areClosed(t *testing.T) {
	t.Helper()
	comes(t, c.none, "the connections are closed")
}

func (c *counting) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.conns)
}

// giveUp gives up credentials, which waits for requests that are under way with them; there are none.
func giveUp(t *testing.T, g *generation) {
	t.Helper()
	retired := make(chan struct{})
	go func() {
		defer close(retired)
		g.retire(t.Context())
	}()
	comes(t, retired, "the credentials are given up, although no request is under way")
}

// newPlainWire is a wire to a server whose identity nobody asks for.
func newPlainWire(t *testing.T, server *httptest.Server) *wire {
	t.Helper()
	w := newTestWire(t, server, nil)
	w.identify = nil
	return w
}

// doubted reports whether a request casts doubt on the member, so that it is probed.
func (w *wire) doubted() bool {
	w.health.mu.Lock()
	defer w.health.mu.Unlock()
	return w.health.doubt
}

// TestARequestUnderWayKeepsItsConnectionWhenCredentialsAreReplaced, while others travel with the new ones. Then no
// connection of the old ones is left.
func TestARequestUnderWayKeepsItsConnectionWhenCredentialsAreReplaced(t *testing.T) {
	t.Parallel()
	begun, answer := make(chan struct{}), make(chan struct{})
	old := newCounting(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(begun)
			<-answer
		}
	})
	w := newPlainWire(t, old.Server)
	if err := get(t, w, old.URL+"/quick"); err != nil {
		t.Fatal(err)
	}
	slow, retired := make(chan error, 1), make(chan struct{})
	go func() { slow <- get(t, w, old.URL+"/slow") }()
	<-begun

	next, n := asked(t)
	before := w.replace(newTestGeneration(t, next))
	go func() {
		defer close(retired)
		before.retire(t.Context())
	}()
	if err := get(t, w, next.URL); err != nil || n.Load() != 1 {
		t.Errorf("a request with the new credentials: %v", err)
	}
	if isClosed(retired) || isClosed(before.idle) || old.open() == 0 {
		t.Error("the connection of a request under way is closed")
	}
	close(answer)
	if err := comes(t, slow, "the request under way is answered"); err != nil {
		t.Errorf("the request under way: %v", err)
	}
	comes(t, retired, "the old credentials are given up")
	old.areClosed(t)
	if w.doubted() {
		t.Error("the member is probed for it")
	}
}

// TestTheLastRequestWithOldCredentialsHasItsTime and no more.
func TestTheLastRequestWithOldCredentialsHasItsTime(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	old := newCounting(t, func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	})
	w := newPlainWire(t, old.Server)
	endless := make(chan error, 1)
	go func() { endless <- get(t, w, old.URL) }()
	<-begun
	next, _ := asked(t)
	before := w.replace(newTestGeneration(t, next))
	grace, cancel := context.WithCancel(t.Context())
	cancel()
	before.retire(grace)
	if err := comes(t, endless, "the request has ended"); err == nil {
		t.Error("the request goes on")
	}
	old.areClosed(t)
	if w.doubted() {
		t.Error("the member is probed since a request with old credentials was cut")
	}
}

// TestWhatMayChangeAMemberHasItsTime where members are shared, however short the grace is, and no more.
func TestWhatMayChangeAMemberHasItsTime(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		changing    bool
		takes, want time.Duration
	}{
		"Answered":       {true, time.Second, time.Second},
		"Never answered": {true, time.Hour, time.Minute},
		"Reads":          {false, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := &generation{idle: make(chan struct{})}
				g.begin(false)
				g.admit(time.Now().Add(time.Minute))
				if tc.changing {
					defer g.pass(&gate.Gate{})()
				}
				defer time.AfterFunc(tc.takes, g.end).Stop()
				begun := time.Now()
				g.finish()
				if took := time.Since(begun); took != tc.want {
					t.Errorf("its connections are closed after %s, want %s", took, tc.want)
				}
			})
		})
	}
}

// TestAnIdleConnectionOfOldCredentialsIsClosed, at once, as nothing waits for an answer on it.
func TestAnIdleConnectionOfOldCredentialsIsClosed(t *testing.T) {
	t.Parallel()
	old := newCounting(t, func(http.ResponseWriter, *http.Request) {})
	w := newPlainWire(t, old.Server)
	if err := get(t, w, old.URL); err != nil {
		t.Fatal(err)
	}
	next, _ := asked(t)
	giveUp(t, w.replace(newTestGeneration(t, next)))
	old.areClosed(t)
}

// openWatch starts a watch. What comes of it is read until it ends, and told once it was answered and once it has ended.
func openWatch(t *testing.T, w *wire, url string) (answered, ended <-chan error) {
	t.Helper()
	begin, end := make(chan error, 1), make(chan error, 1)
	go func() {
		resp, err := (&http.Client{Transport: w}).Get(url + "?watch=true") //nolint:noctx // the server is of the test
		begin <- err
		if err != nil {
			return
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		end <- err
	}()
	return begin, end
}

// TestAWatchThatHasNotBegunBeginsWithTheNewCredentials: its connection was closed before it was answered.
func TestAWatchThatHasNotBegunBeginsWithTheNewCredentials(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	server := newCounting(t, func(_ http.ResponseWriter, r *http.Request) {
		if !isClosed(begun) {
			close(begun)
			<-r.Context().Done()
		}
	})
	w := newPlainWire(t, server.Server)
	answered, _ := openWatch(t, w, server.URL)
	comes(t, begun, "the watch has arrived")
	giveUp(t, w.replace(newTestGeneration(t, server.Server))) // a watch is not waited for
	if err := comes(t, answered, "the watch has begun"); err != nil {
		t.Fatalf("the watch: %v", err)
	}
	if w.doubted() {
		t.Error("the member is probed for it")
	}
}

// TestAWatchEndsInDueFormWhenItsCredentialsAreReplaced, and with an error that casts doubt on the server if that cuts it.
func TestAWatchEndsInDueFormWhenItsCredentialsAreReplaced(t *testing.T) {
	t.Parallel()
	for _, rotated := range []bool{true, false} {
		end := make(chan struct{})
		server := newCounting(t, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			select {
			case <-end:
				panic(http.ErrAbortHandler) // which cuts the connection
			case <-r.Context().Done():
			}
		})
		w := newPlainWire(t, server.Server)
		answered, ended := openWatch(t, w, server.URL)
		if err := comes(t, answered, "the watch has begun"); err != nil {
			t.Fatal(err)
		}
		if rotated {
			giveUp(t, w.replace(newTestGeneration(t, server.Server)))
		} else {
			close(end)
		}
		if err := comes(t, ended, "the watch has ended"); (err == nil) != rotated || w.doubted() == rotated {
			t.Errorf("replaced: %t, the watch ended with %v, doubt: %t", rotated, err, w.doubted())
		}
		server.areClosed(t)
	}
}

// TestWhatCastsDoubtOnAMember: a request that was given up says nothing about the server, one that was not answered in its
// time does.
func TestWhatCastsDoubtOnAMember(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		status int // of the answer; zero for none
		end    func(ctx context.Context) (context.Context, context.CancelFunc)
		want   bool
	}{
		"Answered":     {status: http.StatusOK},
		"Missing":      {status: http.StatusNotFound},
		"Unauthorized": {status: http.StatusUnauthorized, want: true},
		"Cancelled": {end: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}},
		"TimedOut": {want: true, end: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithDeadline(ctx, time.Now())
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newCounting(t, func(w http.ResponseWriter, r *http.Request) {
				if tc.status == 0 {
					<-r.Context().Done()
					return
				}
				w.WriteHeader(tc.status)
			})
			w := newPlainWire(t, server.Server)
			ctx, cancel := t.Context(), func() {}
			if tc.end != nil {
				ctx, cancel = tc.end(ctx)
			}
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := w.RoundTrip(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			if (err == nil) != (tc.status != 0) || w.doubted() != tc.want {
				t.Errorf("%v, doubt: %t, want %t", err, w.doubted(), tc.want)
			}
			giveUp(t, w.current.Load())
		})
	}
}

// TestOnlyAnAnswerClearsADoubt: that of a server which has an error of its own does not.
func TestOnlyAnAnswerClearsADoubt(t *testing.T) {
	t.Parallel()
	for status, doubt := range map[int]bool{http.StatusOK: false, http.StatusForbidden: false, http.StatusServiceUnavailable: true} {
		server := newCounting(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		w := newPlainWire(t, server.Server)
		w.health.failed()
		if err := get(t, w, server.URL); err != nil {
			t.Fatal(err)
		}
		if w.doubted() != doubt {
			t.Errorf("after an answer of status %d, doubt: %t, want %t", status, w.doubted(), doubt)
		}
	}
}

// TestNothingIsSentOverAWireThatIsClosed, also if the credentials are replaced at that moment.
func TestNothingIsSentOverAWireThatIsClosed(t *testing.T) {
	t.Parallel()
	server, n := asked(t)
	w := newPlainWire(t, server)
	retired := w.current.Load()
	next := newTestGeneration(t, server)
	w.replace(next)
	w.current.Store(retired)
	retired.finish()
	w.current.Store(next)
	if err := get(t, w, server.URL); err != nil {
		t.Errorf("a request after the credentials were replaced: %v", err)
	}
	w.close()
	for _, query := range []string{"", "?watch=true"} {
		if err := get(t, w, server.URL+query); !errors.Is(err, errClosed) {
			t.Errorf("a request after the end: %v, want errClosed", err)
		}
	}
	if n.Load() != 1 {
		t.Errorf("%d requests arrived, want one", n.Load())
	}
}

// TestCredentialsThatAreNotTakenOverLeaveNoConnection, with a server that answers and keeps its connections open.
func TestCredentialsThatAreNotTakenOverLeaveNoConnection(t *testing.T) {
	t.Parallel()
	server := newCounting(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	described := Member{Name: "a", Config: &rest.Config{Host: server.URL, BearerToken: "new"}}
	m := newMember(New(Options{}), described)
	m.engagement = newEngagement(t.Context(), "a")
	if err := m.rotate(t.Context(), described, m.engagement); classify(err) != ReasonServerError {
		t.Errorf("rotate() = %v, want the server's error", err)
	}
	server.areClosed(t)
	if m.problem.reason != ReasonServerError || m.attempts != 1 {
		t.Errorf("the problem is %+v after %d attempts", m.problem, m.attempts)
	}
}

// TestWhatChangesAMemberEndsInTime: nothing of it leaves once ownership is no longer proved, and the last of it has had its time.
func TestWhatChangesAMemberEndsInTime(t *testing.T) {
	refusal := errors.New("the ownership is not proved")
	for name, c := range map[string]struct {
		changing bool
		left     time.Duration // for which the ownership is proved
		until    time.Duration // from now until the last has had its time, zero if none was admitted
		want     error
	}{
		"nothing is under way":        {false, 0, -time.Hour, nil},
		"the ownership is proved":     {true, time.Minute, -time.Hour, nil},
		"no time was noted":           {true, 0, 0, refusal},
		"it has time":                 {true, 0, time.Hour, nil},
		"it has had its time":         {true, 0, -time.Hour, refusal},
		"its time is over just now":   {true, 0, -1, refusal},
		"proved, and no time is over": {true, time.Minute, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := &generation{}
			if c.changing {
				own := &gate.Gate{Remaining: func() time.Duration { return c.left }, Refusal: func() error { return refusal }}
				defer g.pass(nil, own)()
			}
			if c.until != 0 {
				g.admit(time.Now().Add(c.until))
			}
			if err := g.late(); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("late() = %v, want %v", err, c.want)
			}
		})
	}
}

// TestACredentialPluginHoldsNoRequest for longer than its context: client-go would wait for the program.
func TestACredentialPluginHoldsNoRequest(t *testing.T) {
	plugin := &credplugin.Plugin{}
	for name, c := range map[string]struct {
		cfg  rest.Config
		want string
	}{
		"Plugin": {rest.Config{ExecProvider: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "none", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}, "credplugin.interruptible"},
		"Token": {rest.Config{BearerToken: "x"}, "*transport.bearerAuthRoundTripper"},
	} {
		c.cfg.Host = "https://a.example"
		g, err := newGeneration(&c.cfg, plugin)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%T", g.RoundTripper); got != c.want {
			t.Errorf("%s: the transport is a %s, want a %s", name, got, c.want)
		}
	}
}

// TestACertificateWithoutItsKeyIsLeftToTheTransport, as are files.
func TestACertificateWithoutItsKeyIsLeftToTheTransport(t *testing.T) {
	for _, config := range []transport.TLSConfig{{CertData: []byte("x")}, {KeyData: []byte("x")}, {}} {
		before := config
		if err := parseCertificateLate(&config); err != nil || config.GetCertHolder != nil || !bytes.Equal(config.CertData, before.CertData) {
			t.Errorf("%+v became %+v: %v", before, config, err)
		}
	}
}
