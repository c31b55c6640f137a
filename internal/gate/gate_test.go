package gate

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

var errNotMine = errors.New("it is another replica's")

func opened(left time.Duration) *Gate {
	return &Gate{Remaining: func() time.Duration { return left }, Refusal: func() error { return errNotMine }}
}

func request(t *testing.T, ctx context.Context, method, address string) *http.Request { //nolint:revive // t is first in tests
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestWhatReadsChangesNothing(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]bool{
		"": false, "GET": false, "HEAD": false, "OPTIONS": false, "POST": true, "PUT": true, "PATCH": true, "DELETE": true, "PURGE": true,
	} {
		req := request(t, t.Context(), method, "http://member/")
		if got := Changes(req); got != want {
			t.Errorf("%q changes something: %t, want %t", method, got, want)
		}
		req.Header.Set("Upgrade", "websocket")
		if !Changes(req) {
			t.Errorf("%q changes nothing, though it is upgraded, as exec is", method)
		}
	}
}

func TestARequestEndsBeforeTheFirstOfItsGatesCloses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		gates   []*Gate
		address string
		timeout string // of the server
		ends    time.Duration
		refused bool
	}{
		"no gate":               {gates: []*Gate{nil, nil}, address: "http://m/x?a=b"},
		"the first":             {gates: []*Gate{opened(3 * time.Second), opened(5 * time.Second)}, address: "http://m/x", timeout: "3s", ends: 3 * time.Second},
		"the second":            {gates: []*Gate{nil, opened(1500 * time.Millisecond)}, address: "http://m/x", timeout: "1.5s", ends: 1500 * time.Millisecond},
		"it asks for less":      {gates: []*Gate{opened(3 * time.Second)}, address: "http://m/x?timeout=1s", timeout: "1s", ends: 3 * time.Second},
		"it asks for more":      {gates: []*Gate{opened(3 * time.Second)}, address: "http://m/x?timeout=34s", timeout: "3s", ends: 3 * time.Second},
		"it asks for nonsense":  {gates: []*Gate{opened(3 * time.Second)}, address: "http://m/x?timeout=x", timeout: "3s", ends: 3 * time.Second},
		"less than the server":  {gates: []*Gate{opened(time.Microsecond)}, address: "http://m/x", timeout: "1ms", ends: time.Microsecond},
		"one is closed":         {gates: []*Gate{opened(3 * time.Second), opened(0)}, address: "http://m/x", refused: true},
		"one was closed before": {gates: []*Gate{opened(-1)}, address: "http://m/x", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				req := request(t, t.Context(), http.MethodPost, tc.address)
				admitted, done, err := Admit(req, tc.gates...)
				if errors.Is(err, errNotMine) != tc.refused {
					t.Fatalf("refused: %v, want %t", err, tc.refused)
				}
				if tc.refused {
					return
				}
				defer done()
				if got := admitted.URL.Query().Get("timeout"); got != tc.timeout {
					t.Errorf("the server gives up after %q, want %q", got, tc.timeout)
				}
				if req.URL.String() != tc.address {
					t.Errorf("the caller's request was changed: %s", req.URL)
				}
				if tc.ends == 0 {
					return
				}
				begun := time.Now()
				<-admitted.Context().Done()
				if took := time.Since(begun); took != tc.ends || !errors.Is(context.Cause(admitted.Context()), context.DeadlineExceeded) {
					t.Errorf("it ends after %s for %v, want after %s", took, context.Cause(admitted.Context()), tc.ends)
				}
			})
		})
	}
}

func TestATransportAsksTheGateOfTheContextOnceForWhatChangesSomething(t *testing.T) {
	t.Parallel()
	arrived := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { arrived[r.Method]++ }))
	defer server.Close()
	client := &http.Client{Transport: Transport{http.DefaultTransport}}
	closed, open := With(t.Context(), opened(0)), With(t.Context(), opened(time.Minute))
	for _, tc := range []struct {
		ctx     context.Context
		method  string
		refused bool
	}{
		{closed, http.MethodPut, true}, {closed, http.MethodGet, false}, {open, http.MethodPut, false}, {t.Context(), http.MethodPut, false},
	} {
		resp, err := client.Do(request(t, tc.ctx, tc.method, server.URL))
		if errors.Is(err, errNotMine) != tc.refused {
			t.Errorf("%s: %v, want it refused: %t", tc.method, err, tc.refused)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
	}
	if arrived[http.MethodPut] != 2 || arrived[http.MethodGet] != 1 {
		t.Errorf("arrived are %v, want two that change something and one that does not", arrived)
	}
}

// TestATransportWaitsForWhatIsUnderWay although its caller has given up: it may still change something, and what runs on behalf of a
// cluster is awaited before another replica has that.
func TestATransportWaitsForWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	arrived, answer := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-answer
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	ctx, giveUp := context.WithCancel(With(t.Context(), opened(time.Minute)))
	go func() {
		<-arrived
		giveUp()
		close(answer)
	}()
	resp, err := Transport{http.DefaultTransport}.RoundTrip(request(t, ctx, http.MethodPut, server.URL))
	if err != nil {
		t.Fatalf("the answer was not awaited: %v", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusAccepted {
		t.Errorf("the answer is %s", resp.Status)
	}
}

// TestATransportSendsNothingForACallerThatHasGivenUp, nor once the gate is closed, however late there is a connection.
func TestATransportSendsNothingForACallerThatHasGivenUp(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request has arrived") }))
	defer server.Close()
	errGivenUp := errors.New("given up")
	for name, tc := range map[string]struct {
		end  func(giveUp context.CancelCauseFunc, left *time.Duration)
		want error
	}{
		"given up": {func(giveUp context.CancelCauseFunc, _ *time.Duration) { giveUp(errGivenUp) }, errGivenUp},
		"closed":   {func(_ context.CancelCauseFunc, left *time.Duration) { *left = 0 }, errNotMine},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, giveUp := context.WithCancelCause(t.Context())
			left := time.Minute
			g := &Gate{Remaining: func() time.Duration { return left }, Refusal: func() error { return errNotMine }}
			transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(context.WithoutCancel(ctx), network, address)
				tc.end(giveUp, &left)
				return conn, err
			}}
			defer transport.CloseIdleConnections()
			resp, err := Transport{transport}.RoundTrip(request(t, With(ctx, g), http.MethodPut, server.URL))
			if err == nil {
				_ = resp.Body.Close()
			}
			if !errors.Is(err, tc.want) {
				t.Errorf("the error is %v, want %v", err, tc.want)
			}
		})
	}
}
