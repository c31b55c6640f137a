package access

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/redirect"
)

// secure is the scheme of servers to which tokens may go.
const secure = "https"

// Audience returns the audience of federated tokens for a server. A token for one server is worth nothing at another one, nor
// at the same address with another CA, nor where a certificate has another name. The name may be empty, as in the access.
func Audience(server string, caBundle []byte, tlsServerName string) string {
	sum := sha256.Sum256(caBundle)
	audience := server + "#" + hex.EncodeToString(sum[:])
	if tlsServerName != "" {
		audience += "#" + tlsServerName
	}
	return audience
}

// audienceOf returns the audience of federated tokens for the server of an access.
func audienceOf(spec v1alpha1.ClusterAccessSpec) string {
	return Audience(spec.Server, spec.CABundle, spec.TLSServerName)
}

// Config returns the way to the cluster, without credentials. The error is an [Error].
func Config(spec v1alpha1.ClusterAccessSpec) (*rest.Config, error) {
	cfg := &rest.Config{
		Host:            spec.Server,
		TLSClientConfig: rest.TLSClientConfig{CAData: spec.CABundle, ServerName: spec.TLSServerName},
	}
	server, err := url.Parse(spec.Server)
	if err != nil || server.Scheme != secure || server.Host == "" || server.User != nil {
		return nil, invalid("spec.server must be a URL that begins with https:// and a host")
	}
	if len(spec.CABundle) > 0 {
		if _, err := cert.ParseCertsPEM(spec.CABundle); err != nil {
			return nil, invalid("spec.caBundle holds no certificate that can be read as PEM")
		}
	}
	if (spec.Federated == nil) == (spec.Minter == nil) {
		return nil, invalid("exactly one of spec.federated and spec.minter is required")
	}
	if spec.ProxyURL != "" {
		proxy, err := url.Parse(spec.ProxyURL)
		if err != nil || proxy.Host == "" || proxy.User != nil {
			return nil, invalid("spec.proxyURL must be a URL with a host and without a user")
		}
		cfg.Proxy = http.ProxyURL(proxy)
	}
	return cfg, nil
}

func invalid(message string) *Error { return &Error{reason: v1alpha1.ReasonInvalid, message: message} }

// Call gives a client for requests to the server of a config with a token, and ends its connections afterwards. The config has no other
// credentials. The token goes to that server alone, by TLS: a redirect is an error with [fleet.ReasonRedirected], and a token for a server
// without TLS is an [Error]. A request may take 10 seconds, and an answer have 1 MiB. The token is left out of a refusal that has it. The limit
// of requests that the config has (QPS) does not count: it is for the server to say how much is too much.
func Call(cfg *rest.Config, token string, do func(cfg *rest.Config, client *http.Client) error) error {
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return err
	}
	if token != "" && server.Scheme != secure {
		return invalid("a token is sent by TLS alone: the URL of the server must begin with https://")
	}
	cfg = rest.CopyConfig(cfg)
	cfg.BearerToken, cfg.Timeout, cfg.QPS = token, timeout, -1
	cfg.WarningHandlerWithContext = rest.NoWarnings{} // what a server warns of it chooses itself
	if cfg.Proxy == nil {
		cfg.Proxy = http.ProxyFromEnvironment // client-go keeps transports without such a function for ever
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	client.Transport = &bounded{redirect.Refuse(client.Transport), token}
	defer utilnet.CloseIdleConnectionsFor(client.Transport)
	return do(cfg, client)
}

// maxAnswer is how large an answer of a cluster may be, in bytes. What is asked for here is much smaller.
const maxAnswer = 1 << 20

var errTooLarge = errors.New("the answer is too large")

// bounded bounds the memory that the answers of a cluster take to requests with a token.
type bounded struct {
	http.RoundTripper
	token string
}

// RoundTrip implements [http.RoundTripper].
func (b *bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = &boundedBody{resp.Body, maxAnswer}
		hideToken(resp, b.token)
	}
	return resp, err
}

// WrappedRoundTripper implements [utilnet.RoundTripperWrapper].
func (b *bounded) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }

type boundedBody struct {
	io.ReadCloser
	left int
}

// Read implements [io.Reader].
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
