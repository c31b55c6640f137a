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
	// overheadTimeout bounds each step, which takes seconds.
	overheadTimeout = 2 * time.Minute
	// loopFor is how long objects are requeued at once.
	loopFor = time.Second
	// latencyChanges are made of each subject's objects, in turn: of so many, ten are slower than the 99th percentile.
	latencyChanges = 1000
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
	names := []string{subjectOneMember, subjectPlain}
	if *oursAlone {
		names = names[:1]
	}
	for _, name := range names {
		if err := w.createObjects(ctx, overheadNamespace(name)); err != nil {
			return err
		}
	}
	t := table{
		title: fmt.Sprintf("Overhead: one member with %d objects, reconciles that do nothing (medians of %d runs; more than 1.00× is better)",
			*oneObjects, *oneRuns),
		header: []string{"workers", "", subjectOneMember, subjectPlain, "ours is faster"},
	}
	runs := map[int][]figures{}
	for run := range *oneRuns {
		for _, workers := range overheadWorkers {
			progressf("overhead: run %d with %d workers", run+1, workers)
			one, err := w.overhead(ctx, names, workers)
			if err != nil {
				return err
			}
			runs[workers] = append(runs[workers], one)
		}
		slices.Reverse(names) // neither is always the first
	}
	for _, workers := range overheadWorkers {
		for row, what := range overheads {
			ours, plain := middle(runs[workers], subjectOneMember, row), middle(runs[workers], subjectPlain, row)
			t.add(fmt.Sprint(workers), what.name, what.write(ours), what.write(plain), ratio(plain, ours))
		}
	}
	t.print()
	return nil
}

// overheadWorkers are the numbers of workers that the table has rows for.
var overheadWorkers = []int{1, 8}

// overheadNamespace is where a subject's objects are. Each has its own, so that it sees no events of the other's.
func overheadNamespace(subject string) string { return "overhead-" + slug(subject) }

func objectName(i int) string { return fmt.Sprintf("object-%04d", i) }

func (w *world) createObjects(ctx context.Context, namespace string) error {
	if err := w.createNamespace(ctx, namespace, 0); err != nil {
		return err
	}
	return each(ctx, *oneObjects, func(ctx context.Context, i int) error {
		return w.client.Create(ctx, configMap(namespace, objectName(i)))
	})
}

// figures are what was measured in one run, by subject: a figure for each row.
type figures map[string][]float64

// middle returns the median of a figure over all runs, zero if the subject was left out.
func middle(runs []figures, subject string, row int) float64 {
	var all []float64
	for _, run := range runs {
		if of := run[subject]; of != nil {
			all = append(all, of[row])
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// overhead measures all rows once, of all subjects. Their processes run side by side, and each step is done with one after
// the other before the next step, so that what else the machine does at the time harms them alike.
func (w *world) overhead(ctx context.Context, subjects []string, workers int) (_ figures, err error) {
	all := figures{}
	var children []*child
	defer func() {
		for _, c := range children {
			err = errors.Join(err, c.close())
		}
	}()
	for _, subject := range subjects {
		c, err := w.startChild(ctx, measure.Spec{Subject: subject, Namespace: overheadNamespace(subject), Workers: workers})
		if err != nil {
			return nil, err
		}
		children = append(children, c)
		a, err := c.wait(*oneObjects, overheadTimeout)
		if err != nil {
			return nil, err
		}
		all[subject] = append(all[subject], time.Duration(a.Last-a.Started).Seconds())
	}
	for _, step := range []func(context.Context, []*child) (figures, error){oneByOne(w.updates), w.latencies, oneByOne(w.loops)} {
		measured, err := step(ctx, children)
		if err != nil {
			return nil, err
		}
		for subject, more := range measured {
			all[subject] = append(all[subject], more...)
		}
	}
	for _, c := range children {
		err = errors.Join(err, c.profile(c.workers()))
	}
	return all, err
}

// oneByOne measures one child after the other.
func oneByOne(step func(context.Context, *child) ([]float64, error)) func(context.Context, []*child) (figures, error) {
	return func(ctx context.Context, children []*child) (figures, error) {
		all := figures{}
		for _, c := range children {
			measured, err := step(ctx, c)
			if err != nil {
				return nil, err
			}
			all[c.spec.Subject] = measured
		}
		return all, nil
	}
}

// updates returns the time and the CPU time for one update.
func (w *world) updates(ctx context.Context, c *child) ([]float64, error) {
	before, err := c.ask(measure.Request{Do: measure.Cost})
	if err != nil {
		return nil, err
	}
	since := time.Now()
	a, err := w.touchAll(ctx, c)
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
	if _, err := w.touchAll(ctx, c); err != nil {
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

// latencies returns the median and the 99th percentile from event to reconcile, and those from write to reconcile. The
// subjects' changes take turns, and each is made when the one before was reconciled: what holds up the process for a moment
// is not counted many times over.
func (w *world) latencies(ctx context.Context, children []*child) (figures, error) {
	for _, c := range children {
		if err := errors.Join(c.reset(), c.trace(true, c.workers())); err != nil {
			return nil, err
		}
	}
	changes := min(latencyChanges, *oneObjects)
	for i := range changes {
		for _, c := range children {
			if err := w.touch(ctx, c, i); err != nil {
				return nil, err
			}
			if _, err := c.wait(i+1, overheadTimeout); err != nil {
				return nil, err
			}
		}
	}
	all := figures{}
	for _, c := range children {
		a, err := c.ask(measure.Request{Do: measure.Latencies})
		if err = errors.Join(err, c.trace(false, c.workers())); err != nil {
			return nil, err
		}
		for _, took := range [][]time.Duration{a.ToReconcile, a.SinceWrite} {
			slices.Sort(took)
			all[c.spec.Subject] = append(all[c.spec.Subject], took[len(took)/2].Seconds(), took[len(took)*99/100].Seconds())
		}
	}
	return all, nil
}

func (c *child) workers() string { return fmt.Sprintf("%d-workers", c.spec.Workers) }

// touch writes the time to one of a child's objects.
func (w *world) touch(ctx context.Context, c *child, object int) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, measure.StampKey, time.Now().UnixNano())
	return w.client.Patch(ctx, configMap(c.spec.Namespace, objectName(object)), client.RawPatch("application/merge-patch+json", patch))
}

// touchAll touches all objects, several at once, and waits until each was reconciled since.
func (w *world) touchAll(ctx context.Context, c *child) (measure.Answer, error) {
	if err := c.reset(); err != nil {
		return measure.Answer{}, err
	}
	if err := each(ctx, *oneObjects, func(ctx context.Context, i int) error { return w.touch(ctx, c, i) }); err != nil {
		return measure.Answer{}, err
	}
	return c.wait(*oneObjects, overheadTimeout)
}
