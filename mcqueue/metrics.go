package mcqueue

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// metrics are the standard work queue metrics of a controller, in the very series that controller-runtime's own queue
// would fill. Its methods are called with the queue locked, but for waited and stop; a nil pointer does nothing.
type metrics struct {
	depth        *prometheus.GaugeVec
	depths       map[int]prometheus.Gauge // by priority
	adds         prometheus.Counter
	retries      prometheus.Counter
	latency      prometheus.Observer
	workDuration prometheus.Observer
	unfinished   prometheus.Gauge
	longest      prometheus.Gauge
	purgedTotal  prometheus.Counter
	name         string

	end     chan struct{}
	ending  sync.Once
	running sync.WaitGroup
	perName *clusterCollector
}

// What metrics reads from the queue.
type measured interface {
	clusterStats() (each []clusterStats, others *clusterStats)
	flightStats() flightStats
	unfinishedWork() (total, longest time.Duration)
}

const (
	unfinishedEvery = 500 * time.Millisecond
	// mostPriorities have series of their own, as in controller-runtime.
	mostPriorities  = 25
	otherPriorities = "exceeded_cardinality_limit"
)

func newMetrics(controller string, q measured) *metrics {
	if controller == "" {
		return nil
	}
	m := &metrics{
		depth:        standard(newDepth()),
		depths:       map[int]prometheus.Gauge{},
		adds:         standard(newCounter(ctrlmetrics.AddsKey, helpAdds)).WithLabelValues(controller, controller),
		retries:      standard(newCounter(ctrlmetrics.RetriesKey, helpRetries)).WithLabelValues(controller, controller),
		latency:      standard(newHistogram(ctrlmetrics.QueueLatencyKey, helpLatency)).WithLabelValues(controller, controller),
		workDuration: standard(newHistogram(ctrlmetrics.WorkDurationKey, helpDuration)).WithLabelValues(controller, controller),
		unfinished:   standard(newGauge(ctrlmetrics.UnfinishedWorkKey, helpUnfinished)).WithLabelValues(controller, controller),
		longest:      standard(newGauge(ctrlmetrics.LongestRunningProcessorKey, helpLongest)).WithLabelValues(controller, controller),
		purgedTotal:  standard(newPurged()).WithLabelValues(controller),
		name:         controller,
		end:          make(chan struct{}),
		perName:      newClusterCollector(controller, q),
	}
	m.perName.registered = ctrlmetrics.Registry.Register(m.perName) == nil
	m.running.Go(func() { m.watchUnfinished(q) })
	return m
}

func (m *metrics) watchUnfinished(q measured) {
	tick := time.NewTicker(unfinishedEvery)
	defer tick.Stop()
	for {
		select {
		case <-m.end:
			return
		case <-tick.C:
			total, longest := q.unfinishedWork()
			m.unfinished.Set(total.Seconds())
			m.longest.Set(longest.Seconds())
		}
	}
}

// stop ends what the metrics run, and removes the series of clusters. It waits.
func (m *metrics) stop() {
	if m == nil {
		return
	}
	m.ending.Do(func() {
		close(m.end)
		if m.perName.registered {
			ctrlmetrics.Registry.Unregister(m.perName)
		}
	})
	m.running.Wait()
}

// depthOf returns the gauge of ready requests with a priority.
func (m *metrics) depthOf(priority int) prometheus.Gauge {
	if gauge, ok := m.depths[priority]; ok {
		return gauge
	}
	if len(m.depths) >= mostPriorities {
		return m.depth.WithLabelValues(m.name, m.name, otherPriorities)
	}
	gauge := m.depth.WithLabelValues(m.name, m.name, strconv.Itoa(priority))
	m.depths[priority] = gauge
	return gauge
}

func (m *metrics) added(priority int) {
	if m != nil {
		m.adds.Inc()
		m.depthOf(priority).Inc()
	}
}

func (m *metrics) raised(from, to int) {
	if m != nil {
		m.depthOf(from).Dec()
		m.depthOf(to).Inc()
	}
}

func (m *metrics) retried() {
	if m != nil {
		m.retries.Inc()
	}
}

func (m *metrics) handedOut(priority int) {
	if m != nil {
		m.depthOf(priority).Dec()
	}
}

func (m *metrics) waited(so time.Duration) {
	if m != nil {
		m.latency.Observe(so.Seconds())
	}
}

func (m *metrics) finished(took time.Duration) {
	if m != nil {
		m.workDuration.Observe(took.Seconds())
	}
}

func (m *metrics) dropped(priority int) {
	if m != nil {
		m.depthOf(priority).Dec()
	}
}

func (m *metrics) purged(n int) {
	if m != nil {
		m.purgedTotal.Add(float64(n))
	}
}

// standard registers a collector with controller-runtime's registry, or returns the equal one that is there. That is
// how the queue comes by the standard series: controller-runtime registers them, and keeps them to itself. Two are equal
// when name, labels and help are.
func standard[c prometheus.Collector](collector c) c {
	err := ctrlmetrics.Registry.Register(collector)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := already.ExistingCollector.(c); ok {
			return existing
		}
	}
	return collector
}

// The help texts are those of controller-runtime v0.25, since they are part of the identity of a metric.
const (
	helpDepth      = "Current depth of workqueue by workqueue and priority"
	helpAdds       = "Total number of adds handled by workqueue"
	helpLatency    = "How long in seconds an item stays in workqueue before being requested"
	helpDuration   = "How long in seconds processing an item from workqueue takes."
	helpUnfinished = "How many seconds of work has been done that " +
		"is in progress and hasn't been observed by work_duration. Large " +
		"values indicate stuck threads. One can deduce the number of stuck " +
		"threads by observing the rate at which this increases."
	helpLongest = "How many seconds has the longest running " +
		"processor for workqueue been running."
	helpRetries = "Total number of items added to the workqueue with a non-zero delay " +
		"(rate-limited requeues, explicit RequeueAfter or AddAfter calls)"
)

// labelController is the label with the name of the queue's controller.
const labelController = "controller"

func standardLabels() []string { return []string{"name", labelController} }

func newDepth() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Subsystem: ctrlmetrics.WorkQueueSubsystem, Name: ctrlmetrics.DepthKey, Help: helpDepth,
	}, append(standardLabels(), "priority"))
}

func newGauge(name, help string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: ctrlmetrics.WorkQueueSubsystem, Name: name, Help: help}, standardLabels())
}

func newCounter(name, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: ctrlmetrics.WorkQueueSubsystem, Name: name, Help: help}, standardLabels())
}

func newHistogram(name, help string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: ctrlmetrics.WorkQueueSubsystem, Name: name, Help: help}, standardLabels())
}

func newPurged() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: "purged_total",
		Help: "Requests that were dropped because their cluster was disengaged.",
	}, []string{labelController})
}
