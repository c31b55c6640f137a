package objects_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// gate holds back what the server answers to lists and watches with one label, as a slow connection does.
type gate struct {
	label string
	mu    sync.RWMutex // locked while the gate is closed
}

// limit returns a copy of the config whose answers come through the gate.
func (g *gate) limit(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return gatedTransport{next, g} })
	return config
}

// close closes the gate. The returned function opens it.
func (g *gate) close(t *testing.T) (open func()) {
	t.Helper()
	g.mu.Lock()
	open = sync.OnceFunc(g.mu.Unlock)
	t.Cleanup(open)
	return open
}

type gatedTransport struct {
	next http.RoundTripper
	gate *gate
}

func (g gatedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := g.next.RoundTrip(req)
	if err == nil && strings.HasPrefix(req.URL.Query().Get("labelSelector"), g.gate.label) {
		resp.Body = gatedBody{resp.Body, g.gate}
	}
	return resp, err
}

type gatedBody struct {
	io.ReadCloser
	gate *gate
}

func (b gatedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.gate.mu.RLock()
	defer b.gate.mu.RUnlock()
	return n, err
}

func TestAnObjectThatGoesFromOneSelectorToAnotherKeepsItsMember(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret := ns.secret("secret", map[string]string{"a": "1"}, ours)
	slow := &gate{label: theirs}
	r := start(t, slow.limit(cp.Config()), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1"})

	open := slow.close(t)
	update(ns, secret, func(s *corev1.Secret) {
		s.Labels = map[string]string{theirs: "true"}
		s.Data["a"] = []byte("2")
	})
	r.waitForHosts(t, hosts{"a": "2"}) // no watch has told this yet
	open()
	update(ns, secret, func(s *corev1.Secret) { s.Data["a"] = []byte("3") })
	r.waitForHosts(t, hosts{"a": "3"})
	r.read(func() {
		if r.removals["a"] > 0 {
			t.Error("the member was removed")
		}
	})
	ns.delete(secret)
	r.waitForHosts(t, hosts{})
}

// TestAnObjectThatWasFoundAtTheServerAloneIsLookedForAgain: it may be gone before any watch has it.
func TestAnObjectThatWasFoundAtTheServerAloneIsLookedForAgain(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret := ns.secret("secret", map[string]string{"a": "1"}, ours)
	slow := &gate{label: theirs}
	r := start(t, slow.limit(cp.Config()), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1"})
	slow.close(t)
	update(ns, secret, func(s *corev1.Secret) {
		s.Labels = map[string]string{theirs: "true"}
		s.Data["a"] = []byte("2")
	})
	r.waitForHosts(t, hosts{"a": "2"})
	ns.delete(secret)
	r.waitForHosts(t, hosts{})
}

func TestTheOldestObjectHasTheNameAtOnceWhenItIsListedLast(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	ns.secret("a", map[string]string{"m": "old"}, theirs)
	ns.secret("b", map[string]string{"m": "young"}, ours)
	slow := &gate{label: theirs}
	open := slow.close(t)
	r := start(t, slow.limit(cp.Config()), provider(ns.string))
	// Another provider shows that there was time enough to get this wrong.
	start(t, cp.Config(), provider(ns.string)).waitForHosts(t, hosts{"m": "old"})
	open()
	r.waitForHosts(t, hosts{"m": "old"})
	r.read(func() {
		if r.sets["m"] != 1 || r.removals["m"] != 0 {
			t.Errorf("the member was reported %d times and removed %d times", r.sets["m"], r.removals["m"])
		}
	})
}

// refusal answers requests with one label as a server does that does not permit them.
type refusal struct {
	next  http.RoundTripper
	label string
}

func (r refusal) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasPrefix(req.URL.Query().Get("labelSelector"), r.label) {
		return r.next.RoundTrip(req)
	}
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"not you","code":403}`
	return &http.Response{
		StatusCode: http.StatusForbidden, Request: req, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(status)),
	}, nil
}

func TestASelectorThatIsRefusedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret := ns.secret("secret", map[string]string{"a": "1"}, ours)
	config := cp.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return refusal{next, theirs} })
	r := start(t, config, provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1"})
	update(ns, secret, func(s *corev1.Secret) { s.Data["a"] = []byte("2") })
	r.waitForHosts(t, hosts{"a": "2"})
}
