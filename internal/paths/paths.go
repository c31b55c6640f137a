// Package paths keeps requests where they belong, whatever strangers have written. Clients join names into the paths of requests, and not
// all of them look whether a name leads elsewhere, as "../../kube-system/secrets/x" does.
package paths

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/client-go/rest"
)

// ErrNoName says that nothing can be called so, as the name would lead a request to something else.
var ErrNoName = errors.New("no object has such a name")

// CheckNames returns an error that wraps [ErrNoName] unless a request for an object may have this namespace and name. Either may be empty.
func CheckNames(namespace, name string) error {
	for _, one := range []string{namespace, name} {
		if why := content.IsPathSegmentName(one); len(why) > 0 {
			return fmt.Errorf("%w: %.64q %s", ErrNoName, one, why[0])
		}
	}
	return nil
}

// ErrBeyond says that a request was not sent, as it leads to something else than the server of its config.
var ErrBeyond = errors.New("the request was not sent: its path leads beyond the server")

// Confine refuses requests of a config that do not stay below the path of its server: all clusters behind a gateway have one host, and one
// credential. The error wraps [ErrBeyond], and names the server as whose.
func Confine(cfg *rest.Config, whose string) {
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return // no request can be made either
	}
	base := path.Join("/", server.Path)
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return confined{rt, base, whose} })
}

type confined struct {
	http.RoundTripper
	base, whose string
}

// RoundTrip implements http.RoundTripper.
func (c confined) RoundTrip(req *http.Request) (*http.Response, error) {
	if !isBelow(req.URL.Path, c.base) {
		if req.Body != nil {
			_ = req.Body.Close() // as each RoundTripper has to
		}
		return nil, fmt.Errorf("%s %.256q: %w of %s, whose requests begin with %q; a name that a stranger has written may have led there",
			req.Method, req.URL.Path, ErrBeyond, c.whose, c.base)
	}
	return c.RoundTripper.RoundTrip(req)
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (c confined) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }

// isBelow reports whether a path is the base or below it, and has no segment that leads elsewhere.
func isBelow(at, base string) bool {
	for segment := range strings.SplitSeq(at, "/") {
		if segment == "." || segment == ".." {
			return false
		}
	}
	rest, below := strings.CutPrefix(at, strings.TrimSuffix(base, "/"))
	return below && (rest == "" || rest[0] == '/')
}
