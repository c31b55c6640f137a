package clientmetrics

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clientmetrics "k8s.io/client-go/tools/metrics"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

func TestSeriesOfAServerGoWithItsLastUser(t *testing.T) {
	ctrlmetrics.RegisterRESTClientMetrics(
		ctrlmetrics.MetricRequestLatency, ctrlmetrics.MetricDNSResolutionLatency, ctrlmetrics.MetricRequestSize,
		ctrlmetrics.MetricResponseSize, ctrlmetrics.MetricRateLimiterLatency, ctrlmetrics.MetricRequestRetry)
	request := func(host string) {
		ctx := t.Context()
		url := rest.Config{Host: host}
		server, _, err := rest.DefaultServerUrlFor(&url)
		if err != nil {
			t.Fatal(err)
		}
		clientmetrics.RequestResult.Increment(ctx, "200", "GET", server.Host)
		clientmetrics.RequestLatency.Observe(ctx, "GET", *server, time.Second)
		clientmetrics.ResolverLatency.Observe(ctx, server.Host, time.Second)
		clientmetrics.RateLimiterLatency.Observe(ctx, "GET", *server, time.Second)
		clientmetrics.RequestSize.Observe(ctx, "GET", server.Host, 1)
		clientmetrics.ResponseSize.Observe(ctx, "GET", server.Host, 1)
		clientmetrics.RequestRetry.IncrementRetry(ctx, "200", "GET", server.Host)
	}
	const one, other = "https://one.series.test:6443", "https://other.series.test:6443"
	var series Series
	first, second := series.Begin(&rest.Config{Host: one}), series.Begin(&rest.Config{Host: one})
	request(one)
	request(other)
	all := len(clientDescs())

	first()
	first() // again: no other use ends by that
	if n := seriesOfHost(t, "one.series.test:6443"); n != all {
		t.Errorf("%d series of a server that is used, want %d", n, all)
	}
	second()
	if n := seriesOfHost(t, "one.series.test:6443"); n != 0 {
		t.Errorf("%d series of a server that nobody uses any more", n)
	}
	if n := seriesOfHost(t, "other.series.test:6443"); n != all {
		t.Errorf("%d series of another server, want %d", n, all)
	}
}

func seriesOfHost(t *testing.T, host string) (n int) {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "rest_client_") {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "host" && label.GetValue() == host {
					n++
				}
			}
		}
	}
	return n
}
