package access_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// tally counts requests to the hub: what is written of accesses, and how often the Secret of those that are silent is read, which is twice in
// a check.
type tally struct {
	http.RoundTripper

	writes, reads *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c tally) RoundTrip(req *http.Request) (*http.Response, error) {
	switch {
	case strings.Contains(req.URL.Path, "/clusteraccesses/") && req.Method != http.MethodGet:
		c.writes.Add(1)
	case strings.HasSuffix(req.URL.Path, "/secrets/silent"):
		c.reads.Add(1)
	}
	return c.RoundTripper.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport.
func (c tally) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }

// TestManyAccessesThatDoNotWorkDelayNoOther, and are not written when they fail again.
func TestManyAccessesThatDoNotWorkDelayNoOther(t *testing.T) {
	t.Parallel()
	const ofEach, checksAtOnce = 60, 16
	w := newWorld(t, 1)
	works := w.mint(t)
	secret := w.secret(t, works).DeepCopy()
	silent := "https://" + mctest.Silent(t)
	secret.ObjectMeta, secret.Data["server"] = metav1.ObjectMeta{Namespace: w.namespace, Name: "silent"}, []byte(silent)
	accesstest.Create(t, w.hub, secret)
	accesstest.Create(t, w.hub, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: accesstest.Operator}})

	var writes, reads atomic.Int64
	cfg := w.hub.Config()
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return tally{rt, &writes, &reads} })
	w.controlBy(t, cfg)
	kinds := map[string]struct {
		change func(s *v1alpha1.ClusterAccessSpec)
		reason string
	}{
		"silent": {func(s *v1alpha1.ClusterAccessSpec) { s.Server, s.Minter.SecretName = silent, "silent" }, fleet.ReasonTimeout},
		"nobody": {func(s *v1alpha1.ClusterAccessSpec) {
			s.Minter, s.Federated = nil, &v1alpha1.Federated{ServiceAccountName: "nobody"}
		}, v1alpha1.ReasonServiceAccountNotFound},
		"secretless": {func(s *v1alpha1.ClusterAccessSpec) { s.Minter.SecretName = "none" }, v1alpha1.ReasonSecretNotFound},
	}
	for kind, k := range kinds {
		for i := range ofEach {
			w.create(t, fmt.Sprintf("%s-%d", kind, i), works, k.change)
		}
	}
	for kind, k := range kinds {
		for i := range ofEach {
			w.waitFor(t, fmt.Sprintf("%s-%d", kind, i), k.reason)
		}
	}
	before := writes.Load()
	const more = 5
	for i := range more {
		name, begun := fmt.Sprintf("works-%d", i), reads.Load()
		w.create(t, name, works, func(*v1alpha1.ClusterAccessSpec) {})
		w.waitFor(t, name, v1alpha1.ReasonAsExpected)
		if n := (reads.Load() - begun) / 2; n > checksAtOnce {
			t.Errorf("%d checks of clusters that are silent were begun before that of one that works", n)
		}
	}
	if n := writes.Load() - before; n != more {
		t.Errorf("%d writes, want one for each of the %d accesses that are new", n, more)
	}
}

// TestManyMembersGetTheirFirstTokensWhateverTheLimitOfTheClient: each waits for ten seconds at most, in which the config allows 230.
func TestManyMembersGetTheirFirstTokensWhateverTheLimitOfTheClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		granted := grants(t, "{}", time.Hour, &asked)
		answers := roundTripper(func(req *http.Request) (*http.Response, error) {
			to := httptest.NewRecorder()
			granted(to, req)
			return to.Result(), nil
		})
		hub, err := access.NewHub(&rest.Config{Host: "https://hub", QPS: 20, Burst: 30}, &http.Client{Transport: answers})
		accesstest.Must(t, err)
		sources := access.NewSources(hub)
		defer sources.Close()
		var all sync.WaitGroup
		var failed atomic.Int32
		for n := range 400 {
			source := sources.Source(&v1alpha1.ClusterAccess{
				ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: fmt.Sprint(n)},
				Spec:       v1alpha1.ClusterAccessSpec{Server: "https://east", Federated: &v1alpha1.Federated{ServiceAccountName: accesstest.Operator}},
			}, nil)
			all.Go(func() {
				if _, err := source.Token(t.Context()); err != nil {
					failed.Add(1)
				}
			})
		}
		all.Wait()
		if n := failed.Load(); n > 0 {
			t.Errorf("%d members get no token, of a hub that is well", n)
		}
	})
}
