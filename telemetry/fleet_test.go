package telemetry_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/telemetry"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }

func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	patience := time.NewTimer(2 * time.Minute)
	defer patience.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-patience.C:
			tb.Fatalf("still not so: %s", what)
		}
	}
}

// receiver takes spans by OTLP, as a collector does.
type receiver struct {
	mu    sync.Mutex // guards what follows
	bytes strings.Builder
	all   []*otlp.Span
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	sent, err := io.ReadAll(req.Body)
	var message collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(sent, &message)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes.Write(sent)
	for _, resource := range message.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			r.all = append(r.all, scope.Spans...)
		}
	}
}

// named returns the spans of that name.
func (r *receiver) named(name string) (spans []*otlp.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.all {
		if s.Name == name {
			spans = append(spans, s)
		}
	}
	return spans
}

// of returns an attribute of a span.
func of(s *otlp.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// collecting starts a receiver, and returns traces that are sent to it.
func collecting(t *testing.T) (*telemetry.Traces, *receiver) {
	t.Helper()
	r := &receiver{}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(server.URL))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(50*time.Millisecond)))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) }) //nolint:forbidigo // t.Context has ended
	return telemetry.New(telemetry.Options{TracerProvider: provider}), r
}

// applying is a reconciler that applies a ConfigMap and a Secret to each member for a ConfigMap of the local cluster.
type applying struct {
	mgr       mcmanager.Manager
	namespace string
	members   []*mctest.ControlPlane
	once      sync.Once
}

const secret = "what-only-the-body-says"

func (a *applying) Reconcile(ctx context.Context, req mcreconcile.Request) (result reconcile.Result, err error) {
	if req.Namespace != a.namespace {
		return reconcile.Result{}, nil
	}
	for _, m := range a.members {
		if _, err := a.mgr.GetCluster(ctx, mcreconcile.ClusterName(m.Name)); err != nil {
			return reconcile.Result{}, err
		}
	}
	a.once.Do(func() { err = a.apply(ctx) })
	return reconcile.Result{}, err
}

func (a *applying) apply(ctx context.Context) error {
	for _, m := range a.members {
		cl, err := a.mgr.GetCluster(ctx, mcreconcile.ClusterName(m.Name))
		if err != nil {
			return err
		}
		if err := cl.GetClient().List(ctx, &corev1.ConfigMapList{}, client.InNamespace(a.namespace)); err != nil { // begins an informer
			return err
		}
		config := corev1ac.ConfigMap("copy", metav1.NamespaceDefault).WithData(map[string]string{"key": secret})
		hidden := corev1ac.Secret("copy", metav1.NamespaceDefault).WithStringData(map[string]string{"key": secret})
		if err := cl.GetClient().Apply(ctx, config, client.FieldOwner("what-the-query-says"), client.ForceOwnership); err != nil {
			return err
		}
		if err := cl.GetClient().Apply(ctx, hidden, client.FieldOwner("what-the-query-says"), client.ForceOwnership); err != nil {
			return err
		}
	}
	return nil
}

// managing runs a manager whose fleet makes spans, until the test ends.
func managing(t *testing.T, traces *telemetry.Traces, local *rest.Config, provider fleet.Provider) mcmanager.Manager {
	t.Helper()
	mgr, err := mcmanager.New(traces.Config(local), provider, mcmanager.Options{
		Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)}, // names are of the process, and so of all runs of go test -count
	}, traces.Fleet)
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}

func start(t *testing.T, mgr mcmanager.Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // t.Context ends before clean-up, which waits for the end
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended with an error: %v", err)
		}
	})
}

// TestATraceHasOneSpanForEachApply: AS-9.8, by OTLP to a receiver, together with how members come, rotate and go.
func TestATraceHasOneSpanForEachApply(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 2})
	traces, got := collecting(t)
	provider := &fleettest.Provider{}
	for _, m := range f.Members {
		if err := provider.Set(fleet.Member{Name: fleet.ClusterName(m.Name), Config: m.Config()}); err != nil {
			t.Fatal(err)
		}
	}
	mgr := managing(t, traces, f.Local.Config(), provider)
	a := &applying{mgr: mgr, namespace: f.Local.CreateNamespace(t), members: f.Members}
	err := mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}, mcbuilder.InLocalCluster).Named("replicator").WithMiddleware(traces.Middleware()).Complete(a)
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "original"}}
	if err := f.Local.Client().Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	wantApplies(t, got, f.Members)

	first := f.Members[0]
	user := first.AddUser(t, "another", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}})
	if err := provider.Set(fleet.Member{Name: fleet.ClusterName(first.Name), Config: user}); err != nil {
		t.Fatal(err)
	}
	wantStep(t, got, "rotate", first.Name)
	<-provider.Remove(fleet.ClusterName(first.Name))
	wantStep(t, got, "drain", first.Name)
	for _, m := range f.Members {
		wantStep(t, got, "connect", m.Name)
	}
	wantNothingSecret(t, got)
}

