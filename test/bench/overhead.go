package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

const (
	overheadNamespace = "overhead"
	// overheadTimeout bounds each step, which takes seconds.
	overheadTimeout = 2 * time.Minute
	// loopFor is how long objects are requeued at once.
	loopFor = 2 * time.Second
	// latencyChanges are made one after the other, of one object each.
	latencyChanges = 300
)

// overheads are the rows of the table: what is measured of both in each run, in seconds.
var overheads = []struct {
	name string
	// write writes a figure, such as seconds for one of the objects as objects per second.
	write func(seconds float64) string
}{
	{"objects listed at first, from the start of the manager until all were reconciled", milli},
	{"updates, as fast as eight writers can, until all were reconciled", perSecond},
	{"CPU time for that", micro},
	{"from the event to the reconcile, median", micro},
	{"from the event to the reconcile, p99", micro},
	{"from the write to the reconcile, median", micro},
	{"from the write to the reconcile, p99", micro},
	{"reconciles of objects that are requeued at once", perSecond},
	{"CPU time for that", micro},
}

func milli(s float64) string     { return milliseconds(time.Duration(s * 1e9)) }
func micro(s float64) string     { return perItem(s * 1e9) }
func perSecond(s float64) string { return fmt.Sprintf("%.0f/s", 1/s) }

func overheadTable(ctx context.Context) error { return inWorld(ctx, (*world).overheadTable) }

// overheadTable answers: with one member, what does a fleet cost beside a plain manager?
func (w *world) overheadTable(ctx context.Context) error {
	if err := w.createNamespace(ctx, overheadNamespace, 0); err != nil {
		return err
	}
	if err := each(ctx, *oneObjects, func(ctx context.Context, i int) error {
		return w.client.Create(ctx, configMap(overheadNamespace, objectName(i)))
	}); err != nil {
		return err
	}
	t := table{
		title: fmt.Sprintf("Overhead: one member with %d objects, reconciles that do nothing (medians of %d runs; more than 1.00× is better)",
			*oneObjects, *oneRuns),
		header: []string{"workers", "", subjectOneMember, subjectPlain, "ours is faster"},
	}
	for _, workers := range []int{1, 8} {
		both := [2][][]float64{}
		for range *oneRuns {
			for i, subject := range []string{subjectOneMember, subjectPlain} {
				progressf("%s: %d workers", subject, workers)
				figures, err := w.overhead(ctx, subject, workers)
				if err != nil {
					return err
				}
				both[i] = append(both[i], figures)
			}
		}
		for row, what := range overheads {
			ours, plain := middle(both[0], row), middle(both[1], row)
			t.add(fmt.Sprint(workers), what.name, what.write(ours), what.write(plain), ratio(plain, ours))
		}
	}
	t.print()
	return nil
}

func objectName(i int) string { return fmt.Sprintf("object-%04d", i) }

// middle returns the median of a figure over all runs.
func middle(runs [][]float64, row int) float64 {
	all := make([]float64, len(runs))
	for i, figures := range runs {
		all[i] = figures[row]
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// overhead measures all rows in one process.
func (w *world) overhead(ctx context.Context, subject string, workers int) (figures []float64, err error) {
	c, err := w.startChild(ctx, measure.Spec{Subject: subject, Namespace: overheadNamespace, Workers: workers})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	a, err := c.wait(*oneObjects, overheadTimeout)
	if err != nil {
		return nil, err
	}
	figures = append(figures, time.Duration(a.Last-a.Started).Seconds())
	for _, measure := range []func(context.Context, *child) ([]float64, error){w.updates, w.latencies, w.loops} {
		more, err := measure(ctx, c)
		if err != nil {
			return nil, err
		}
		figures = append(figures, more...)
	}
	return figures, c.profile(fmt.Sprintf("%d-workers", workers))
}

// updates returns the time and the CPU time for one update.
func (w *world) updates(ctx context.Context, c *child) ([]float64, error) {
	before, err := c.ask(measure.Request{Do: measure.Cost})
	if err != nil {
		return nil, err
	}
	since := time.Now()
	a, err := w.touch(ctx, c, *oneObjects, writers)
	if err != nil {
		return nil, err
	}
	after, err := c.ask(measure.Request{Do: measure.Cost})
	n := float64(*oneObjects)
	return []float64{time.Unix(0, a.Last).Sub(since).Seconds() / n, (after.CPU - before.CPU).Seconds() / n}, err
}

// loops returns the time and the CPU time for one reconcile of an object that is requeued at once, as all are.
func (w *world) loops(ctx context.Context, c *child) ([]float64, error) {
	if _, err := c.ask(measure.Request{Do: measure.Loop, On: true}); err != nil {
		return nil, err
	}
	if _, err := w.touch(ctx, c, *oneObjects, writers); err != nil {
		return nil, err
	}
	before, err := c.ask(measure.Request{Do: measure.Cost})
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(loopFor):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	after, err := c.ask(measure.Request{Do: measure.Cost})
	if err != nil {
		return nil, err
	}
	_, err = c.ask(measure.Request{Do: measure.Loop, On: false})
	n := float64(after.Reconciles - before.Reconciles)
	return []float64{time.Duration(after.Now-before.Now).Seconds() / n, (after.CPU - before.CPU).Seconds() / n}, err
}

// latencies returns the median and the 99th percentile from event to reconcile, and those from write to reconcile.
func (w *world) latencies(ctx context.Context, c *child) ([]float64, error) {
	a, err := w.touch(ctx, c, min(latencyChanges, *oneObjects), 1)
	if err != nil {
		return nil, err
	}
	var figures []float64
	for _, took := range [][]time.Duration{a.ToReconcile, a.SinceWrite} {
		slices.Sort(took)
		figures = append(figures, took[len(took)/2].Seconds(), took[len(took)*99/100].Seconds())
	}
	return figures, nil
}

// touch writes the time to the first n objects, and waits until each was reconciled since.
func (w *world) touch(ctx context.Context, c *child, n, atOnce int) (measure.Answer, error) {
	if _, err := c.ask(measure.Request{Do: measure.Reset, Since: time.Now().UnixNano()}); err != nil {
		return measure.Answer{}, err
	}
	if err := eachOf(ctx, n, atOnce, func(ctx context.Context, i int) error {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, measure.StampKey, time.Now().UnixNano())
		return w.client.Patch(ctx, configMap(overheadNamespace, objectName(i)), client.RawPatch("application/merge-patch+json", patch))
	}); err != nil {
		return measure.Answer{}, err
	}
	return c.wait(n, overheadTimeout)
}
