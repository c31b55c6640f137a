package dependents_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// mire is a way to a cluster on which some requests get no answer, as when a webhook hangs.
type mire struct {
	sinks   func(*http.Request) bool
	sunk    *atomic.Int32
	through http.RoundTripper
}

// into returns the config of a cluster with the mire on the way. It counts what gets no answer.
func into(cp *mctest.ControlPlane, sinks func(*http.Request) bool) (*rest.Config, *atomic.Int32) {
	cfg, sunk := cp.Config(), &atomic.Int32{}
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { return &mire{sinks, sunk, through} })
	return cfg, sunk
}

// RoundTrip implements http.RoundTripper.
func (m *mire) RoundTrip(req *http.Request) (*http.Response, error) {
	if !m.sinks(req) {
		return m.through.RoundTrip(req)
	}
	m.sunk.Add(1)
	<-req.Context().Done()
	return nil, context.Cause(req.Context())
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (m *mire) WrappedRoundTripper() http.RoundTripper { return m.through }

// add has a process know a member, on the way that is given.
func (p *process) add(cp *mctest.ControlPlane, cfg *rest.Config) {
	p.t.Helper()
	if err := p.members.Set(fleet.Member{Name: fleet.ClusterName(cp.Name), Config: p.power.feed(cfg)}); err != nil {
		p.t.Fatal(err)
	}
}

// deletions are those of ConfigMaps whose names begin with "orphan".
func deletions(req *http.Request) bool {
	return req.Method == http.MethodDelete && strings.Contains(req.URL.Path, "/configmaps/orphan")
}

// goneOwner refers to an owner in the local cluster that is gone.
func (w *world) goneOwner(change ...func(*mcowner.Reference)) mcowner.Reference {
	w.t.Helper()
	owner := w.owner("gone")
	owner.UID = "of-one-that-is-gone"
	return w.to(owner, change...)
}

func TestRemovalsThatHangHoldUpNoOtherCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	w.Members = nil // reported below
	cfg, sunk := into(one, deletions)
	w.owned(one, "orphan", w.goneOwner())
	p := w.collect(func(c *orphans.Collector) { c.Timeout = time.Hour })
	p.add(one, cfg)
	p.add(two, two.Config())
	eventually(t, "a removal hangs", func() bool { return sunk.Load() == 1 })
	for i := range 3 {
		w.isGone(two, w.owned(two, fmt.Sprintf("orphan-%d", i), w.goneOwner()).Name)
	}
	if n := sunk.Load(); n != 1 {
		t.Errorf("the cluster was swept %d times at once", n)
	}
}

// sweeps returns how many sweeps of a member have begun, at most.
func (w *world) sweeps(cp *mctest.ControlPlane) int32 {
	w.t.Helper()
	ended := w.metric("fleet_runtime_sweeps_total", cp, "result", "success") + w.metric("fleet_runtime_sweeps_total", cp, "result", "error")
	return int32(ended) + 1
}

// hangingWebhook makes a cluster ask, before it deletes a ConfigMap whose name begins with "orphan", somebody who never
// answers. It returns once the cluster does.
func (w *world) hangingWebhook(cp *mctest.ControlPlane) *rest.Config {
	w.t.Helper()
	url, none, timeout := "https://"+mctest.Silent(w.t), admissionregistrationv1.SideEffectClassNone, int32(1)
	w.create(cp, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hanging"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "hanging.example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url},
			TimeoutSeconds:          &timeout,
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
			MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "orphans", Expression: `request.name.startsWith("orphan")`}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	})
	probe := w.owner("orphan-probe")
	w.create(cp, probe)
	eventually(w.t, "the webhook is asked", func() bool {
		return apierrors.IsInternalError(cp.Client().Delete(w.t.Context(), probe, client.DryRunAll))
	})
	return cp.Config()
}

// TestRemovalsThatHangEndTheLookAtTheirKind, and the next sweep begins after them: what does not hang has its turn.
func TestRemovalsThatHangEndTheLookAtTheirKind(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]func(*world, *mctest.ControlPlane) (cfg *rest.Config, timeout time.Duration){
		"the API server gives no answer": func(_ *world, cp *mctest.ControlPlane) (*rest.Config, time.Duration) {
			cfg, _ := into(cp, deletions)
			return cfg, time.Second
		},
		"a webhook gives no answer": func(w *world, cp *mctest.ControlPlane) (*rest.Config, time.Duration) {
			return w.hangingWebhook(cp), time.Minute
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const most = 3 // tries of a sweep
			w := newWorld(t, 1)
			one := w.Members[0]
			w.Members = nil // reported below
			cfg, timeout := hang(w, one)
			for i := range 3 * most {
				w.owned(one, fmt.Sprintf("orphan-%d", i), w.goneOwner())
			}
			last := w.owned(one, "z-does-not-hang", w.goneOwner())
			orphan := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "of-another-kind"}}
			if err := mcowner.SetControllerReference(w.goneOwner(), orphan, mcowner.ByName(fleet.ClusterName(one.Name))); err != nil {
				t.Fatal(err)
			}
			w.create(one, orphan)
			p := w.collect(func(c *orphans.Collector) {
				c.Kinds = append(c.Kinds, &corev1.Secret{})
				c.Timeout = timeout
			})
			p.add(one, cfg)
			eventually(t, "the orphan of another kind is removed", func() bool {
				return apierrors.IsNotFound(one.Client().Get(t.Context(), client.ObjectKeyFromObject(orphan), orphan))
			})
			w.isGone(one, last.Name)
			const removed = 2
			if n, sweeps := p.power.deletions.Load(), w.sweeps(one); n > most*sweeps+removed {
				t.Errorf("%d removals were tried in %d sweeps, want %d in each at most that hang, and %d that do not", n, sweeps, most, removed)
			}
		})
	}
}

