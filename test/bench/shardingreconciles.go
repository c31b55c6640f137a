package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

const (
	reconcileMembers = 100
	reconcileWorkers = 16
	reconcileTakes   = 5 * time.Millisecond
	reconcileFor     = 5 * time.Second
)

// reconcilesTable answers: how many reconciles do replicas get done together? Those that wait, as for the answer of an API server, and
// those that do nothing and so take CPU time alone.
func (w *world) reconcilesTable(ctx context.Context) error {
	t := table{
		title: fmt.Sprintf("Sharding: reconciles of %d members, requeued at once, with %d workers for each replica (counted for %s)",
			reconcileMembers, reconcileWorkers, reconcileFor),
		header: []string{columnReplicas, "", "of all replicas", "to the first row's", "if it grew with replicas"},
	}
	kinds := []struct {
		name  string
		takes time.Duration
	}{{fmt.Sprintf("each waits for %s", reconcileTakes), reconcileTakes}, {"each does nothing", 0}}
	first := make([]float64, len(kinds))
	for i, n := range shardingThroughput.all {
		r, _, err := w.share(ctx, measure.Spec{Workers: reconcileWorkers}, n, reconcileMembers)
		if err != nil {
			return err
		}
		for j, kind := range kinds {
			done, err := w.reconciles(ctx, r, kind.takes)
			if err != nil {
				return errors.Join(err, r.close())
			}
			if i == 0 {
				first[j] = done
			}
			t.add(fmt.Sprint(n), kind.name, fmt.Sprintf("%.0f/s", done), ratio(done, first[j]), ratio(float64(n), float64(shardingThroughput.all[0])))
		}
		if err := r.close(); err != nil {
			return err
		}
	}
	t.print()
	return nil
}

// reconciles returns how many reconciles the replicas do in a second together.
func (w *world) reconciles(ctx context.Context, r *replicas, takes time.Duration) (float64, error) {
	progressf("%d replicas reconcile, each reconcile takes %s", len(r.all), takes)
	if _, err := r.ask(measure.Request{Do: measure.Loop, On: true, Takes: takes}); err != nil {
		return 0, err
	}
	if err := w.changeObject(ctx); err != nil { // whose reconciles go on
		return 0, err
	}
	before, err := costs(r.all)
	if err != nil {
		return 0, err
	}
	if err := pass(ctx, reconcileFor); err != nil {
		return 0, err
	}
	after, err := costs(r.all)
	if err != nil {
		return 0, err
	}
	var done float64
	for i := range after {
		done += float64(after[i].Reconciles-before[i].Reconciles) * float64(time.Second) / float64(after[i].Now-before[i].Now)
	}
	_, err = r.ask(measure.Request{Do: measure.Loop})
	return done, err
}
