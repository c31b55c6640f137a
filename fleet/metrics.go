package fleet

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// measured is what metrics show of a member beside its state and rotations. The fleet's lock guards it, but for tally.
type measured struct {
	reported    time.Time
	firstReady  time.Time // zero before
	engagements int
	ownSeries   bool // decided when the member is added, so that no count ever moves to or from the others
	tally       tally
}

// engagedLocked notes a new engagement, which counts in the member's tally from now on.
func (m *measured) engagedLocked(e *Engagement) {
	e.tally = &m.tally
	m.engagements++
	if m.firstReady.IsZero() {
		m.firstReady = time.Now()
	}
}

// tally counts what goes on in all engagements of a member. A nil pointer counts nothing.
type tally struct {
	mu         sync.Mutex // guards what follows
	probes     probeTimes
	reconciles map[string]*outcomes // by controller
}

type probeTimes struct {
	count     uint64
	sum, last time.Duration
}

// outcomes counts reconciles by how they ended.
type outcomes [3]uint64

const (
	succeeded = iota
	failed
	requeued
)

// outcomeLabels are the values of the label result.
func outcomeLabels() [3]string {
	return [...]string{succeeded: "success", failed: "error", requeued: "requeue"}
}

func outcomeOf(result reconcile.Result, err error) int {
	switch {
	case err != nil:
		return failed
	case result.RequeueAfter > 0, result.Requeue: //nolint:staticcheck // reconcilers that still set it are counted too
		return requeued
	default:
		return succeeded
	}
}

func (t *tally) reconciled(controller string, outcome int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := t.reconciles[controller]
	if counts == nil {
		if t.reconciles == nil {
			t.reconciles = map[string]*outcomes{}
		}
		counts = &outcomes{}
		t.reconciles[controller] = counts
	}
	counts[outcome]++
}

// timed is a probe that counts how long it takes.
func (t *tally) timed(probe func(context.Context, http.RoundTripper) error) func(context.Context, http.RoundTripper) error {
	return func(ctx context.Context, over http.RoundTripper) error {
		begin := time.Now()
		defer func() { t.probed(time.Since(begin)) }()
		return probe(ctx, over)
	}
}

func (t *tally) probed(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.probes.count++
	t.probes.sum += took
	t.probes.last = took
}

// totals are the counts of one member, or the sum of those of several.
type totals struct {
	engagements, rotations int
	probes                 probeTimes // of several members, last means nothing
	reconciles             map[string]outcomes
}

func (t *totals) add(other totals) {
	t.engagements += other.engagements
	t.rotations += other.rotations
	t.probes.count += other.probes.count
	t.probes.sum += other.probes.sum
	if t.reconciles == nil {
		t.reconciles = make(map[string]outcomes, len(other.reconciles))
	}
	for controller, counts := range other.reconciles {
		sum := t.reconciles[controller]
		for i, n := range counts {
			sum[i] += n
		}
		t.reconciles[controller] = sum
	}
}

func (m *member) totalsLocked() totals {
	t := &m.measured.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	out := totals{
		engagements: m.measured.engagements, rotations: m.rotations, probes: t.probes,
		reconciles: make(map[string]outcomes, len(t.reconciles)),
	}
	for controller, counts := range t.reconciles {
		out.reconciles[controller] = *counts
	}
	return out
}

// otherMembers is the cluster label of the sums of all members that have no series of their own.
const otherMembers = "(other)"

// seriesKeeper decides which members have series of their own. The fleet's lock guards it.
type seriesKeeper struct {
	own        int    // members that have
	overflowed bool   // there was one that has not
	gone       totals // of those that have not, and have left: a sum of counters must not fall
}

func (k *seriesKeeper) addLocked(m *member, most int) {
	m.measured.ownSeries = k.own < most && m.name != otherMembers
	if m.measured.ownSeries {
		k.own++
	} else {
		k.overflowed = true
	}
}

func (k *seriesKeeper) removeLocked(m *member) {
	if m.measured.ownSeries {
		k.own--
	} else {
		k.gone.add(m.totalsLocked())
	}
}

// memberFigures are the figures of one member at one moment.
type memberFigures struct {
	name              string
	state             State
	leaving           bool
	since             time.Time
	reported, readyAt time.Time
	expires           time.Time
	reason            string
	notSynced         []NotSynced
	totals            totals
}

// figures returns how many members are in each state, the figures of those that have series of their own, and the sums
// of the others, nil if there never were any.
func (f *Fleet) figures() (states map[State]int, each []memberFigures, others *totals) {
	f.mu.Lock()
	defer f.mu.Unlock()
	states = map[State]int{}
	var rest totals
	rest.add(f.series.gone)
	for _, m := range f.members {
		states[m.state]++
		if !m.ownedLocked() {
			continue
		}
		if !m.measured.ownSeries {
			rest.add(m.totalsLocked())
			continue
		}
		status := m.statusLocked()
		if status.State == Drained {
			status.Expires = time.Time{} // nobody uses the credentials, and those that are renewed on demand end in the normal course of things
		}
		each = append(each, memberFigures{
			reason: status.Reason, notSynced: status.NotSynced,
			name: string(m.name), state: m.state, leaving: status.Leaving, since: m.since,
			reported: m.measured.reported, readyAt: m.measured.firstReady, expires: status.Expires, totals: m.totalsLocked(),
		})
	}
	if f.series.overflowed {
		others = &rest
	}
	return states, each, others
}

