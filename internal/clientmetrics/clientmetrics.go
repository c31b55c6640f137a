// Package clientmetrics removes what client-go counts of servers that nobody uses any more.
package clientmetrics

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Series removes the series that client-go's metrics have for a server, once no member uses it any more. client-go itself
// keeps them for the life of the process. The zero value is usable, by several goroutines at once.
type Series struct {
	mu   sync.Mutex     // guards what follows
	uses map[string]int // by host
}

// Begin notes a use of the server of cfg. The returned function, which may be called again, ends it.
func (s *Series) Begin(cfg *rest.Config) (end func()) {
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return func() {}
	}
	host := server.Host
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uses == nil {
		s.uses = map[string]int{}
	}
	s.uses[host]++
	return sync.OnceFunc(func() { s.end(host) })
}

func (s *Series) end(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses[host]--
	if s.uses[host] > 0 {
		return
	}
	delete(s.uses, host)
	for _, desc := range clientDescs() {
		deleteSeries(desc, prometheus.Labels{"host": host})
	}
}

// clientDescs are the metrics of client-go's that have a host, as controller-runtime declares them in
// pkg/metrics/client_go_adapter.go (v0.25). All but the first are registered by those who want them.
func clientDescs() []*prometheus.Desc {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append(labels, "host"), nil)
	}
	return []*prometheus.Desc{
		desc("rest_client_requests_total", "Number of HTTP requests, partitioned by status code, method, and host.", "code", "method"),
		desc("rest_client_request_duration_seconds", "Request latency in seconds. Broken down by verb and host.", "verb"),
		desc("rest_client_dns_resolution_duration_seconds", "DNS resolver latency in seconds. Broken down by host."),
		desc("rest_client_rate_limiter_duration_seconds", "Client side rate limiter latency in seconds. Broken down by verb, and host.", "verb"),
		desc("rest_client_request_size_bytes", "Request size in bytes. Broken down by verb and host.", "verb"),
		desc("rest_client_response_size_bytes", "Response size in bytes. Broken down by verb and host.", "verb"),
		desc("rest_client_request_retries_total", "Number of request retries, partitioned by status code, verb, and host.", "code", "verb"),
	}
}

// deleteSeries removes series of a metric of controller-runtime's registry. The registry tells of a collector only when
// another is registered for the same metric.
func deleteSeries(desc *prometheus.Desc, labels prometheus.Labels) {
	err := ctrlmetrics.Registry.Register(placeholder{desc})
	if err == nil {
		ctrlmetrics.Registry.Unregister(placeholder{desc})
	}
	already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err)
	if !ok {
		return
	}
	if vec, ok := already.ExistingCollector.(interface{ DeletePartialMatch(l prometheus.Labels) int }); ok {
		vec.DeletePartialMatch(labels)
	}
}

// placeholder is a collector that stands where another is sought.
type placeholder struct{ desc *prometheus.Desc }

// Describe implements prometheus.Collector.
func (p placeholder) Describe(descs chan<- *prometheus.Desc) { descs <- p.desc }

// Collect implements prometheus.Collector.
func (placeholder) Collect(chan<- prometheus.Metric) {}
