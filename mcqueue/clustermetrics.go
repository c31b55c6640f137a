package mcqueue

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

const (
	namespace = "fleet_runtime"
	subsystem = "queue"
	// otherClusters is the cluster label of all that have no series of their own.
	otherClusters = "(other)"
)

// clusterStats are the figures of one cluster.
type clusterStats struct {
	name                    string
	depth, inFlight, parked int
	handed                  uint64
	waited                  time.Duration
}

func (s *clusterStats) add(other clusterStats) {
	s.depth += other.depth
	s.inFlight += other.inFlight
	s.parked += other.parked
	s.handed += other.handed
	s.waited += other.waited
}

// clusterCollector reads the figures of each cluster when it is asked for them. So they cost nothing while the queue
// works, and the series of a cluster are gone when the queue has forgotten it.
type clusterCollector struct {
	queue      measured
	most       int
	registered bool

	depth, inFlight, parked, wait *prometheus.Desc
}

func newClusterCollector(controller string, most int, q measured) *clusterCollector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, name), help,
			[]string{"cluster"}, prometheus.Labels{labelController: controller})
	}
	return &clusterCollector{
		queue: q, most: most,
		depth:    desc("depth", "Requests of the cluster that are ready, with those that are parked."),
		inFlight: desc("in_flight", "Requests of the cluster that are being reconciled."),
		parked:   desc("parked", "Requests of the cluster that are ready, but wait for the cluster to be reachable."),
		wait:     desc("wait_seconds", "How long requests of the cluster were ready before they were handed out, with the time that they were parked."),
	}
}

// Describe implements prometheus.Collector.
func (c *clusterCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.depth, c.inFlight, c.parked, c.wait} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *clusterCollector) Collect(to chan<- prometheus.Metric) {
	each, others := c.queue.clusterStats(c.most)
	for _, s := range each {
		c.send(to, s)
	}
	if others != (clusterStats{name: otherClusters}) {
		c.send(to, others)
	}
}

func (c *clusterCollector) send(to chan<- prometheus.Metric, s clusterStats) {
	to <- prometheus.MustNewConstMetric(c.depth, prometheus.GaugeValue, float64(s.depth), s.name)
	to <- prometheus.MustNewConstMetric(c.inFlight, prometheus.GaugeValue, float64(s.inFlight), s.name)
	to <- prometheus.MustNewConstMetric(c.parked, prometheus.GaugeValue, float64(s.parked), s.name)
	to <- prometheus.MustNewConstSummary(c.wait, s.handed, s.waited.Seconds(), nil, s.name)
}

// Stats are the figures of one cluster in a queue.
type Stats struct {
	// Depth is how many requests are ready, with those that are parked or held back; InFlight how many are handed out.
	Depth, InFlight int
	// Paused tells that the requests are parked.
	Paused bool
}

// Stats returns the figures of a cluster.
func (q *Queue[request]) Stats(name mcreconcile.ClusterName) Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	c, ok := q.order.clusters[name]
	if !ok {
		return Stats{}
	}
	return Stats{Depth: c.depth(), InFlight: c.inFlight, Paused: c.paused}
}

// clusterStats returns the figures of up to most clusters, and the sum of those of the others.
func (q *Queue[request]) clusterStats(most int) (each []clusterStats, others clusterStats) {
	q.mu.Lock()
	defer q.mu.Unlock()
	others.name = otherClusters
	names := slices.Collect(maps.Keys(q.order.clusters))
	if len(names) > most {
		slices.Sort(names) // the same clusters each time
	}
	for _, name := range names {
		c := q.order.clusters[name]
		s := clusterStats{
			name: string(name), depth: c.depth(), inFlight: c.inFlight, parked: c.parked(), handed: c.handed, waited: c.waited,
		}
		if len(each) < most {
			each = append(each, s)
		} else {
			others.add(s)
		}
	}
	return each, others
}

// unfinishedWork returns how long the requests in flight have taken so far, together and at most.
func (q *Queue[request]) unfinishedWork() (total, longest time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for _, f := range q.order.inFlight {
		total += now - f.since
		longest = max(longest, now-f.since)
	}
	return total, longest
}
