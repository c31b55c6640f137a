package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/telemetry"
)

// recorded returns traces, and the spans of them that have ended.
func recorded() (*telemetry.Traces, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	return telemetry.New(telemetry.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))}), spans
}

// values returns the attributes of a span as text.
func values(s tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// request is that of the object c in the namespace b of the cluster a.
func request() (r mcreconcile.Request) {
	r.ClusterName, r.Namespace, r.Name = "a", "b", "c"
	return r
}

func TestASpanSaysWhatCameOfAReconcile(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancelCause(t.Context())
	end(fleet.ErrDisengaged)
	for name, c := range map[string]struct {
		ctx    context.Context
		result reconcile.Result
		err    error
		want   string
		code   codes.Code
	}{
		"success":       {want: "success"},
		"later":         {result: reconcile.Result{RequeueAfter: time.Minute}, want: "requeue_after"},
		"again":         {result: reconcile.Result{Requeue: true}, want: "requeue"}, //nolint:staticcheck // reconcilers may return it still
		"error":         {err: errors.New("no"), want: "error", code: codes.Error},
		"for ever":      {err: reconcile.TerminalError(errors.New("no")), want: "terminal_error", code: codes.Error},
		"the end of it": {ctx: ended, err: errors.New("no"), want: "interrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			traces, spans := recorded()
			ctx := c.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			r := traces.Middleware()(mcreconcile.Func(func(context.Context, mcreconcile.Request) (reconcile.Result, error) { return c.result, c.err }))
			if result, err := r.Reconcile(ctx, request()); result != c.result || !errors.Is(err, c.err) {
				t.Errorf("Reconcile() = %v, %v", result, err)
			}
			got := spans.GetSpans()
			if len(got) != 1 {
				t.Fatalf("there are %d spans, want one", len(got))
			}
			of := values(got[0])
			if of["fleet_runtime.result"] != c.want || got[0].Status.Code != c.code {
				t.Errorf("the span has %v and status %v, want %q", of, got[0].Status, c.want)
			}
			if of["k8s.cluster.name"] != "a" || of["k8s.namespace.name"] != "b" || of["k8s.object.name"] != "c" {
				t.Errorf("the span has %v", of)
			}
		})
	}
}

func TestASpanEndsWithAPanic(t *testing.T) {
	t.Parallel()
	traces, spans := recorded()
	r := traces.Middleware()(mcreconcile.Func(func(context.Context, mcreconcile.Request) (reconcile.Result, error) {
		panic("what only the panic says")
	}))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was taken away from controller-runtime, which counts it")
			}
		}()
		_, _ = r.Reconcile(t.Context(), request())
	}()
	if got := spans.GetSpans(); len(got) != 1 || values(got[0])["fleet_runtime.result"] != "panic" || strings.Contains(fmt.Sprint(got), "only the panic") {
		t.Errorf("the spans are %v", got)
	}
}

func TestLinesOfAReconcileNameItsSpan(t *testing.T) {
	t.Parallel()
	traces, spans := recorded()
	var lines []string
	logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	r := traces.Middleware()(mcreconcile.Func(func(ctx context.Context, _ mcreconcile.Request) (reconcile.Result, error) {
		log.FromContext(ctx).Info("hello")
		return reconcile.Result{}, nil
	}))
	_, _ = r.Reconcile(log.IntoContext(t.Context(), logger), request())
	id := spans.GetSpans()[0].SpanContext
	if got := strings.Join(lines, ""); !strings.Contains(got, id.TraceID().String()) || !strings.Contains(got, id.SpanID().String()) {
		t.Errorf("the log has %q, want %v in it", got, id)
	}
}

// TestNamesOfStrangersDoNoHarm: one text that is not UTF-8 would make a collector refuse all spans of a batch.
func TestNamesOfStrangersDoNoHarm(t *testing.T) {
	t.Parallel()
	for what, name := range map[string]string{
		"long":      strings.Repeat("x", 300),
		"very long": strings.Repeat("ж", 1<<16),
		"no UTF-8":  "a\xff\xfe",
		"control":   "a\x1b[2J\u202e",
		"unicode":   "кластер-東京-🚢",
	} {
		traces, spans := recorded()
		failing := errors.New(name)
		r := telemetry.TypedMiddleware[stranger](traces)(reconcile.TypedFunc[stranger](func(context.Context, stranger) (reconcile.Result, error) {
			return reconcile.Result{}, failing
		}))
		_, _ = r.Reconcile(t.Context(), stranger{mcreconcile.ClusterName(name)})
		for _, s := range spans.GetSpans() {
			for key, value := range values(s) {
				if !utf8.ValidString(value) || len(value) > 1024 || strings.ContainsAny(value, "\x1b\u202e") {
					t.Errorf("%s: attribute %s is %d bytes %q", what, key, len(value), value[:min(len(value), 40)])
				}
			}
			if text := s.Status.Description; !utf8.ValidString(text) || len(text) > 1024 {
				t.Errorf("%s: the status is %d bytes", what, len(text))
			}
			if got := values(s)["k8s.cluster.name"]; what == "long" && got != name {
				t.Errorf("the name of a cluster was changed to %q", got)
			}
		}
	}
}

// stranger is a request of a type of one's own.
type stranger struct{ cluster mcreconcile.ClusterName }

func (s stranger) Cluster() mcreconcile.ClusterName { return s.cluster }

func (s stranger) WithCluster(name mcreconcile.ClusterName) stranger {
	s.cluster = name
	return s
}

// answering answers each request alike.
type answering func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(req *http.Request) (*http.Response, error) { return a(req) }

// BenchmarkReconcile answers: what does a span cost, and what does it where none is sampled, or there is no provider?
func BenchmarkReconcile(b *testing.B) {
	inner := mcreconcile.Func(func(context.Context, mcreconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	provider := func(o ...sdktrace.TracerProviderOption) *telemetry.Traces {
		return telemetry.New(telemetry.Options{TracerProvider: sdktrace.NewTracerProvider(o...)})
	}
	dropped := sdktrace.WithBatcher(tracetest.NewNoopExporter())
	for name, r := range map[string]mcreconcile.Reconciler{
		"without middleware": inner,
		"no provider":        telemetry.New(telemetry.Options{TracerProvider: noop.NewTracerProvider()}).Middleware()(inner),
		"not sampled":        provider(dropped, sdktrace.WithSampler(sdktrace.NeverSample())).Middleware()(inner),
		"sampled":            provider(dropped).Middleware()(inner),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			ctx, req := b.Context(), request()
			for b.Loop() {
				_, _ = r.Reconcile(ctx, req)
			}
		})
	}
}
