package fleet

import (
	"errors"
	"io"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// listening is a round tripper that tells health what it hears.
type listening struct {
	http.RoundTripper
	health *health
}

// RoundTrip implements http.RoundTripper.
func (l *listening) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(req)
	switch {
	case err != nil:
		if req.Context().Err() == nil {
			l.health.failed()
		}
	case resp.StatusCode == http.StatusUnauthorized:
		l.health.failed()
	case resp.StatusCode < http.StatusInternalServerError:
		l.health.worked()
		if req.URL.Query().Has("watch") {
			resp.Body = &listeningBody{ReadCloser: resp.Body, health: l.health}
		}
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport beneath, to close its connections.
func (l *listening) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

var _ utilnet.RoundTripperWrapper = (*listening)(nil)

// listeningBody is the body of a watch: each event proves health, and its end casts doubt on it, unless the server
// ended the watch in due form.
type listeningBody struct {
	io.ReadCloser
	health *health
}

func (b *listeningBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.health.worked()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.health.failed()
	}
	return n, err
}