// endless is a way to a cluster whose lists of ConfigMaps have no end.
type endless struct {
	pages   *atomic.Int32
	page    string // the objects on each
	through http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (e *endless) RoundTrip(req *http.Request) (*http.Response, error) {
	if query := req.URL.Query(); !strings.HasSuffix(req.URL.Path, "/configmaps") || !query.Has("limit") || query.Has("watch") {
		return e.through.RoundTrip(req)
	}
	page := fmt.Sprintf(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"1","continue":"%d"},"items":[%s]}`, e.pages.Add(1), e.page)
	return &http.Response{
		StatusCode: http.StatusOK, Status: http.StatusText(http.StatusOK), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(page)), Request: req,
	}, nil
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (e *endless) WrappedRoundTripper() http.RoundTripper { return e.through }

// TestAListWithoutEndIsGivenUp, so that it holds no worker for ever: the member's other kinds have their turn.
func TestAListWithoutEndIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		page  string
		size  int64
		pages int32
	}{
		"as long as there are objects": {page: `{"metadata":{"namespace":"default","name":"one","uid":"1"}}`, size: 250_000, pages: 4}, // a million
		"without objects":              {size: 500, pages: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			w.Members = nil // reported below
			orphan := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "of-another-kind"}}
			if err := mcowner.SetControllerReference(w.goneOwner(), orphan, mcowner.ByName(fleet.ClusterName(one.Name))); err != nil {
				t.Fatal(err)
			}
			w.create(one, orphan)
			p := w.collect(func(c *orphans.Collector) {
				c.Kinds = append(c.Kinds, &corev1.Secret{})
				c.PageSize, c.Listing = tc.size, time.Hour
			})
			cfg, pages := one.Config(), &atomic.Int32{}
			cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { return &endless{pages, tc.page, through} })
			p.add(one, cfg)
			eventually(t, "the orphan of another kind is removed", func() bool {
				return apierrors.IsNotFound(one.Client().Get(t.Context(), client.ObjectKeyFromObject(orphan), orphan))
			})
			eventually(t, "it is told", func() bool { return w.metric("fleet_runtime_sweeps_total", one, "result", "error") > 0 })
			if n := pages.Load(); n != tc.pages {
				t.Errorf("%d pages were asked for, want %d", n, tc.pages)
			}
		})
	}
}

func TestOwnersThatGiveNoAnswerHoldUpNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	w.Members = nil // reported below
	cfg, sunk := into(two, func(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/configmaps/gone") })
	for i := range 10 {
		w.owned(one, fmt.Sprintf("a-%d", i), w.goneOwner(func(r *mcowner.Reference) { r.Cluster = fleet.ClusterName(two.Name) }))
	}
	orphan := w.owned(one, "b", w.goneOwner())
	var sweeps atomic.Int32 // that have begun, by their first requests
	swept, _ := into(one, func(req *http.Request) bool {
		if query := req.URL.Query(); strings.HasSuffix(req.URL.Path, "/configmaps") && query.Has("limit") && !query.Has("continue") {
			sweeps.Add(1)
		}
		return false
	})
	p := w.collect(func(c *orphans.Collector) { c.Timeout = time.Second })
	p.add(one, swept)
	p.add(two, cfg)
	p.is(two, fleet.Ready)
	w.isGone(one, orphan.Name)
	w.swept(one, 2)
	if n, begun := sunk.Load(), sweeps.Load(); n > begun {
		t.Errorf("an owner's cluster that gives no answer was asked %d times in %d sweeps, want once in each at most", n, begun)
	}
	eventually(t, "a sweep that was not disturbed says that 10 are unproven", func() bool {
		return w.metric("fleet_runtime_unproven_dependents", one, "", "") == 10
	})
}

// TestOwnersWhoseCacheDoesNotSyncHoldUpNothing: their cluster answers when it is asked for one of them.
func TestOwnersWhoseCacheDoesNotSyncHoldUpNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	w.Members = nil // reported below
	cfg, _ := into(two, func(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/configmaps") })
	const count, timeout = 40, 3 * time.Second // to wait for each would take as long as the test's patience
	for i := range count {
		w.owned(one, fmt.Sprintf("orphan-%d", i), w.goneOwner(func(r *mcowner.Reference) { r.Cluster = fleet.ClusterName(two.Name) }))
	}
	p := w.collect(func(c *orphans.Collector) { c.Timeout = timeout })
	p.add(one, one.Config())
	p.add(two, cfg)
	eventually(t, "all orphans are removed", func() bool { return len(w.list(one)) == 0 })
	sweeps := w.metric("fleet_runtime_sweeps_total", one, "result", "success")
	removed := func() float64 { return w.metric("fleet_runtime_orphans_total", one, "action", "deleted") }
	eventually(t, "all are counted", func() bool { return removed() >= count })
	if n := removed(); n != count || sweeps > count {
		t.Errorf("%v orphans were removed in %v sweeps", n, sweeps)
	}
}
