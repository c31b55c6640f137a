package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	patience := time.NewTimer(2 * time.Minute)
	defer patience.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-patience.C:
			t.Fatalf("still not so: %s", what)
		}
	}
}

// prometheus is one that runs, by its address.
type prometheus string

// scraping starts a Prometheus with the rules, whose times are shortened to seconds, until the test ends.
func scraping(t *testing.T, target string) prometheus {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("SKIPPED: NO PROMETHEUS HAS SCRAPED A FLEET ON THIS MACHINE. Install Debian's package prometheus, or put the folder that hack/debian-programs.sh prints into PATH.")
	}
	folder, address := t.TempDir(), mctest.Address(t)
	rules, err := yaml.Marshal(groups("2s"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"rules.yaml": strings.NewReplacer("offset 10m", "offset 3s", "[10m]", "[5s]").Replace(string(rules)),
		"config.yaml": fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yaml]\n"+
			"scrape_configs: [{job_name: fleet, static_configs: [{targets: [%q]}]}]\n", target),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // t.Context ends before clean-up, which waits for the end
	cmd := exec.CommandContext(ctx, program, "--config.file="+filepath.Join(folder, "config.yaml"), "--storage.tsdb.path="+filepath.Join(folder, "data"),
		"--web.listen-address="+address, "--log.level=error")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
	})
	p := prometheus("http://" + address)
	eventually(t, "Prometheus answers", func() bool { return p.get(t.Context(), "/api/v1/alerts", new(any)) == nil })
	return p
}

// get asks Prometheus, and reads the data of its answer.
func (p prometheus) get(ctx context.Context, path string, data any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, string(p)+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return nil
}

// firing returns the names of the alerts that fire, each with its severity and, if it has one, its cluster.
func (p prometheus) firing(t *testing.T) (names []string) {
	t.Helper()
	var data struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}
	if err := p.get(t.Context(), "/api/v1/alerts", &data); err != nil {
		t.Fatal(err)
	}
	for _, a := range data.Alerts {
		if a.State == "firing" {
			names = append(names, strings.TrimSpace(a.Labels["alertname"]+" "+a.Labels["severity"]+" "+a.Labels["cluster"]))
		}
	}
	return names
}

// breaking is a fleet of which much can be broken.
type breaking struct {
	provider *fleettest.Provider
	good     *mctest.ControlPlane
	limited  *rest.Config  // may not read Secrets
	works    chan struct{} // closed when a reconcile has begun
	began    sync.Once
	stuck    chan struct{} // closed when a reconcile of the member "stuck" hangs
	mended   chan struct{} // closed when it is to go on
	hangs    atomic.Bool
	busy     atomic.Bool // each reconcile takes its time, and is to come again
}

// Reconcile implements mcreconcile.Reconciler. While it hangs, it heeds its context no more than a bad reconciler does.
func (b *breaking) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	b.began.Do(func() { close(b.works) })
	if req.ClusterName == "stuck" && b.hangs.CompareAndSwap(false, true) {
		close(b.stuck)
		<-b.mended
	}
	if b.busy.Load() {
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	}
	return reconcile.Result{}, nil
}

func (b *breaking) set(t *testing.T, m fleet.Member) {
	t.Helper()
	m.Identity = string(m.Name) // they are one server, and clusters of their own
	if err := b.provider.Set(m); err != nil {
		t.Fatal(err)
	}
}

// start runs the manager of the fleet until the test ends, and returns where its metrics are. It is the only one of its replicas.
func (b *breaking) start(t *testing.T, namespace string) (metrics string) {
	t.Helper()
	metrics = mctest.Address(t)
	mgr, err := mcmanager.New(b.good.Config(), b.provider, mcmanager.Options{Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: metrics}},
		mcmanager.Sharded(sharding.Options{ID: "fleet", Namespace: namespace, Name: "only"}))
	if err != nil {
		t.Fatal(err)
	}
	err = mcbuilder.ControllerManagedBy(mgr).Named("secrets").For(&corev1.Secret{}).
		WithOptions(mcbuilder.Options{MaxConcurrentReconciles: 1, SkipNameValidation: new(true)}).Complete(b)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // t.Context ends before clean-up, which waits for the end
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended with an error: %v", err)
		}
	})
	return metrics
}

