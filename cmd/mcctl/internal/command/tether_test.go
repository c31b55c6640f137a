package command_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/command"
)

// seen is a transport that notes the context of the last request.
type seen struct {
	http.RoundTripper

	ctx context.Context
}

func (s *seen) RoundTrip(req *http.Request) (*http.Response, error) {
	s.ctx = req.Context()
	return s.RoundTripper.RoundTrip(req)
}

// endless answers each request with a body that has begun and does not end.
func endless(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = w.Write([]byte("begun"))
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

var errInterrupted = errors.New("interrupted")

func TestAnAnswerIsReadUntilItIsClosedOrAContextEnds(t *testing.T) {
	t.Parallel()
	server := endless(t)
	for name, end := range map[string]func(own, ofCommand context.CancelCauseFunc, body io.Closer){
		"it is closed":             func(_, _ context.CancelCauseFunc, body io.Closer) { _ = body.Close() },
		"its own context ends":     func(own, _ context.CancelCauseFunc, _ io.Closer) { own(errInterrupted) },
		"that of the command ends": func(_, ofCommand context.CancelCauseFunc, _ io.Closer) { ofCommand(errInterrupted) },
		"both end, and it is closed": func(own, ofCommand context.CancelCauseFunc, body io.Closer) {
			own(nil)
			ofCommand(nil)
			_ = body.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own, endOwn := context.WithCancelCause(t.Context())
			ofCommand, endCommand := context.WithCancelCause(t.Context())
			inner := &seen{RoundTripper: server.Client().Transport}
			req, err := http.NewRequestWithContext(own, http.MethodGet, server.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := command.EndingWith(ofCommand, inner).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			begun := make([]byte, len("begun"))
			if _, err := io.ReadFull(resp.Body, begun); err != nil || inner.ctx.Err() != nil {
				t.Fatalf("reading it: %v; the context of the request: %v", err, inner.ctx.Err())
			}
			end(endOwn, endCommand, resp.Body)
			if _, err := io.ReadAll(resp.Body); err == nil {
				t.Error("it has come to an end")
			}
			<-inner.ctx.Done()
		})
	}
}

func TestARequestThatFailsReleasesItsContext(t *testing.T) {
	t.Parallel()
	inner := &seen{RoundTripper: failing{}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://hub.example.com", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := command.EndingWith(t.Context(), inner).RoundTrip(req); !errors.Is(err, errInterrupted) { //nolint:bodyclose // there is none
		t.Errorf("the error is %v", err)
	}
	if inner.ctx.Err() == nil {
		t.Error("the context of the request goes on")
	}
}

// failing is a transport that answers nothing.
type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errInterrupted }
