package sweep

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// What a collector does with an orphan, as the label action says it.
const (
	deletedIt   = "deleted"
	released    = "released" // it is to stay, or has another owner
	wouldRemove = "none"     // a dry run
)

// clusterLabel is the label of the cluster that a series is about.
const clusterLabel = "cluster"

// sweepMetrics are what metrics show of a collector. The series of a member go with it.
type sweepMetrics struct {
	sweeps, orphans        *prometheus.CounterVec
	unproven, unidentified *prometheus.GaugeVec

	mu    sync.Mutex // guards known
	known map[mcreconcile.ClusterName]struct{}
}

func newSweepMetrics(collector string) *sweepMetrics {
	of := prometheus.Labels{"collector": collector}
	return &sweepMetrics{
		sweeps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleet_runtime_sweeps_total", ConstLabels: of,
			Help: "Sweeps of the cluster for dependents whose owner is gone, by result.",
		}, []string{clusterLabel, "result"}),
		orphans: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleet_runtime_orphans_total", ConstLabels: of,
			Help: "Dependents in the cluster whose owner was found gone by sweeps, by what was done: deleted, released if they stay, none in a dry run.",
		}, []string{clusterLabel, "action"}),
		unproven: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fleet_runtime_unproven_dependents", ConstLabels: of,
			Help: "Dependents in the cluster of which the last sweep could not tell whether their owner is gone.",
		}, []string{clusterLabel}),
		unidentified: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fleet_runtime_dependents_without_identity", ConstLabels: of,
			Help: "Dependents in the cluster whose reference does not say which cluster the owner's or their own is, by the last sweep: names alone count for them.",
		}, []string{clusterLabel}),
		known: map[mcreconcile.ClusterName]struct{}{},
	}
}

// keep drops the series of clusters that are no more. A sweep that ends later brings them back until the next call.
func (s *sweepMetrics) keep(there map[mcreconcile.ClusterName]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.known {
		if there[name] {
			continue
		}
		delete(s.known, name)
		gone := prometheus.Labels{clusterLabel: string(name)}
		s.sweeps.DeletePartialMatch(gone)
		s.orphans.DeletePartialMatch(gone)
		s.unproven.DeletePartialMatch(gone)
		s.unidentified.DeletePartialMatch(gone)
	}
}

// know notes that a cluster has series.
func (s *sweepMetrics) know(name mcreconcile.ClusterName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[name] = struct{}{}
}

// swept counts a sweep of a cluster.
func (s *sweepMetrics) swept(name mcreconcile.ClusterName, unproven, unidentified int, err error) {
	s.know(name)
	s.unproven.WithLabelValues(string(name)).Set(float64(unproven))
	s.unidentified.WithLabelValues(string(name)).Set(float64(unidentified))
	result := "success"
	if err != nil {
		result = "error"
	}
	s.sweeps.WithLabelValues(string(name), result).Inc()
}

// removed counts what was done with an orphan.
func (s *sweepMetrics) removed(name mcreconcile.ClusterName, action string) {
	s.know(name)
	s.orphans.WithLabelValues(string(name), action).Inc()
}

// export registers the metrics until end is called. Of several collectors of a name in one process, the first has metrics.
func (s *sweepMetrics) export() (end func()) {
	var registered []prometheus.Collector
	end = func() {
		for _, c := range registered {
			ctrlmetrics.Registry.Unregister(c)
		}
	}
	for _, c := range []prometheus.Collector{s.sweeps, s.orphans, s.unproven, s.unidentified} {
		if ctrlmetrics.Registry.Register(c) == nil {
			registered = append(registered, c)
		}
	}
	return end
}