// wantApplies waits for the spans of the requests, and fails the test unless there is one for each cluster and kind, under the
// reconcile's.
func wantApplies(t *testing.T, got *receiver, members []*mctest.ControlPlane) {
	t.Helper()
	eventually(t, "all applies have spans", func() bool {
		return len(got.named("PATCH configmaps")) >= len(members) && len(got.named("PATCH secrets")) >= len(members)
	})
	for _, kind := range []string{"configmaps", "secrets"} {
		clusters := map[string]int{}
		for _, s := range got.named("PATCH " + kind) {
			clusters[of(s, "k8s.cluster.name")]++
			eventually(t, "the reconcile has a span", func() bool { return isUnder(got, s, "reconcile replicator") })
		}
		for _, m := range members {
			if clusters[m.Name] != 1 || len(clusters) != len(members) {
				t.Errorf("the applies of %s have spans in %v, want one for each member", kind, clusters)
			}
		}
	}
}

// isUnder reports whether a span has one of this name as its parent.
func isUnder(got *receiver, s *otlp.Span, name string) bool {
	for _, parent := range got.named(name) {
		if string(parent.SpanId) == string(s.ParentSpanId) && string(parent.TraceId) == string(s.TraceId) {
			return true
		}
	}
	return false
}

func wantStep(t *testing.T, got *receiver, step, member string) {
	t.Helper()
	eventually(t, "there is a span "+step+" of "+member, func() bool {
		for _, s := range got.named(step) {
			if of(s, "k8s.cluster.name") == member && s.Status.GetMessage() == "" {
				return true
			}
		}
		return false
	})
}

// wantNothingSecret fails the test if anything was sent of a body or a query, or of what informers and the fleet ask.
func wantNothingSecret(t *testing.T, got *receiver) {
	t.Helper()
	got.mu.Lock()
	defer got.mu.Unlock()
	for _, never := range []string{secret, "what-the-query-says", "Bearer", "BEGIN ", "fieldManager"} {
		if strings.Contains(got.bytes.String(), never) {
			t.Errorf("spans have %q in them", never)
		}
	}
	for _, s := range got.all {
		if strings.HasPrefix(s.Name, "GET") {
			t.Errorf("there is a span %s of %s under %s: informers and the fleet make none", s.Name, of(s, "k8s.cluster.name"), hex.EncodeToString(s.ParentSpanId))
		}
	}
}

// TestMembersThatAreIdleMakeNoSpans but for being connected, however often they are asked whether they are well.
func TestMembersThatAreIdleMakeNoSpans(t *testing.T) {
	t.Parallel()
	const members = 300
	cp := pool.Share(t, mctest.Options{})
	traces, spans := recorded()
	provider := &fleettest.Provider{}
	for i := range members {
		if err := provider.Set(fleet.Member{Name: fleet.ClusterName(fmt.Sprint("idle-", i)), Config: cp.Config()}); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	asked := map[fleet.ClusterName]int{}
	mgr, err := mcmanager.New(traces.Config(cp.Config()), provider, mcmanager.Options{Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"}}, traces.Fleet,
		func(o *fleet.Options) {
			o.Health.ProbeInterval = time.Second
			o.RESTConfig = func(m fleet.Member, cfg *rest.Config) error {
				cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
					return answering(func(req *http.Request) (*http.Response, error) {
						mu.Lock()
						asked[m.Name]++
						mu.Unlock()
						return rt.RoundTrip(req)
					})
				})
				return nil
			}
		})
	if err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	const often = 5 // two of these are to connect
	eventually(t, "all members were asked several times", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range asked {
			if n < often {
				return false
			}
		}
		return len(asked) == members
	})
	connected := 0
	for _, s := range spans.GetSpans() {
		if s.Name != "connect" {
			t.Errorf("there is a span %s of %v", s.Name, s.Attributes)
		}
		connected++
	}
	if connected < members {
		t.Errorf("%d attempts to connect have spans, of %d members", connected, members)
	}
}

