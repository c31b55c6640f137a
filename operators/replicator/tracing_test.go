package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// TestEachApplyHasASpan is the rest of AS-9.8, by OTLP to a receiver. Its variables are of the process, so it runs alone.
func TestEachApplyHasASpan(t *testing.T) {
	r := &receiver{}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50") // milliseconds
	w := start(t, "", "east", "west")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "traced"}, StringData: map[string]string{"password": "what-bodies-say"}}
	create(t, w.Local, replicator("traced", []string{"east", "west"}, configMap("traced"), secret))
	w.synced("traced")
	for _, kind := range []string{"configmaps", "secrets"} {
		for _, cluster := range w.names {
			stage.Eventually(t, "the "+kind+" of "+cluster+" have a span", func() bool { return r.applies(kind, cluster) > 0 })
			if n := r.applies(kind, cluster); n != 1 {
				t.Errorf("%d spans are of the %s of %s, want one", n, kind, cluster)
			}
		}
	}
	stage.Eventually(t, "the Replicator's reconciles have spans", func() bool { return len(r.named("reconcile replicator")) > 0 })
	w.program.Stop() // by which all is sent
	if r.has("what-bodies-say") || r.has("Bearer") {
		t.Error("spans have what is secret")
	}
}

// receiver takes spans by OTLP, as a collector does.
type receiver struct {
	mu   sync.Mutex // guards what follows
	text strings.Builder
	all  []*otlp.Span
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
	r.text.Write(sent)
	for _, resource := range message.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			r.all = append(r.all, scope.Spans...)
		}
	}
}

func (r *receiver) has(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(r.text.String(), text)
}

// named returns the spans of a name.
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

// applies returns how many spans there are of requests that wrote an object of a kind to a cluster, and were answered with success.
func (r *receiver) applies(kind, cluster string) (n int) {
	for _, name := range []string{"PATCH " + kind, "POST " + kind} {
		for _, s := range r.named(name) {
			is := map[string]bool{}
			for _, a := range s.Attributes {
				is[a.Key+"="+a.Value.GetStringValue()] = true
			}
			if is["k8s.cluster.name="+cluster] && s.Status.GetCode() != otlp.Status_STATUS_CODE_ERROR {
				n++
			}
		}
	}
	return n
}
