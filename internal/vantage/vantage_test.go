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
