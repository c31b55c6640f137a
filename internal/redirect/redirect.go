// Package redirect refuses redirects. API servers send none, and client-go would send credentials to wherever one points.
package redirect

import (
	"fmt"
	"net/http"
	"net/url"
)

// Refuse returns a transport that takes redirects for errors: see [Error].
func Refuse(rt http.RoundTripper) http.RoundTripper { return refusing{rt} }

type refusing struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := n.RoundTripper.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		_ = resp.Body.Close()
		return nil, &Error{status: resp.StatusCode, to: resp.Header.Get("Location")}
	}
	return resp, nil
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (n refusing) WrappedRoundTripper() http.RoundTripper { return n.RoundTripper }

// Error says that a server answered with a redirect. Of where that leads it shows the scheme and the host alone, as the rest may be secret.
type Error struct {
	status int
	to     string
}

// Error implements error.
func (e *Error) Error() string {
	where := "elsewhere"
	if to, err := url.Parse(e.to); err == nil && to.Host != "" {
		where = fmt.Sprintf("to %q", to.Scheme+"://"+to.Host)
	}
	return fmt.Sprintf("the server redirects %s (%d), which is refused: give the address of the API server itself", where, e.status)
}
