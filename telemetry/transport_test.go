package telemetry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
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
		"/api/secret/api/v1/pods":                                  {resource: "pods"},
		"/api/v1/namespaces/a/services/s/proxy/api/secret?k=other": {resource: "services/proxy", namespace: "a", name: "s"},
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
