package mcmanager_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

var pool mctest.Pool

// klogged is what is logged by client-go and controller-runtime with no logger of ours.
var klogged lineLog

func TestMain(m *testing.M) {
	klog.SetLogger(klogged.logger())
	log.SetLogger(klogged.logger())
	os.Exit(pool.Run(m))
}

// serving is a manager that serves metrics and probes.
type serving struct {
	mcmanager.Manager
	t               *testing.T
	members         *fleettest.Provider
	metrics, probes string
}

func newServing(t *testing.T, local *mctest.ControlPlane) *serving {
	t.Helper()
	return newServingWith(t, local, mcmanager.Options{})
}

func newServingWith(t *testing.T, local *mctest.ControlPlane, opts mcmanager.Options) *serving {
	t.Helper()
	s := &serving{t: t, members: &fleettest.Provider{}, metrics: mctest.Address(t), probes: mctest.Address(t)}
	opts.Logger, opts.Metrics.BindAddress, opts.HealthProbeBindAddress = logr.Discard(), s.metrics, s.probes
	mgr, err := mcmanager.New(local.Config(), s.members, opts, func(o *fleet.Options) {
		o.Health = fleet.HealthOptions{ProbeInterval: 100 * time.Millisecond, RetryInterval: 50 * time.Millisecond}
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Manager = mgr
	return s
}

// start runs the manager until stop is called, or the test ends.
func (s *serving) start() (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // t.Context ends before clean-up, which waits for the end
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("the manager ended with an error: %v", err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

func (s *serving) join(name string, cfg *rest.Config, labels map[string]string) {
	s.t.Helper()
	set(s.t, s.members, fleet.Member{Name: fleet.ClusterName(name), Config: cfg, Labels: labels})
}

// get returns the code and the body of an answer, and zero while there is none.
func (s *serving) get(address, path string) (code int, body string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(content)
}

// becomes waits until an answer has the code and the text.
func (s *serving) becomes(address, path string, code int, text string) {
	s.t.Helper()
	var got int
	var body string
	s.eventually(func() bool {
		got, body = s.get(address, path)
		return got == code && strings.Contains(body, text)
	}, func() { s.t.Fatalf("%s still answers %d, want %d with %q:\n%s", path, got, code, text, body) })
}

func (s *serving) is(name fleet.ClusterName, state fleet.State) {
	s.t.Helper()
	s.eventually(func() bool {
		status, _ := s.GetFleet().Status(name)
		return status.State == state
	}, func() { s.t.Fatalf("member %s is still not %s", name, state) })
}

func (s *serving) eventually(holds func() bool, orElse func()) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	patience := time.NewTimer(time.Minute)
	defer patience.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-patience.C:
			orElse()
		}
	}
}

// TestTheMetricsServerShowsTheMembers: their series and the page, both gone with the member.
func TestTheMetricsServerShowsTheMembers(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := f.Members[0].CreateNamespace(t)
	s := newServing(t, f.Local)
	var failing atomic.Bool
	failing.Store(true)
	err := mcbuilder.ControllerManagedBy(s).Named("shown").For(&corev1.Namespace{}).
		WithOptions(mcbuilder.Options{SkipNameValidation: new(true)}). // for go test -count
		Complete(mcreconcile.Func(func(_ context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			if req.Name == ns && failing.CompareAndSwap(true, false) {
				panic("once")
			}
			return reconcile.Result{}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	s.start()
	everything := rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}
	s.join("east", f.Members[0].AddUser(t, "first", everything), map[string]string{"region": "<east>"})
	s.is("east", fleet.Ready)

	s.becomes(s.metrics, "/metrics", 200, `fleet_runtime_member_state{cluster="east",state="Ready"} 1`)
	s.becomes(s.metrics, "/metrics", 200, `fleet_runtime_member_reconciles_total{cluster="east",controller="shown",result="error"} 1`)
	s.becomes(s.metrics, "/metrics", 200, `fleet_runtime_member_reconciles_total{cluster="east",controller="shown",result="success"} `)
	s.becomes(s.metrics, "/metrics", 200, `fleet_runtime_member_last_probe_seconds{cluster="east"} `)
	s.join("east", f.Members[0].AddUser(t, "second", everything), map[string]string{"region": "<east>"})
	s.becomes(s.metrics, "/metrics", 200, `fleet_runtime_member_rotations_total{cluster="east"} 1`)
	s.becomes(s.metrics, "/metrics", 200, `fleet_runtime_member_engagements_total{cluster="east"} 1`)

	identity, err := fleet.ReadIdentity(t.Context(), f.Members[0].Client())
	if err != nil || identity == "" {
		t.Fatalf("the identity of the member: %q, %v", identity, err)
	}
	s.becomes(s.metrics, "/debug/fleet", 200, `<th scope="row" title="cluster `+identity+"\"><a href=\"?member=east\">east</a></th>\n<td class=\"state Ready\">Ready</td>")
	s.becomes(s.metrics, "/debug/fleet", 200, "there is no leader election")
	s.becomes(s.metrics, "/debug/fleet", 200, "region=&lt;east&gt;")
	_, page := s.get(s.metrics, "/debug/fleet?format=json")
	var shown struct {
		Members []struct {
			fleet.Status
			Queues map[string]mcqueue.Stats
		}
	}
	if err := json.Unmarshal([]byte(page), &shown); err != nil {
		t.Fatal(err)
	}
	if len(shown.Members) != 1 || shown.Members[0].Name != "east" || shown.Members[0].State != fleet.Ready ||
		shown.Members[0].Since.IsZero() || len(shown.Members[0].Queues) != 1 {
		t.Errorf("the JSON shows %s", page)
	}

	s.becomes(s.metrics, "/debug/fleet?member=east", 200, `<th scope="row">Namespace</th>`+"\n"+`<td class="state Synced">Synced</td>`)
	s.becomes(s.metrics, "/debug/fleet?member=east&format=json", 200, `"history": [`)

	<-s.members.Remove("east")
	for _, path := range []string{"/metrics", "/debug/fleet", "/debug/fleet?format=json"} {
		if code, body := s.get(s.metrics, path); code != 200 || strings.Contains(body, "east") {
			t.Errorf("after Remove, %s answers %d:\n%s", path, code, body)
		}
	}
}

// TestThePageOfAStandbySaysThatItIsOne: it shows members, and its controllers do not work.
func TestThePageOfAStandbySaysThatItIsOne(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	elect := mcmanager.Options{
		LeaderElection: true, LeaderElectionID: "replicas", LeaderElectionNamespace: f.Local.CreateNamespace(t),
		LeaderElectionReleaseOnCancel: true,
	}
	one, two := newServingWith(t, f.Local, elect), newServingWith(t, f.Local, elect)
	stop := one.start()
	one.becomes(one.metrics, "/debug/fleet", 200, "This replica is the leader.")
	two.start()
	two.join("east", f.Members[0].Config(), nil)
	two.is("east", fleet.Ready)
	two.becomes(two.metrics, "/debug/fleet", 200, "This replica is a standby")
	two.becomes(two.metrics, "/debug/fleet?format=json", 200, `"role": "standby"`)
	stop()
	two.becomes(two.metrics, "/debug/fleet", 200, "This replica is the leader.")
	two.becomes(two.metrics, "/debug/fleet?format=json", 200, `"role": "leader"`)
}

// TestTheManagerIsReadyWhileAMemberIsNot: unless a check says how many of them must be.
func TestTheManagerIsReadyWhileAMemberIsNot(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 2})
	s := newServing(t, f.Local)
	for name, check := range map[string]healthz.Checker{
		"ping": healthz.Ping, "half": mcmanager.AtLeastReady(s.GetFleet(), 50), "all": mcmanager.AtLeastReady(s.GetFleet(), 100),
	} {
		if err := s.AddReadyzCheck(name, check); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	s.becomes(s.probes, "/readyz", 200, "")
	s.join("stays", f.Members[0].Config(), nil)
	s.join("away", f.Members[1].Config(), nil)
	s.is("stays", fleet.Ready)
	s.is("away", fleet.Ready)
	s.becomes(s.probes, "/readyz", 200, "")

	f.Members[1].Stop(t)
	s.is("away", fleet.Unreachable)
	s.becomes(s.probes, "/readyz/ping", 200, "")
	s.becomes(s.probes, "/readyz/half", 200, "")
	s.becomes(s.probes, "/readyz/all", 500, "")
	s.becomes(s.probes, "/readyz?exclude=all", 200, "")
	s.becomes(s.metrics, "/metrics", 200, `fleet_runtime_members{state="Unreachable"} 1`)

	f.Members[1].Restart(t)
	s.becomes(s.probes, "/readyz", 200, "")
}

// TestTheUsersOwnPageIsNotReplaced: one at the same path is an error, not a surprise.
func TestTheUsersOwnPageIsNotReplaced(t *testing.T) {
	f := pool.Start(t, mctest.Options{})
	_, err := mcmanager.New(f.Local.Config(), &fleettest.Provider{}, mcmanager.Options{
		Logger: logr.Discard(),
		Metrics: metricsserver.Options{
			BindAddress: "127.0.0.1:0", ExtraHandlers: map[string]http.Handler{"/debug/fleet": http.NotFoundHandler()},
		},
	})
	if err == nil || !strings.Contains(err.Error(), "/debug/fleet") {
		t.Errorf("New() = %v, want an error that names the path", err)
	}
}
