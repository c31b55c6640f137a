package telemetry

import (
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// transport makes a span of each request to one cluster that is sent under the span of a reconcile. Watches, and what informers and the
// fleet itself ask, are sent under none.
type transport struct {
	inner   http.RoundTripper
	tracer  trace.Tracer
	cluster attribute.KeyValue
}

var _ utilnet.RoundTripperWrapper = (*transport)(nil)

func (t *Traces) transport(name mcreconcile.ClusterName, rt http.RoundTripper) http.RoundTripper {
	return &transport{inner: rt, tracer: t.tracer, cluster: clusterName(name)}
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.inner }

// RoundTrip implements http.RoundTripper. The span ends when the answer was read.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Context().Value(requestsKey{}) == nil || !trace.SpanFromContext(req.Context()).IsRecording() || req.URL.Query().Has("watch") {
		return t.inner.RoundTrip(req)
	}
	what := targetOf(req.URL.Path)
	verb := verbOf(req.Method)
	ctx, span := t.tracer.Start(req.Context(), strings.TrimSpace(verb+" "+what.resource),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(t.cluster, method.String(verb)))
	span.SetAttributes(what.attributes()...)
	resp, err := t.send(req.WithContext(ctx), span)
	if err != nil {
		fail(span, err)
		span.End()
		return resp, err
	}
	span.SetAttributes(statusCode.Int(resp.StatusCode))
	if resp.StatusCode >= http.StatusBadRequest {
		span.SetAttributes(errorType.String(strconv.Itoa(resp.StatusCode)))
		span.SetStatus(codes.Error, "")
	}
	if resp.StatusCode == http.StatusSwitchingProtocols || resp.Body == nil {
		span.End() // what follows is no answer
		return resp, nil
	}
	resp.Body = &body{ReadCloser: resp.Body, span: span}
	return resp, nil
}

// send sends a request. If what sends it panics, its span ends.
func (t *transport) send(req *http.Request, span trace.Span) (*http.Response, error) {
	returned := false
	defer func() {
		if !returned {
			span.SetStatus(codes.Error, "the transport panicked")
			span.End()
		}
	}()
	resp, err := t.inner.RoundTrip(req)
	returned = true
	return resp, err
}

// verbOf returns a method of HTTP as it is in spans.
func verbOf(name string) string {
	switch name {
	case "":
		return http.MethodGet
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return name
	default:
		return "_OTHER"
	}
}

// body is an answer, whose span ends when it was read or closed.
type body struct {
	io.ReadCloser
	span trace.Span
	once sync.Once
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end(err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.end(io.EOF)
	return b.ReadCloser.Close()
}

func (b *body) end(err error) {
	b.once.Do(func() {
		if !errors.Is(err, io.EOF) {
			fail(b.span, err)
		}
		b.span.End()
	})
}

// target is what a request to an API server is about, as far as that is known of its path.
type target struct{ group, resource, namespace, name string }

// targetOf reads a path. What is before the API's, and what follows a subresource, may be anything: it is left out.
func targetOf(path string) (t target) {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	for i, segment := range segments {
		switch rest := segments[i+1:]; {
		case segment == "api" && len(rest) > 1 && rest[0] == "v1":
			return inVersion("", rest[1:])
		case segment == "apis" && len(rest) > 2 && version.MatchString(rest[1]):
			return inVersion(rest[0], rest[2:])
		}
	}
	return t
}

var version = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// inVersion reads what follows the version.
func inVersion(group string, segments []string) (t target) {
	t.group = group
	if len(segments) > 2 && segments[0] == "namespaces" && !ofNamespaces[segments[2]] {
		t.namespace, segments = segments[1], segments[2:]
	}
	if group != "" && len(segments) > 3 && segments[2] == "proxy" { // of a cluster, as Karmada has it: what follows is of the API there
		if there := targetOf(strings.Join(segments[3:], "/")); there.resource != "" {
			return there
		}
	}
	t.resource = segments[0]
	if len(segments) > 1 {
		t.name = segments[1]
	}
	if len(segments) > 2 {
		t.resource += "/" + segments[2]
	}
	t.resource = shown(t.resource)
	return t
}

// ofNamespaces are the subresources of namespaces.
var ofNamespaces = map[string]bool{"status": true, "finalize": true}

func (t target) attributes() []attribute.KeyValue {
	if t.resource == "" {
		return nil
	}
	attributes := []attribute.KeyValue{apiGroup.String(shown(t.group)), resource.String(t.resource)}
	if t.namespace != "" {
		attributes = append(attributes, objectNamespace.String(shown(t.namespace)))
	}
	if t.name != "" {
		attributes = append(attributes, objectName.String(shown(t.name)))
	}
	return attributes
}
