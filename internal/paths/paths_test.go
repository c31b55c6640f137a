package paths_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/internal/paths"
)

func TestNamesThatLeadElsewhereAreNone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		namespace, name string
		want            bool
	}{
		{"default", "web", true},
		{"", "system:node-reader", true}, // as roles have it
		{"", "", true},
		{"default", "...", true},
		{"default", "..", false},
		{"default", ".", false},
		{"..", "web", false},
		{"default", "../../kube-system/secrets/x", false},
		{"../kube-system", "x", false},
		{"default", "%2e%2e", false},
		{"default", "web/status", false},
	} {
		err := paths.CheckNames(tc.namespace, tc.name)
		if (err == nil) != tc.want || err != nil && !errors.Is(err, paths.ErrNoName) {
			t.Errorf("%q in %q: %v", tc.name, tc.namespace, err)
		}
	}
	if err := paths.CheckNames("", "/"+strings.Repeat("x", 1000)); len(err.Error()) > 200 {
		t.Errorf("what a stranger has written is shown whole: %v", err)
	}
}

// sent is a transport that counts what is sent.
type sent int

// RoundTrip implements http.RoundTripper.
func (s *sent) RoundTrip(*http.Request) (*http.Response, error) {
	*s++
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestRequestsStayBelowThePathOfTheirServer(t *testing.T) {
	t.Parallel()
	for host, requests := range map[string]map[string]bool{
		"https://gateway/k8s/clusters/mine": {
			"https://gateway/k8s/clusters/mine":                     true,
			"https://gateway/k8s/clusters/mine/":                    true,
			"https://gateway/k8s/clusters/mine/api/v1/nodes":        true,
			"https://gateway/k8s/clusters/mine/api/v1/nodes/..a":    true,
			"https://gateway/k8s/clusters/yours/api/v1/nodes":       false,
			"https://gateway/k8s/clusters/mine2/api/v1/nodes":       false,
			"https://gateway/api/v1/nodes":                          false,
			"https://gateway/":                                      false,
			"https://gateway":                                       false,
			"https://gateway/k8s/clusters/mine/../yours/api":        false,
			"https://gateway/k8s/clusters/mine/%2e%2e/yours/api":    false,
			"https://gateway/k8s/clusters/mine/x%2F..%2F../yours":   false,
			"https://gateway/k8s/clusters/mine/api/./v1":            false,
			"https://gateway/k8s/clusters/mine/api/v1/namespaces/.": false,
		},
		"https://gateway/k8s/clusters/mine/": {
			"https://gateway/k8s/clusters/mine/api": true,
			"https://gateway/k8s/clusters/yours":    false,
		},
		"server:6443": {
			"http://server:6443":           true,
			"http://server:6443/api":       true,
			"http://server:6443/api/../v1": false,
		},
	} {
		inner := new(sent)
		cfg := &rest.Config{Host: host, Transport: inner}
		paths.Confine(cfg, `cluster "mine"`)
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for url, want := range requests {
			before := *inner
			resp, err := client.Get(url) //nolint:noctx // nothing is sent
			if err == nil {
				_ = resp.Body.Close()
			}
			if (err == nil) != want || (*inner > before) != want {
				t.Errorf("a request to %s of the server %s: %v, want it sent: %t", url, host, err, want)
			}
			if !want && (!errors.Is(err, paths.ErrBeyond) || !strings.Contains(err.Error(), `cluster "mine"`)) {
				t.Errorf("a request to %s is refused with: %v", url, err)
			}
		}
	}
}

// body notes that it was closed.
type body struct {
	io.Reader

	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

// TestTheBodyOfARequestThatIsNotSentIsClosed, as each RoundTripper has to do it.
func TestTheBodyOfARequestThatIsNotSentIsClosed(t *testing.T) {
	t.Parallel()
	cfg := &rest.Config{Host: "https://gateway/k8s/clusters/mine", Transport: new(sent)}
	paths.Confine(cfg, "mine")
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	written := &body{Reader: strings.NewReader("x")}
	if _, err := client.Post("https://gateway/k8s/clusters/yours", "text/plain", written); !errors.Is(err, paths.ErrBeyond) { //nolint:noctx,bodyclose // nothing is sent
		t.Errorf("the request is refused with: %v", err)
	}
	if !written.closed {
		t.Error("its body is open")
	}
}
