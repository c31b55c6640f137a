package fleet

import (
	"fmt"
	"net/http"
	"net/url"
)

// noRedirects is a transport that takes redirects for errors. API servers send none, and client-go would send the
// member's credentials to wherever one points.
type noRedirects struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n noRedirects) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := n.RoundTripper.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		_ = resp.Body.Close()
		return nil, &redirectError{status: resp.StatusCode, to: resp.Header.Get("Location")}
	}
	return resp, nil
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (n noRedirects) WrappedRoundTripper() http.RoundTripper { return n.RoundTripper }

// redirectError says that a server answered with a redirect.
type redirectError struct {
	status int
	to     string
}

func (e *redirectError) Error() string {
	where := "elsewhere"
	if to, err := url.Parse(e.to); err == nil && to.Host != "" {
		where = fmt.Sprintf("to %q", to.Scheme+"://"+to.Host)
	}
	return fmt.Sprintf("the server redirects %s (%d), which is refused: give the address of the API server itself", where, e.status)
}