// collector reads the fleet when it is asked for metrics. So they cost nothing meanwhile, and the series of a member are
// gone when the member is.
type collector struct {
	fleet *Fleet

	members, state, transition, timeToReady, expiry, probe, lastProbe, engagements, rotations, reconciles *prometheus.Desc
	problems, reason, notSynced, leaving                                                                  *prometheus.Desc
}

func newCollector(f *Fleet) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("fleet_runtime_"+name, help, labels, nil)
	}
	const cluster = "cluster"
	return &collector{
		fleet:       f,
		members:     desc("members", "Members of the fleet, by state.", "state"),
		state:       desc("member_state", "1 for the state that the member is in, 0 for the others.", cluster, "state"),
		reason:      desc("member_reason", "1 for the reason that the status of the member has; absent without one.", cluster, "reason"),
		notSynced:   desc("member_not_synced", "1 for each kind of the member that cannot be listed, watched or indexed.", cluster, "kind"),
		leaving:     desc("member_leaving", "1 for a member that is about to leave; absent otherwise.", cluster),
		transition:  desc("member_last_transition_timestamp_seconds", "When the state of the member last changed, in seconds since 1970.", cluster),
		timeToReady: desc("member_time_to_ready_seconds", "How long it took from when the member was reported until it was Ready for the first time.", cluster),
		expiry:      desc("member_credentials_expiry_timestamp_seconds", "When the credentials of the member expire, in seconds since 1970, if the provider knows; absent while it is Drained.", cluster),
		probe:       desc("member_probe_seconds", "How long probes of the member took, with those that failed.", cluster),
		lastProbe:   desc("member_last_probe_seconds", "How long the last probe of the member took.", cluster),
		engagements: desc("member_engagements_total", "How often the member was engaged.", cluster),
		rotations:   desc("member_rotations_total", "How often the member took over new credentials while it was engaged.", cluster),
		reconciles:  desc("member_reconciles_total", "Reconciles of the member's requests, by controller and result.", cluster, "controller", "result"),
		problems:    desc("discovery_problems", "Problems of providers that no member shows.", "provider", "reason"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.members, c.state, c.transition, c.timeToReady, c.expiry, c.probe, c.lastProbe, c.engagements, c.rotations, c.reconciles,
		c.problems, c.reason, c.notSynced, c.leaving,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	states, each, others := c.fleet.figures()
	for _, state := range allStates() {
		gauge(to, c.members, float64(states[state]), string(state))
	}
	for _, m := range each {
		c.sendState(to, m)
		c.sendTotals(to, m.name, m.totals)
	}
	if others != nil {
		c.sendTotals(to, otherMembers, *others)
	}
	for series, n := range c.fleet.problems.figures() {
		gauge(to, c.problems, float64(n), series.provider, series.reason)
	}
}

// sendState sends what cannot be summed.
func (c *collector) sendState(to chan<- prometheus.Metric, m memberFigures) {
	for _, state := range allStates() {
		is := 0.0
		if m.state == state {
			is = 1
		}
		gauge(to, c.state, is, m.name, string(state))
	}
	if m.reason != "" {
		gauge(to, c.reason, 1, m.name, m.reason)
	}
	for _, n := range m.notSynced {
		gauge(to, c.notSynced, 1, m.name, n.Name())
	}
	if m.leaving {
		gauge(to, c.leaving, 1, m.name)
	}
	gauge(to, c.transition, float64(m.since.UnixMilli())/1000, m.name)
	if !m.readyAt.IsZero() {
		gauge(to, c.timeToReady, m.readyAt.Sub(m.reported).Seconds(), m.name)
	}
	if !m.expires.IsZero() {
		gauge(to, c.expiry, float64(m.expires.UnixMilli())/1000, m.name)
	}
	if m.totals.probes.count > 0 {
		gauge(to, c.lastProbe, m.totals.probes.last.Seconds(), m.name)
	}
}

func (c *collector) sendTotals(to chan<- prometheus.Metric, name string, t totals) {
	counter(to, c.engagements, float64(t.engagements), name)
	counter(to, c.rotations, float64(t.rotations), name)
	to <- prometheus.MustNewConstSummary(c.probe, t.probes.count, t.probes.sum.Seconds(), nil, name)
	for controller, counts := range t.reconciles {
		for outcome, label := range outcomeLabels() {
			counter(to, c.reconciles, float64(counts[outcome]), name, controller, label)
		}
	}
}

func gauge(to chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func counter(to chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
}

// exportMetrics registers the fleet's metrics until end is called. Of several fleets that run in one process at once,
// the first has metrics.
func (f *Fleet) exportMetrics() (end func()) {
	c := newCollector(f)
	err := ctrlmetrics.Registry.Register(c)
	if _, taken := errors.AsType[prometheus.AlreadyRegisteredError](err); taken {
		f.opts.Logger.Info("This fleet has no metrics, as another one of the process has them")
		return func() {}
	}
	if err != nil {
		f.opts.Logger.Error(err, "This fleet has no metrics")
		return func() {}
	}
	return func() { ctrlmetrics.Registry.Unregister(c) }
}
