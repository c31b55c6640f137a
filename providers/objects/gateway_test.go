package objects_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// misled is a way to a hub on which a gateway answers requests for one object with a page, as long as misleads says so.
type misled struct {
	http.RoundTripper

	object   string
	misleads func(req *http.Request) bool
}

// RoundTrip implements http.RoundTripper.
func (m misled) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(req.URL.Path, m.object) || !m.misleads(req) {
		return m.RoundTripper.RoundTrip(req)
	}
	answer := httptest.NewRecorder()
	http.NotFound(answer, req)
	return answer.Result(), nil
}

// mislead returns the config with such a way.
func mislead(cfg *rest.Config, object string, misleads func(req *http.Request) bool) *rest.Config {
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { return misled{through, object, misleads} })
	return cfg
}

func TestAFinalizerIsRemovedAlthoughAGatewayHasAPage(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret := ns.leaver("secret", map[string]string{"a": "1"})
	var gets, patches atomic.Int32
	r := start(t, mislead(cp.Config(), "/secrets/secret", func(req *http.Request) bool {
		return req.Method == http.MethodGet && gets.Add(1) == 1 || req.Method == http.MethodPatch && patches.Add(1) == 1
	}), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1"})
	ns.delete(secret)
	r.letLeave(t, "a")
	ns.waitForFinalizers(secret)
	if gets.Load() < 2 || patches.Load() < 2 {
		t.Errorf("the object was read %d times and written %d times", gets.Load(), patches.Load())
	}
}

func TestAMemberStaysWhileAGatewayHasAPageOfItsObject(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret := ns.secret("secret", map[string]string{"a": "1"}, ours)
	var away atomic.Bool
	away.Store(true)
	r := start(t, mislead(cp.Config(), "/secrets/secret", func(*http.Request) bool { return away.Load() }), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1"})
	update(ns, secret, func(s *corev1.Secret) { s.Labels = nil })
	r.waitUntil(t, "it is told that it is not known", func() bool { return len(r.problems) > 0 })
	r.wantRemovals(t, nil)
	away.Store(false)
	r.waitUntil(t, "it is withdrawn", func() bool { return r.removals["a"] == 1 })
}
