// Package telemetry makes OpenTelemetry traces of what a fleet does: a span of each reconcile, with one of each request that it
// sends to a cluster, and spans of how members are connected and drained. Only code that imports it depends on OpenTelemetry.
//
// No span waits for a cluster or a collector. What is not in spans: bodies, headers, query strings and paths of requests.
package telemetry

import (
	"context"
	"net/http"
	"regexp"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Options configure [Traces]. The zero value is usable.
type Options struct {
	// TracerProvider makes the spans. Default: OpenTelemetry's global one at the time of each span, which makes none unless the
	// program sets it.
	TracerProvider trace.TracerProvider
}

// Traces makes the spans of a fleet and its controllers. It is safe for concurrent use, and serves any number of them.
type Traces struct {
	tracer trace.Tracer
}

// scope is the name of the instrumentation.
const scope = "github.com/fleet-runtime/fleet-runtime/telemetry"

// New returns what makes traces. It starts nothing: the provider's owner shuts that down.
func New(o Options) *Traces {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	return &Traces{tracer: o.TracerProvider.Tracer(scope)}
}

// Fleet is an option of mcmanager.New. It makes spans of how members are connected, take over credentials, are drained, and handed
// over to other replicas, and of the requests that reconciles send to members. It sets fleet.Options.Observer.
func (t *Traces) Fleet(o *fleet.Options) { o.Observer = observer{t} }

// Config returns a copy of the config of the local cluster, for mcmanager.New, with which the requests that reconciles send there
// make spans.
func (t *Traces) Config(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return t.transport(mcreconcile.LocalCluster, rt) })
	return cfg
}

// observer makes spans of the steps of a fleet.
type observer struct{ *Traces }

// Begin implements fleet.Observer.
func (o observer) Begin(step fleet.Step) (end func(err error)) {
	_, span := o.tracer.Start(context.Background(), string(step.Kind), trace.WithAttributes(clusterName(step.Member)))
	if step.Why != nil {
		span.SetAttributes(reason.String(said(step.Why)))
	}
	return func(err error) {
		fail(span, err)
		span.End()
	}
}

// Transport implements fleet.Observer.
func (o observer) Transport(name fleet.ClusterName, rt http.RoundTripper) http.RoundTripper {
	return o.transport(name, rt)
}

// The attributes are OpenTelemetry's where it has a name for them.
const (
	cluster         = attribute.Key("k8s.cluster.name") // empty for the local cluster
	objectNamespace = attribute.Key("k8s.namespace.name")
	objectName      = attribute.Key("k8s.object.name")
	method          = attribute.Key("http.request.method")
	statusCode      = attribute.Key("http.response.status_code")
	errorType       = attribute.Key("error.type")
	apiGroup        = attribute.Key("fleet_runtime.api_group")
	resource        = attribute.Key("fleet_runtime.resource")
	controller      = attribute.Key("fleet_runtime.controller")
	otherRequest    = attribute.Key("fleet_runtime.request") // that is no mcreconcile.Request
	priority        = attribute.Key("fleet_runtime.priority")
	wait            = attribute.Key("fleet_runtime.queue_wait") // in seconds
	outcome         = attribute.Key("fleet_runtime.result")
	requeueAfter    = attribute.Key("fleet_runtime.requeue_after") // in seconds
	reason          = attribute.Key("fleet_runtime.reason")
)

func clusterName(name mcreconcile.ClusterName) attribute.KeyValue {
	return cluster.String(shown(string(name)))
}

// maxText is how much of one text is in a span, in bytes.
const maxText = 1024

// shown returns text of strangers as it is in spans: short, and valid, since one text that is not UTF-8 makes collectors refuse all
// spans that are sent with it.
func shown(text string) string { return oneline.Text(text, maxText) }

// address is a URL. Errors of clients have those of their requests.
var address = regexp.MustCompile(`(?i)(https?://)(?:[^/\s"@]*@)?([^/\s"?#]*)[^\s"]*`)

// said returns an error's text as it is in spans: of a URL that is in it, the host alone, since paths and queries may be secret.
func said(err error) string {
	const most = 4 * maxText // of what is read
	return shown(address.ReplaceAllString(oneline.Text(err.Error(), most), "$1$2"))
}

// fail says in a span why something did not work, if err is not nil.
func fail(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, said(err))
	}
}
