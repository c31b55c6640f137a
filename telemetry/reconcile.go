package telemetry

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Middleware makes a span of each reconcile of a controller. While the span is sampled, the lines that the reconciler logs have
// its trace_id and span_id.
func (t *Traces) Middleware() mcbuilder.Middleware { return TypedMiddleware[mcreconcile.Request](t) }

// TypedMiddleware is [Traces.Middleware] for other types of requests, of which spans have the text.
func TypedMiddleware[request mcreconcile.ClusterAware[request]](t *Traces) mcbuilder.TypedMiddleware[request] {
	return func(next reconcile.TypedReconciler[request]) reconcile.TypedReconciler[request] {
		return &traced[request]{t, next}
	}
}

// traced is a reconciler that makes a span of each reconcile.
type traced[request mcreconcile.ClusterAware[request]] struct {
	*Traces
	next reconcile.TypedReconciler[request]
}

// Reconcile implements reconcile.TypedReconciler.
func (t *traced[request]) Reconcile(ctx context.Context, req request) (result reconcile.Result, err error) {
	call, _ := mcbuilder.CallFrom(ctx)
	ctx, span := t.begin(ctx, "reconcile "+call.Controller, trace.WithAttributes(clusterName(req.Cluster()), controller.String(call.Controller)))
	if !span.IsRecording() {
		span.End()
		return t.next.Reconcile(ctx, req)
	}
	span.SetAttributes(priority.Int(call.Priority), wait.Float64(call.Waited.Seconds()))
	describe(span, req)
	returned := false
	defer func() {
		conclude(ctx, span, result, err, returned)
		span.End()
	}()
	result, err = t.next.Reconcile(WithRequests(correlated(ctx, span)), req)
	returned = true
	return result, err
}

// begin begins a span that is the first of its trace. A span under which the program runs as a whole is no parent: it never ends, and
// would decide for all reconciles whether they are sampled. There is a link to it.
func (t *Traces) begin(ctx context.Context, name string, o trace.SpanStartEventOption) (context.Context, trace.Span) {
	if outer := trace.SpanContextFromContext(ctx); outer.IsValid() {
		return t.tracer.Start(ctx, name, o, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: outer}))
	}
	return t.tracer.Start(ctx, name, o)
}

type requestsKey struct{}

// WithRequests returns a context whose requests have spans, as those of reconciles have: for work that is none, under a span of the
// program's own. Other requests have none, although they are sent under a span, such as those of informers and leases of a manager that
// was started under one.
func WithRequests(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestsKey{}, true)
}

// describe says in a span which request it is of.
func describe(span trace.Span, req any) {
	if plain, ok := req.(mcreconcile.Request); ok {
		span.SetAttributes(objectNamespace.String(shown(plain.Namespace)), objectName.String(shown(plain.Name)))
		return
	}
	span.SetAttributes(otherRequest.String(shown(fmt.Sprint(req))))
}

// correlated returns a context whose logger names the span.
func correlated(ctx context.Context, span trace.Span) context.Context {
	id := span.SpanContext()
	if !id.IsSampled() {
		return ctx
	}
	logger := log.FromContext(ctx)
	return log.IntoContext(ctx, logger.WithValues("trace_id", id.TraceID().String(), "span_id", id.SpanID().String()))
}

// conclude says in a span what came of a reconcile.
func conclude(ctx context.Context, span trace.Span, result reconcile.Result, err error, returned bool) {
	switch {
	case !returned:
		span.SetAttributes(outcome.String("panic"))
		span.SetStatus(codes.Error, "the reconciler panicked")
	case err != nil && ctx.Err() != nil:
		span.SetAttributes(outcome.String("interrupted"), reason.String(said(context.Cause(ctx))))
	case errors.Is(err, reconcile.TerminalError(nil)):
		span.SetAttributes(outcome.String("terminal_error"))
		fail(span, err)
	case err != nil:
		span.SetAttributes(outcome.String("error"))
		fail(span, err)
	case result.RequeueAfter > 0:
		span.SetAttributes(outcome.String("requeue_after"), requeueAfter.Float64(result.RequeueAfter.Seconds()))
	case result.Requeue: //nolint:staticcheck // reconcilers may return it still
		span.SetAttributes(outcome.String("requeue"))
	default:
		span.SetAttributes(outcome.String("success"))
	}
}
