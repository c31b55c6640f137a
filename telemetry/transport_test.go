package telemetry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

func TestTargetsOfPaths(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]target{
		"/api/v1/pods":                                             {resource: "pods"},
		"/api/v1/namespaces":                                       {resource: "namespaces"},
		"/api/v1/namespaces/a":                                     {resource: "namespaces", name: "a"},
		"/api/v1/namespaces/a/status":                              {resource: "namespaces/status", name: "a"},
		"/api/v1/namespaces/a/pods":                                {resource: "pods", namespace: "a"},
		"/api/v1/namespaces/a/pods/p/log":                          {resource: "pods/log", namespace: "a", name: "p"},
		"/apis/apps/v1/namespaces/a/deployments/d":                 {group: "apps", resource: "deployments", namespace: "a", name: "d"},
		"/apis/apps/v1":                                            {},
		"/k8s/clusters/secret/apis/x.y/v1beta1/things/t/scale":     {group: "x.y", resource: "things/scale", name: "t"},
		"/api/v2/secret/api/v1/pods":                               {resource: "pods"},
		"/apis/a/v0secret/b/api/v1/pods":                           {resource: "pods"},
		"/api/secret/api/v1/pods":                                  {resource: "pods"},
		"/api/v1/namespaces/a/services/s/proxy/api/secret?k=other": {resource: "services/proxy", namespace: "a", name: "s"},
		"/apis/cluster.karmada.io/v1alpha1/clusters/east/proxy/api/v1/namespaces/a/pods/p": {resource: "pods", namespace: "a", name: "p"},
		"/apis/cluster.karmada.io/v1alpha1/clusters/east/proxy/secret":                     {group: "cluster.karmada.io", resource: "clusters/proxy", name: "east"},
		"/api/v1/namespaces/a/services/s/proxy/api/v1/secret":                              {resource: "services/proxy", namespace: "a", name: "s"},
		"/healthz": {},
		"":         {},
		"//":       {},
		"/api/v1/": {},
	} {
		if diff := cmp.Diff(want, targetOf(path), cmp.AllowUnexported(target{})); diff != "" {
			t.Errorf("%s (-want, +got):\n%s", path, diff)
		}
	}
}

type answering func(*http.Request) (*http.Response, error)

func (a answering) RoundTrip(req *http.Request) (*http.Response, error) { return a(req) }

func TestRequestsHaveSpansUnderSpansAlone(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	traces := New(Options{TracerProvider: provider})
	rt := traces.transport("a", answering(func(req *http.Request) (*http.Response, error) {
		if strings.HasSuffix(req.URL.Path, "/none") {
			return nil, errors.New("refused")
		}
		return &http.Response{StatusCode: http.StatusConflict, Body: io.NopCloser(strings.NewReader("body"))}, nil
	}))
	under, span := provider.Tracer("").Start(t.Context(), "above")
	under = WithRequests(under)
	for _, c := range []struct {
		ctx       context.Context
		path      string
		wantSpans int
	}{
		{t.Context(), "/api/v1/pods", 0},
		{under, "/api/v1/pods?watch=true", 0},
		{under, "/api/v1/pods?limit=500", 1},
		{under, "/api/v1/pods/none", 1},
	} {
		spans.Reset()
		req, err := http.NewRequestWithContext(c.ctx, http.MethodGet, "https://x"+c.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := rt.RoundTrip(req)
		if err == nil {
			if n := len(spans.GetSpans()); n != 0 {
				t.Errorf("%s: a span has ended before the answer was read", c.path)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		got := spans.GetSpans()
		if len(got) != c.wantSpans {
			t.Errorf("%s: there are %d spans, want %d", c.path, len(got), c.wantSpans)
			continue
		}
		if c.wantSpans > 0 && (got[0].Name != "GET pods" || got[0].Parent.SpanID() != span.SpanContext().SpanID() || got[0].Status.Code.String() != "Error") {
			t.Errorf("%s: the span is %+v", c.path, got[0])
		}
	}
}

// TestAProgramUnderASpanMakesNoMoreSpans: what informers and leases ask while a manager runs has the context with which that was started.
func TestAProgramUnderASpanMakesNoMoreSpans(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	traces := New(Options{TracerProvider: provider})
	rt := traces.transport("a", answering(func(*http.Request) (*http.Response, error) { return &http.Response{Body: http.NoBody}, nil }))
	program, span := provider.Tracer("").Start(t.Context(), "the program")
	defer span.End()
	ask := func(ctx context.Context) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://x/api/v1/pods", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	ask(program)
	if got := spans.GetSpans(); len(got) != 0 {
		t.Errorf("a request that no reconcile sends has the span %+v", got)
	}
	r := traces.Middleware()(mcreconcile.Func(func(ctx context.Context, _ mcreconcile.Request) (reconcile.Result, error) {
		ask(ctx)
		return reconcile.Result{}, nil
	}))
	if _, err := r.Reconcile(program, mcreconcile.Request{}); err != nil {
		t.Fatal(err)
	}
	got := spans.GetSpans()
	if len(got) != 2 || got[0].Parent.SpanID() != got[1].SpanContext.SpanID() {
		t.Fatalf("a reconcile and its request have the spans %+v", got)
	}
	if root := got[1]; root.Parent.IsValid() || len(root.Links) != 1 || root.Links[0].SpanContext.SpanID() != span.SpanContext().SpanID() {
		t.Errorf("the reconcile's span has the parent %v and the links %v, want none, and one to the program's", root.Parent, root.Links)
	}
}

func TestASpanOfARequestEndsWithAPanic(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	rt := New(Options{TracerProvider: provider}).transport("a", answering(func(*http.Request) (*http.Response, error) { panic("of the transport") }))
	under, span := provider.Tracer("").Start(t.Context(), "above")
	defer span.End()
	req, err := http.NewRequestWithContext(WithRequests(under), http.MethodGet, "https://x/api/v1/pods", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was taken away from the reconcile")
			}
		}()
		_, _ = rt.RoundTrip(req) //nolint:bodyclose // there is none
	}()
	if got := spans.GetSpans(); len(got) != 1 || got[0].Status.Code != codes.Error {
		t.Errorf("the spans are %+v, want one that has failed", got)
	}
}

func TestErrorsInSpansHaveHostsAlone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`Patch "https://me:secret@x:6443/secret/api/v1/pods?fieldManager=secret": refused`: `Patch "https://x:6443": refused`,
		"HTTP://x?secret":             "HTTP://x",
		"https://a/secret, https://b": "https://a https://b",
		"no\naddress":                 "no address",
		"x https://a/" + strings.Repeat("secret", 1000): "x https://a",
	} {
		if got := said(errors.New(text)); got != want {
			t.Errorf("%.80q is %q, want %q", text, got, want)
		}
	}
}
