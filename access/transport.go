package access

import (
	"net/http"
	"net/url"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// Authorize makes the requests of a config use the tokens of a source. They are sent to the host of the config, and to no other.
// The config must have no credentials.
func (s *Source) Authorize(cfg *rest.Config) error {
	server, err := url.Parse(cfg.Host)
	if err != nil {
		return err
	}
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &authorizer{rt, s, server.Host} })
	return nil
}

// authorizer puts the token of the moment into requests.
type authorizer struct {
	http.RoundTripper
	source *Source
	host   string
}

// RoundTrip implements [http.RoundTripper].
func (a *authorizer) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != a.host || req.URL.Scheme != secure || req.Header.Get("Authorization") != "" {
		return a.RoundTripper.RoundTrip(req)
	}
	token, err := a.source.Token(req.Context())
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	req = utilnet.CloneRequest(req)
	req.Header.Set("Authorization", "Bearer "+token.Value())
	resp, err := a.RoundTripper.RoundTrip(req)
	if err == nil {
		hideToken(resp, token.Value())
	}
	if err == nil && resp.StatusCode < http.StatusInternalServerError { // other answers may be of who stands before the server
		a.source.answered(token, resp.StatusCode != http.StatusUnauthorized)
	}
	return resp, err
}

// WrappedRoundTripper implements [utilnet.RoundTripperWrapper].
func (a *authorizer) WrappedRoundTripper() http.RoundTripper { return a.RoundTripper }
