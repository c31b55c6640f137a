package mcqueue

import (
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
	waits                   waits
}

func (s *clusterStats) add(other clusterStats) {
	s.depth += other.depth
	s.inFlight += other.inFlight
	s.parked += other.parked
}

// waits sums up how long requests were ready until they were handed out. Neither number ever falls.
type waits struct {
	count uint64
	sum   float64 // in seconds: the requests that are parked in an outage may wait for more than a time.Duration holds
}

// seriesKeeper decides which clusters have series of their own.
type seriesKeeper struct {
	most       int
	own        int   // how many have
	overflowed bool  // some cluster had none
	others     waits // of all clusters that have none or had none. One sum: several would add up to less after rounding
}

// add reports whether a new cluster has series of its own.
func (k *seriesKeeper) add(name mcreconcile.ClusterName) bool {
	if k.own < k.most && name != otherClusters {
		k.own++
		return true
	}
	k.overflowed = true
	return false
}

func (k *seriesKeeper) remove(own bool) {
	if own {
		k.own--
	}
}

// waited notes a wait of a cluster, among its own or among those of the others.
func (k *seriesKeeper) waited(own bool, w *waits, so time.Duration) {
	if !own {
		w = &k.others
	}
	w.count++
	w.sum += so.Seconds()
}

// clusterCollector reads the figures of each cluster when it is asked for them. So they cost nothing while the queue
// works, and the series of a cluster are gone when the queue has forgotten it.
type clusterCollector struct {
	queue      measured
	registered bool

	depth, inFlight, parked, wait   *prometheus.Desc
	workers, counting, silent, slow *prometheus.Desc
}

func newClusterCollector(controller string, q measured) *clusterCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, name), help,
			labels, prometheus.Labels{labelController: controller})
	}
	const cluster = "cluster"
	return &clusterCollector{
		queue:    q,
		depth:    desc("depth", "Requests of the cluster that are ready, with those that are parked.", cluster),
		inFlight: desc("in_flight", "Requests of the cluster that are being reconciled.", cluster),
		parked:   desc("parked", "Requests of the cluster that are ready, but wait for the cluster to be reachable.", cluster),
		wait:     desc("wait_seconds", "How long requests of the cluster were ready before they were handed out, with the time that they were parked.", cluster),
		workers:  desc("workers", "How many reconciles may count at once; 0 for no limit."),
		counting: desc("counting", "Reconciles that count against the workers."),
		silent:   desc("silent", "Reconciles that do not count, since they wait for a cluster that has not answered so far."),
		slow:     desc("slow", "Reconciles that take longer than a second and are not silent. Beyond three quarters of the workers they do not count."),
	}
}

// Describe implements prometheus.Collector.
func (c *clusterCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.depth, c.inFlight, c.parked, c.wait, c.workers, c.counting, c.silent, c.slow} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *clusterCollector) Collect(to chan<- prometheus.Metric) {
	each, others := c.queue.clusterStats()
	for _, s := range each {
		c.send(to, s)
	}
	if others != nil {
		c.send(to, *others)
	}
	f := c.queue.flightStats()
	for desc, n := range map[*prometheus.Desc]int{c.workers: f.workers, c.counting: f.counting, c.silent: f.silent, c.slow: f.slow} {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n))
	}
}

func (c *clusterCollector) send(to chan<- prometheus.Metric, s clusterStats) {
	to <- prometheus.MustNewConstMetric(c.depth, prometheus.GaugeValue, float64(s.depth), s.name)
	to <- prometheus.MustNewConstMetric(c.inFlight, prometheus.GaugeValue, float64(s.inFlight), s.name)
	to <- prometheus.MustNewConstMetric(c.parked, prometheus.GaugeValue, float64(s.parked), s.name)
	to <- prometheus.MustNewConstSummary(c.wait, s.waits.count, s.waits.sum, nil, s.name)
}

// Stats are the figures of one cluster in a queue.
type Stats struct {
	// Depth is how many requests are ready, with those that are parked or held back; InFlight how many are handed out.
	Depth    int `json:"depth"`
	InFlight int `json:"inFlight"`
	// Paused tells that the requests are parked.
	Paused bool `json:"paused"`
}

// Stats returns the figures of a cluster.
func (q *Queue[request]) Stats(name mcreconcile.ClusterName) Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	c, ok := q.order.clusters[name]
	if !ok {
		return Stats{}
	}
	return Stats{Depth: c.depth, InFlight: c.inFlight, Paused: c.paused}
}

// clusterStats returns the figures of each cluster that has series of its own, and the sums of those of the others, nil if
// there never were any.
func (q *Queue[request]) clusterStats() (each []clusterStats, others *clusterStats) {
	q.mu.Lock()
	defer q.mu.Unlock()
	rest := clusterStats{name: otherClusters, waits: q.order.series.others}
	for name, c := range q.order.clusters {
		s := clusterStats{name: string(name), depth: c.depth, inFlight: c.inFlight, parked: c.parked(), waits: c.waits}
		if c.ownSeries {
			each = append(each, s)
		} else {
			rest.add(s)
		}
	}
	if q.order.series.overflowed {
		others = &rest
	}
	return each, others
}

// flightStats are the figures of what is in flight.
type flightStats struct{ workers, counting, silent, slow int }

func (q *Queue[request]) flightStats() flightStats {
	q.mu.Lock()
	defer q.unlock()
	f := &q.order.flights
	f.age(q.now())
	q.wakeLocked()
	return flightStats{workers: f.workers, counting: f.counting(), silent: f.silent, slow: f.slow}
}

// unfinishedWork returns how long the requests in flight have taken so far, together and at most.
func (q *Queue[request]) unfinishedWork() (total, longest time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for _, f := range q.order.flights.all {
		total += now - f.since
		longest = max(longest, now-f.since)
	}
	return total, longest
}
