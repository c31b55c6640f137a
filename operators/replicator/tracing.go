package main

import (
	"context"
	"net/http"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/telemetry"
)

// lastSpans is how long the program waits at its end until its last spans are sent.
const lastSpans = 5 * time.Second

// traces makes spans of what the operator does, with one of each write to a member.
type traces struct {
	*telemetry.Traces

	tracer trace.Tracer
}

// newTraces returns what makes spans. They go where the standard variables of OpenTelemetry say, by OTLP over HTTP; without these,
// there are none. The caller calls end.
func newTraces(ctx context.Context) (t traces, end func(), err error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return tracesOf(noop.NewTracerProvider()), func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return traces{}, nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	return tracesOf(provider), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSpans)
		defer cancel()
		_ = provider.Shutdown(ctx) // nobody is told of spans that a collector does not take
	}, nil
}

func tracesOf(provider trace.TracerProvider) traces {
	return traces{telemetry.New(telemetry.Options{TracerProvider: provider}), provider.Tracer("github.com/fleet-runtime/fleet-runtime/operators/replicator")}
}

// Fleet is an option of mcmanager.New, for spans of what is done with members.
func (t traces) Fleet(o *fleet.Options) {
	t.Traces.Fleet(o)
	o.Observer = writes{o.Observer, t.tracer}
}

// writes makes a span of each write to a member, under which the request has its own. What is written is no part of a reconcile of
// the Replicator: placements have a queue and workers of their own.
type writes struct {
	fleet.Observer

	tracer trace.Tracer
}

// Transport implements fleet.Observer.
func (w writes) Transport(name fleet.ClusterName, rt http.RoundTripper) http.RoundTripper {
	return &writer{w.Observer.Transport(name, rt), w.tracer, trace.WithAttributes(attribute.String("k8s.cluster.name", string(name)))}
}

type writer struct {
	inner   http.RoundTripper
	tracer  trace.Tracer
	cluster trace.SpanStartEventOption
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (w *writer) WrappedRoundTripper() http.RoundTripper { return w.inner }

// RoundTrip implements http.RoundTripper.
func (w *writer) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet || trace.SpanFromContext(req.Context()).IsRecording() {
		return w.inner.RoundTrip(req)
	}
	ctx, span := w.tracer.Start(req.Context(), "place", w.cluster)
	defer span.End()
	return w.inner.RoundTrip(req.WithContext(telemetry.WithRequests(ctx)))
}
