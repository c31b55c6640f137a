package fleet

import (
	"net/http"
	"net/url"
	"reflect"

	"k8s.io/client-go/rest"
)

// sameAccess reports whether two descriptions of a member mean the same cluster, and the same way to reach it.
func sameAccess(a, b Member) bool {
	switch {
	case a.Identity != b.Identity:
		return false
	case a.Cluster != nil || b.Cluster != nil:
		return a.Cluster == b.Cluster
	case !a.hasConfig() || !b.hasConfig():
		return a.hasConfig() == b.hasConfig()
	case a.Revision != "" && b.Revision != "":
		return a.Revision == b.Revision
	case a.Config == nil || b.Config == nil: // one is to be loaded, and the other has no revision
		return false
	default:
		return a.Config == b.Config || equalConfigs(a.Config, b.Config)
	}
}

// sameRoute reports whether two configs differ in nothing but the credentials, so that they lead to the same place. A
// function may lead anywhere, so configs with one of those do not count as the same.
func sameRoute(a, b *rest.Config) bool {
	return a.Dial == nil && b.Dial == nil && a.Transport == nil && b.Transport == nil &&
		a.WrapTransport == nil && b.WrapTransport == nil && equalConfigs(withoutCredentials(a), withoutCredentials(b))
}

// sameAddress reports whether two configs differ in nothing but what a [generation] has: the credentials, and how
// connections are made and trusted.
func sameAddress(a, b *rest.Config) bool {
	return equalConfigs(withoutTransport(a), withoutTransport(b))
}

func withoutTransport(cfg *rest.Config) *rest.Config {
	cfg = withoutCredentials(cfg)
	cfg.TLSClientConfig = rest.TLSClientConfig{}
	cfg.Transport, cfg.WrapTransport, cfg.Dial, cfg.Proxy = nil, nil, nil, nil
	cfg.DisableCompression = false
	return cfg
}

func withoutCredentials(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Username, cfg.Password, cfg.BearerToken, cfg.BearerTokenFile = "", "", "", ""
	cfg.AuthProvider, cfg.AuthConfigPersister, cfg.ExecProvider = nil, nil, nil
	cfg.CertFile, cfg.KeyFile = "", ""
	cfg.CertData, cfg.KeyData = nil, nil
	return cfg
}

// equalConfigs is reflect.DeepEqual, except for functions: a config that was made anew from the same kubeconfig has new
// closures, and DeepEqual calls every function but nil unequal. Functions are equal when they are the same code, and
// those for the proxy when they name the same one.
func equalConfigs(a, b *rest.Config) bool {
	if proxyOf(a) != proxyOf(b) {
		return false
	}
	return equalButFunctions(*a, *b)
}

// equalButFunctions compares two structs field by field, whether the fields are exported or not.
func equalButFunctions[T any](a, b T) bool {
	x, y := reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem()
	for i := range x.NumField() {
		f, g := x.Field(i), y.Field(i)
		if f.Kind() != reflect.Func || !f.CanSet() {
			continue
		}
		if f.Pointer() != g.Pointer() {
			return false
		}
		f.SetZero()
		g.SetZero()
	}
	return reflect.DeepEqual(a, b)
}

// proxyOf returns the proxy through which the server of a config is reached.
func proxyOf(cfg *rest.Config) string {
	if cfg.Proxy == nil {
		return ""
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return ""
	}
	proxy, err := cfg.Proxy(&http.Request{URL: server, Host: server.Host, Header: http.Header{}})
	if err != nil || proxy == nil {
		return ""
	}
	return (&url.URL{Scheme: proxy.Scheme, User: proxy.User, Host: proxy.Host, Path: proxy.Path}).String()
}
