package members_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// busyTwice answers the first two questions for the version with an error.
type busyTwice struct {
	http.RoundTripper

	asked *atomic.Int32
}

// RoundTrip implements http.RoundTripper.
func (b busyTwice) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/version") && b.asked.Add(1) <= 2 {
		return &http.Response{
			Request: req, StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("busy")),
		}, nil
	}
	return b.RoundTripper.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport.
func (b busyTwice) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }

// The watch brings what was written, and a second write is put off, while the pauses last: neither may take the place of the next attempt.
func TestAVersionIsAskedForUntilTheServerAnswers(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	m := s.newManager(s.Local.Config())
	var asked atomic.Int32
	cfg := s.Members[0].Config()
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return busyTwice{rt, &asked} })
	m.set(fleet.Member{Name: "east", Config: cfg})
	m.start()
	s.becomes("east", "has a version", func(m *v1alpha1.Member) bool { return m.Status.Version != "" })
}
