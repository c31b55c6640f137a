package redirect_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/internal/redirect"
)

// leading answers with a redirect to a location.
type leading string

// RoundTrip implements [http.RoundTripper].
func (l leading) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusTemporaryRedirect, Header: http.Header{"Location": {string(l)}}, Body: http.NoBody}, nil
}

// TestARedirectIsTold: with where it leads, and without what may be secret.
func TestARedirectIsTold(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"http://user:secret@inner.host:8080/secret?secret": `to "http://inner.host:8080"`,
		"/relative":             "elsewhere",
		"::":                    "elsewhere",
		"http://a\x1b[0m.host/": "elsewhere",
	}
	for to, want := range cases {
		_, err := redirect.Refuse(leading(to)).RoundTrip(&http.Request{}) //nolint:bodyclose // there is none
		got := err.Error()
		if !strings.Contains(got, want) || strings.Contains(got, "secret") {
			t.Errorf("redirected to %q: %s, want %s", to, got, want)
		}
	}
}
