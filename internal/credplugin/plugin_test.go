package credplugin

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// blocked is a transport whose requests end when they are told to, as behind a credential plugin.
type blocked struct {
	begun chan struct{}
	end   chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (b blocked) RoundTrip(*http.Request) (*http.Response, error) {
	b.begun <- struct{}{}
	<-b.end
	return nil, errors.New("the plugin was killed")
}

// TestWhileAPluginHangsNoOtherRequestWaitsForIt: each would hold a goroutine for as long as the plugin hangs.
func TestWhileAPluginHangsNoOtherRequestWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := blocked{begun: make(chan struct{}, 100), end: make(chan struct{})}
		p := &Plugin{}
		send := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://a", nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = interruptible{b, p}.RoundTrip(req) //nolint:bodyclose // it fails
			return err
		}
		if err := send(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first request: %v, want that it is given up", err)
		}
		for range 10 {
			if err := send(); !errors.Is(err, errHangs) {
				t.Errorf("a later request: %v, want errHangs", err)
			}
		}
		if n := len(b.begun); n != 1 {
			t.Errorf("%d requests wait for the plugin, want 1", n)
		}
		close(b.end)
		synctest.Wait()
		if err := send(); err == nil || errors.Is(err, errHangs) {
			t.Errorf("after the plugin has ended: %v, want its own error", err)
		}
	})
}

func TestARequestWithoutAPluginIsSentAsItIs(t *testing.T) {
	p, rt := &Plugin{}, blocked{}
	if got := p.Guard(&rest.Config{BearerToken: "x"}, rt); got != rt {
		t.Errorf("the transport is a %T", got)
	}
	got, is := p.Guard(&rest.Config{ExecProvider: &clientcmdapi.ExecConfig{}}, rt).(interruptible)
	if !is || got.plugin != p || got.WrappedRoundTripper() != rt {
		t.Errorf("the transport of a config with a plugin is %v", got)
	}
}
