package access_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
	"github.com/fleet-runtime/fleet-runtime/providers/access"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
)

// asks counts requests for tokens.
type asks struct {
	http.RoundTripper

	count *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (a asks) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/token") {
		a.count.Add(1)
	}
	return a.RoundTripper.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport.
func (a asks) WrappedRoundTripper() http.RoundTripper { return a.RoundTripper }

// TestManyMembersThatGetNoTokenKeepNoOtherFromOne: nothing limits what the hub is asked for but that they try again in turn.
func TestManyMembersThatGetNoTokenKeepNoOtherFromOne(t *testing.T) {
	const broken, perSecond = 200, 10
	h, members := startHub(t, 1)
	for i := range broken {
		a := accesstest.New(members[0], h.namespace, fmt.Sprintf("broken-%d", i))
		a.Spec.Federated = &v1alpha1.Federated{ServiceAccountName: "nobody"}
		accesstest.Create(t, h.ControlPlane, a)
	}
	a := accesstest.Mint(t, h.ControlPlane, members[0], h.namespace, "works")
	h.remove(t, "works")
	count := &atomic.Int64{}
	cfg := h.Config()
	cfg.QPS, cfg.Burst = 1, 1
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return asks{rt, count} })
	f := hubtest.Follow(t, cfg, &access.Provider{Namespace: h.namespace})
	for i := range broken {
		f.WaitFor(t, fleet.ClusterName(fmt.Sprintf("broken-%d", i)), fleet.Connecting, v1alpha1.ReasonServiceAccountNotFound)
	}
	// First attempts are made at once, and those after them in turn.
	last := count.Load()
	err := wait.PollUntilContextTimeout(t.Context(), time.Second, 2*time.Minute, false, func(context.Context) (bool, error) {
		asked := count.Load() - last
		last += asked
		return asked <= perSecond*6/5, nil
	})
	if err != nil {
		t.Fatalf("the hub is asked for more all the time: %v", err)
	}
	before, begin := count.Load(), time.Now()
	for i := range 10 {
		name := fmt.Sprintf("works-%d", i)
		accesstest.Create(t, h.ControlPlane, &v1alpha1.ClusterAccess{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}, Spec: a.Spec})
		f.WaitFor(t, fleet.ClusterName(name), fleet.Ready, "")
	}
	took := time.Since(begin)
	asked := count.Load() - before
	t.Logf("%d members got no token in %d requests of the hub, in %s", broken, asked, took)
	if most := int64(perSecond*took.Seconds()) + 20; asked > most {
		t.Errorf("%d requests for tokens in %s, want %d at most", asked, took, most)
	}
}
