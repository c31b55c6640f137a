package sharding

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
)

const metricPrefix = "fleet_runtime_sharding_"

// counts are what metrics count. The rest is read from the replica when it is asked for.
type counts struct {
	lost, suspended, fenced prometheus.Counter
	moves                   *prometheus.CounterVec
	handOver                prometheus.Histogram
}

func newCounts() *counts {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: metricPrefix + name, Help: help})
	}
	c := &counts{
		lost:      counter("sessions_lost_total", "Sessions of this replica that others have fenced, or whose Lease or table was deleted."),
		suspended: counter("suspensions_total", "How often this replica has sent nothing to its members because it could not renew its session."),
		fenced:    counter("fenced_total", "Sessions of other replicas that this one has fenced, as they were silent."),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricPrefix + "moves_total", Help: "Buckets that this replica, as the one that plans, has given to another owner, by reason.",
		}, []string{"reason"}),
		handOver: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: metricPrefix + "hand_over_seconds", Help: "How long it took this replica to give a bucket up, from when it was told.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
	}
	for _, why := range []protocol.Reason{protocol.Unowned, protocol.Draining, protocol.Overloaded, protocol.Underloaded} {
		c.moves.WithLabelValues(string(why))
	}
	return c
}

// collector reads a replica when it is asked for metrics.
type collector struct {
	replica *Replica

	buckets, members, weight, withoutOwner, balance, valid, replicas, strange, stuck *prometheus.Desc
}

func newCollector(r *Replica) *collector {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(metricPrefix+name, help, nil, nil) }
	return &collector{
		replica:      r,
		buckets:      desc("owned_buckets", "Buckets that this replica owns."),
		members:      desc("owned_members", "Members that this replica owns."),
		weight:       desc("owned_weight", "The weight of the members that this replica owns."),
		withoutOwner: desc("members_without_owner", "Members that no live replica owns: those of this pool, and of pools without a live replica. The local cluster counts too."),
		balance:      desc("max_over_mean", "The largest weight of a replica over the mean: 1 is perfect, and up to 1.1 is left alone."),
		valid:        desc("session_valid_seconds", "For how long the session of this replica is valid unless it is renewed; 0 while it is suspended."),
		replicas:     desc("replicas", "Live replicas of this pool."),
		strange:      desc("replicas_of_another_fleet", "Live replicas of this pool that seem to be of another fleet, which has the same ID. The status says why."),
		stuck:        desc("stuck", "1 while nothing can be decided, such as when the table cannot be read or written, else 0. The status says why."),
	}
}

func (r *Replica) counters() []prometheus.Collector {
	c := r.count
	return []prometheus.Collector{c.lost, c.suspended, c.fenced, c.moves, c.handOver}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.buckets, c.members, c.weight, c.withoutOwner, c.balance, c.valid, c.replicas, c.strange, c.stuck} {
		to <- d
	}
	for _, counter := range c.replica.counters() {
		counter.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	status := c.replica.Status()
	gauge := func(d *prometheus.Desc, value float64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	var own ReplicaStatus
	live, strange := 0, 0
	for _, one := range status.Replicas {
		if one.Live {
			live++
		}
		if one.AnotherFleet != "" {
			strange++
		}
		if one.Session == status.Session {
			own = one
		}
	}
	gauge(c.buckets, float64(own.Buckets))
	gauge(c.members, float64(own.Members))
	gauge(c.weight, own.Weight)
	gauge(c.withoutOwner, float64(status.MembersWithoutOwner))
	gauge(c.balance, status.MaxOverMean)
	gauge(c.valid, status.ValidSeconds)
	gauge(c.replicas, float64(live))
	gauge(c.strange, float64(strange))
	gauge(c.stuck, float64(min(1, len(status.Problem))))
	for _, counter := range c.replica.counters() {
		counter.Collect(to)
	}
}

// exportMetrics registers the metrics until end is called. Of several replicas that run in one process at once, the first has
// metrics.
func (r *Replica) exportMetrics() (end func()) {
	c := newCollector(r)
	err := ctrlmetrics.Registry.Register(c)
	if _, taken := errors.AsType[prometheus.AlreadyRegisteredError](err); taken {
		r.log.Info("This replica has no metrics, as another one of the process has them")
		return func() {}
	}
	if err != nil {
		r.log.Error(err, "This replica has no metrics")
		return func() {}
	}
	return func() { ctrlmetrics.Registry.Unregister(c) }
}

// wrote counts what a turn has written, and tells of it.
func (t *turn) wrote() {
	for _, step := range t.steps {
		if step.Do != protocol.Cancelled {
			t.count.moves.WithLabelValues(string(step.Why)).Inc()
		}
	}
	for _, took := range t.took {
		t.count.handOver.Observe(took.Seconds())
	}
	if log := t.log.V(min(1, t.given)); len(t.steps)+t.given > 0 {
		log.Info("The table of who owns what has changed", "generation", t.next.Gen, "planned", len(t.steps), "given up", t.given,
			"sessions", len(t.next.Sessions))
	}
}
