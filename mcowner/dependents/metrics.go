package dependents

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// What a collector does with an orphan, as the label action says it.
const (
	deletedIt   = "deleted"
	released    = "released" // it has another owner
	wouldRemove = "none"     // a dry run
)

// sweepCounts are what metrics show of a collector. They are read when metrics are asked for; the series of a member go with
// it.
type sweepCounts struct {
	sweeps, orphans, unproven *prometheus.Desc

	mu       sync.Mutex // guards clusters
	clusters map[mcreconcile.ClusterName]*clusterCounts
}

type clusterCounts struct {
	sweeps   map[string]int // by result
	orphans  map[string]int // by action
	unproven int            // of the last sweep
}

func newSweepCounts(collector string) *sweepCounts {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("fleet_runtime_"+name, help, append([]string{"cluster"}, labels...), prometheus.Labels{"collector": collector})
	}
	return &sweepCounts{
		sweeps:   desc("sweeps_total", "Sweeps of the cluster for dependents whose owner is gone, by result.", "result"),
		orphans:  desc("orphans_total", "Dependents in the cluster whose owner was found gone by sweeps, by what was done: deleted, released if they have another owner, none in a dry run.", "action"),
		unproven: desc("unproven_dependents", "Dependents in the cluster of which the last sweep could not tell whether their owner is gone."),
		clusters: map[mcreconcile.ClusterName]*clusterCounts{},
	}
}

func (s *sweepCounts) ofLocked(name mcreconcile.ClusterName) *clusterCounts {
	c, ok := s.clusters[name]
	if !ok {
		c = &clusterCounts{sweeps: map[string]int{}, orphans: map[string]int{}}
		s.clusters[name] = c
	}
	return c
}

// keep drops clusters that are no more.
func (s *sweepCounts) keep(names []mcreconcile.ClusterName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.clusters {
		if !slices.Contains(names, name) {
			delete(s.clusters, name)
		}
	}
}

func (s *sweepCounts) swept(name mcreconcile.ClusterName, unproven int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.ofLocked(name)
	c.unproven = unproven
	if err != nil {
		c.sweeps["error"]++
	} else {
		c.sweeps["success"]++
	}
}

func (s *sweepCounts) removed(name mcreconcile.ClusterName, action string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ofLocked(name).orphans[action]++
}

// Describe implements prometheus.Collector.
func (s *sweepCounts) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.sweeps, s.orphans, s.unproven} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s *sweepCounts) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range s.clusters {
		to <- prometheus.MustNewConstMetric(s.unproven, prometheus.GaugeValue, float64(c.unproven), string(name))
		for result, n := range c.sweeps {
			to <- prometheus.MustNewConstMetric(s.sweeps, prometheus.CounterValue, float64(n), string(name), result)
		}
		for action, n := range c.orphans {
			to <- prometheus.MustNewConstMetric(s.orphans, prometheus.CounterValue, float64(n), string(name), action)
		}
	}
}

// export registers the metrics until end is called. Of several collectors of a name in one process, the first has metrics.
func (s *sweepCounts) export() (end func()) {
	if err := ctrlmetrics.Registry.Register(s); err != nil {
		return func() {}
	}
	return func() { ctrlmetrics.Registry.Unregister(s) }
}