// TestNothingWaitsForACollector that is down, or hangs: what it does not take is thrown away.
func TestNothingWaitsForACollector(t *testing.T) {
	t.Parallel()
	for what, address := range map[string]string{"down": mctest.Address(t), "hung": mctest.Silent(t)} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL("http://"+address), otlptracehttp.WithTimeout(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			const most = 64
			given := &counting{SpanExporter: exporter}
			provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(given, sdktrace.WithMaxQueueSize(most),
				sdktrace.WithMaxExportBatchSize(most), sdktrace.WithExportTimeout(time.Hour)))
			r := telemetry.New(telemetry.Options{TracerProvider: provider}).Middleware()(mcreconcile.Func(
				func(context.Context, mcreconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }))
			for range 100 * most {
				if _, err := r.Reconcile(t.Context(), request()); err != nil {
					t.Fatal(err)
				}
			}
			if n := given.n.Load(); what == "hung" && n > most {
				t.Errorf("the exporter was given %d spans, which are kept, want %d at most", n, most)
			}
			ended, end := context.WithCancel(t.Context())
			end()
			_ = provider.Shutdown(ended)
		})
	}
}

// counting is an exporter that counts the spans it is given.
type counting struct {
	sdktrace.SpanExporter
	n atomic.Int64
}

// ExportSpans implements sdktrace.SpanExporter.
func (c *counting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	c.n.Add(int64(len(spans)))
	return c.SpanExporter.ExportSpans(ctx, spans)
}

// TestRequestsOfAGuestHaveSpans where a reconcile sends them, and none elsewhere.
func TestRequestsOfAGuestHaveSpans(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	traces, spans := recorded()
	var o fleet.Options
	traces.Fleet(&o)
	f, _ := fleettest.Run(t, o)
	if err := f.Set(fleet.Member{Name: "a", Config: cp.Config()}); err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context) error {
		g, err := f.Guest(ctx, "a")
		if err != nil {
			return err
		}
		return g.Client().List(ctx, &corev1.ConfigMapList{}, client.InNamespace(metav1.NamespaceDefault))
	}
	if err := ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := traces.Middleware()(mcreconcile.Func(func(ctx context.Context, _ mcreconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, ask(ctx)
	}))
	if _, err := r.Reconcile(t.Context(), request()); err != nil {
		t.Fatal(err)
	}
	var lists, reconciles []tracetest.SpanStub
	for _, s := range spans.GetSpans() {
		switch s.Name {
		case "GET configmaps":
			lists = append(lists, s)
		case "reconcile ":
			reconciles = append(reconciles, s)
		}
	}
	if len(lists) != 1 || len(reconciles) != 1 || lists[0].Parent.SpanID() != reconciles[0].SpanContext.SpanID() || values(lists[0])["k8s.cluster.name"] != "a" {
		t.Errorf("the guests' requests have the spans %+v under %+v, want one, of the cluster a", lists, reconciles)
	}
}

// TestASlowCollectorLosesSpansAndNothingElse: reconciles go on, what does not fit is lost, and what comes later arrives.
func TestASlowCollectorLosesSpansAndNothingElse(t *testing.T) {
	t.Parallel()
	const most = 64
	got, quick := &receiver{}, make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		<-quick
		got.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(server.URL), otlptracehttp.WithTimeout(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(most), sdktrace.WithMaxExportBatchSize(most),
		sdktrace.WithBatchTimeout(50*time.Millisecond), sdktrace.WithExportTimeout(time.Hour)))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) }) //nolint:forbidigo // t.Context has ended
	r := telemetry.New(telemetry.Options{TracerProvider: provider}).Middleware()(mcreconcile.Func(
		func(context.Context, mcreconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }))
	reconciled := func(name string) {
		req := request()
		req.Name = name
		if _, err := r.Reconcile(t.Context(), req); err != nil {
			t.Error(err)
		}
	}
	for range 100 * most {
		reconciled("early")
	}
	close(quick)
	arrived := map[string]int{}
	eventually(t, "what is reconciled later has spans", func() bool {
		reconciled("late")
		clear(arrived)
		for _, s := range got.named("reconcile ") {
			arrived[of(s, "k8s.object.name")]++
		}
		return arrived["late"] > 0
	})
	if n := arrived["early"]; n == 0 || n > 3*most { // on the way, in the queue, and what a worker has in its hands
		t.Errorf("%d spans were kept for the collector, want those of few batches of %d", n, most)
	}
}
