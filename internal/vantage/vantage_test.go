package vantage_test

import (
	"net/http"
	"net/url"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/internal/vantage"
)

func TestACallerHasAWayOfItsOwnOnlyWithAServer(t *testing.T) {
	t.Parallel()
	hub := &rest.Config{Host: "https://east:6443", Proxy: http.ProxyURL(&url.URL{Host: "proxy"})}
	hub.CAData, hub.ServerName = []byte("ca"), "east"
	if same := vantage.Config(t.Context(), hub); same != hub {
		t.Errorf("of a caller that says nothing: %v", same)
	}
	if same := vantage.Config(vantage.With(t.Context(), ""), hub); same != hub {
		t.Errorf("of a caller without a server: %v", same)
	}
	own := vantage.Config(vantage.With(t.Context(), "https://127.0.0.1:40000"), hub)
	if own.Host != "https://127.0.0.1:40000" || own.Proxy != nil || string(own.CAData) != "ca" || own.ServerName != "east" {
		t.Errorf("of a caller with a server: %v", own)
	}
	if hub.Host != "https://east:6443" || hub.Proxy == nil {
		t.Errorf("the way of the hub is %v now", hub)
	}
}

// TestAServerOfTheCallerShowsTheNameOfTheHubsWhereNoCASaysWhichItIs, since any server with a public certificate would do elsewhere.
func TestAServerOfTheCallerShowsTheNameOfTheHubsWhereNoCASaysWhichItIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hub  rest.Config
		want string
	}{
		"no CA":                 {rest.Config{Host: "https://east.example.com:6443"}, "east.example.com"},
		"no CA, at an address":  {rest.Config{Host: "https://[fd00::1]:6443/east"}, "fd00::1"},
		"no CA, another name":   {rest.Config{Host: "https://east.example.com", TLSClientConfig: rest.TLSClientConfig{ServerName: "west"}}, "west"},
		"a CA":                  {rest.Config{Host: "https://east.example.com", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("ca")}}, ""},
		"no CA, and no name":    {rest.Config{Host: "https://:6443"}, "https://:6443"}, // which no certificate has
		"no CA, and no address": {rest.Config{Host: "https://%"}, "https://%"},
	} {
		own := vantage.Config(vantage.With(t.Context(), "https://typed.example.com"), &c.hub)
		if own.ServerName != c.want || own.Host != "https://typed.example.com" {
			t.Errorf("%s: the server at %s is to be %q, want %q", name, own.Host, own.ServerName, c.want)
		}
	}
}
