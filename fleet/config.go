package fleet

import (
	"reflect"

	"k8s.io/client-go/rest"
)

// sameAccess reports whether two descriptions of a member mean the same way to reach it.
func sameAccess(a, b Member) bool {
	switch {
	case a.Cluster != nil || b.Cluster != nil:
		return a.Cluster == b.Cluster
	case a.Config == nil || b.Config == nil:
		return a.Config == b.Config
	case a.Revision != "" && b.Revision != "":
		return a.Revision == b.Revision
	default:
		return a.Config == b.Config || equalConfigs(a.Config, b.Config)
	}
}

// sameServer reports whether two configs differ in nothing but the credentials.
func sameServer(a, b *rest.Config) bool {
	return equalConfigs(withoutCredentials(a), withoutCredentials(b))
}

func withoutCredentials(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Username, cfg.Password, cfg.BearerToken, cfg.BearerTokenFile = "", "", "", ""
	cfg.AuthProvider, cfg.AuthConfigPersister, cfg.ExecProvider = nil, nil, nil
	cfg.CertFile, cfg.KeyFile = "", ""
	cfg.CertData, cfg.KeyData = nil, nil
	return cfg
}

// equalConfigs is reflect.DeepEqual, except that functions are equal when they are the same code: a config that was
// made anew from the same kubeconfig has new closures, and DeepEqual calls every function but nil unequal.
func equalConfigs(a, b *rest.Config) bool {
	x, y := reflect.ValueOf(*a), reflect.ValueOf(*b)
	for i := range x.NumField() {
		f, g := x.Field(i), y.Field(i)
		if f.Kind() == reflect.Func {
			if f.Pointer() != g.Pointer() {
				return false
			}
		} else if !reflect.DeepEqual(f.Interface(), g.Interface()) {
			return false
		}
	}
	return true
}