// TestAPrometheusSeesAFleetBreak, and sees it mended: alerts fire and resolve, and panels have data.
func TestAPrometheusSeesAFleetBreak(t *testing.T) {
	b := &breaking{provider: &fleettest.Provider{}, good: pool.Share(t, mctest.Options{}), works: make(chan struct{}), stuck: make(chan struct{}), mended: make(chan struct{})}
	b.limited = b.good.AddUser(t, "limited", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{NonResourceURLs: []string{"*"}, Verbs: []string{"get"}})
	ns := b.good.CreateNamespace(t)
	for _, name := range []string{"a", "b", "c"} {
		if err := b.good.Client().Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	p := scraping(t, b.start(t, ns))
	mend := sync.OnceFunc(func() { close(b.mended) })
	t.Cleanup(mend) // the manager waits for it
	good := b.good.Config()
	b.set(t, fleet.Member{Name: "good", Config: good})
	<-b.works
	b.set(t, fleet.Member{Name: "stuck", Config: good})
	<-b.stuck
	b.set(t, fleet.Member{Name: "expiring", Config: good, Expires: time.Now().Add(4 * time.Minute)})
	b.set(t, fleet.Member{Name: "limited", Config: b.limited})
	b.set(t, fleet.Member{Name: "broken", Err: errors.New("broken")})
	b.set(t, fleet.Member{Name: "down", Config: &rest.Config{Host: "https://" + mctest.Address(t)}})
	b.set(t, fleet.Member{Name: "deserted", Config: good, Labels: map[string]string{sharding.LabelPool: "nobody"}})
	b.provider.SetProblem(fleet.Problem{About: "all", Reason: "Timeout", Message: "the hub is silent"})
	p.wantFiring(t, "FleetMemberWithoutOwner critical", "FleetQueueStarved warning stuck",
		"FleetMemberNotReady warning broken", "FleetMemberNotReady warning down", "FleetManyNotReady critical",
		"FleetKindNotSynced warning limited", "FleetCredentialExpiring critical expiring", "FleetCredentialExpiring warning expiring",
		"FleetHubLost critical")
	p.wantData(t)
	drained := b.provider.Remove("stuck")
	p.wantFiring(t, "FleetDrainStuck warning stuck")

	mend()
	<-drained
	for _, name := range []fleet.ClusterName{"limited", "broken", "down", "deserted"} {
		b.set(t, fleet.Member{Name: name, Config: good})
	}
	b.set(t, fleet.Member{Name: "expiring", Config: good, Expires: time.Now().Add(100 * 24 * time.Hour)})
	b.provider.SetProblem(fleet.Problem{About: "all"})
	eventually(t, "nothing fires", func() bool { return len(p.firing(t)) == 0 })

	b.busy.Store(true)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a", Labels: map[string]string{"work": "much"}}}
	if err := b.good.Client().Update(t.Context(), secret); err != nil { // which all members have
		t.Fatal(err)
	}
	p.wantFiring(t, "FleetQueueStarved warning")
	b.busy.Store(false)
	eventually(t, "nothing fires after the work", func() bool { return len(p.firing(t)) == 0 })
}

func (p prometheus) wantFiring(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("there fire %q, want %q", got, want)
		}
	}()
	eventually(t, "alerts fire", func() bool {
		got = p.firing(t)
		return !slices.ContainsFunc(want, func(name string) bool { return !slices.Contains(got, name) })
	})
}

// wantData asks what each panel asks. Only what the fleet does not do has no data.
func (p prometheus) wantData(t *testing.T) {
	t.Helper()
	none := map[string]bool{"Members that leave": true, "Requests that were dropped with their member": true, "Reconciles that fail": true}
	values := strings.NewReplacer("$__rate_interval", "30s", "$job", ".*", "$cluster", ".*")
	for name, d := range dashboards() {
		for _, panel := range d.Panels {
			var data struct{ Result []any }
			err := p.get(t.Context(), "/api/v1/query?"+url.Values{"query": {values.Replace(panel.Targets[0].Expr)}}.Encode(), &data)
			if err != nil {
				t.Errorf("%s, %s: %v", name, panel.Title, err)
			}
			if len(data.Result) == 0 && !none[panel.Title] {
				t.Errorf("%s, %s: there is no data", name, panel.Title)
			}
		}
	}
}
