package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

const (
	busyObjects  = 1000
	busyTakes    = 5 * time.Millisecond
	busyWorkers  = 4
	quietChanges = 60
)

// fairnessTable answers: with 1000 looping objects in another member, 4 workers and reconciles of 5 ms, how long does a
// change wait?
func fairnessTable(ctx context.Context) error {
	f, err := mctest.New(ctx, mctest.Options{Clusters: 2})
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := errors.Join(fill(ctx, f.Members[0], "busy", busyObjects), fill(ctx, f.Members[1], "quiet", 1)); err != nil {
		return err
	}
	t := table{
		title: fmt.Sprintf("Fairness: from change to reconcile, beside %d looping objects of another member (%d workers, reconciles of %s)",
			busyObjects, busyWorkers, busyTakes),
		header: []string{columnQueue, columnMedian, "maximum"},
	}
	var medians []float64
	for _, plain := range []bool{false, true} {
		took, err := waits(ctx, f, plain)
		if err != nil {
			return err
		}
		slices.Sort(took)
		medians = append(medians, float64(took[len(took)/2]))
		t.add(queueName(plain), milliseconds(took[len(took)/2]), milliseconds(took[len(took)-1]))
	}
	t.add("ratio of the medians", ratio(medians[0], medians[1]), "")
	t.print()
	return nil
}

func queueName(plain bool) string {
	if plain {
		return "controller-runtime"
	}
	return "fleet-runtime"
}

// waits changes the quiet member's object again and again, and returns how long each change waited.
func waits(ctx context.Context, f *mctest.Fleet, plain bool) ([]time.Duration, error) {
	reconciled := make(chan time.Duration, 1)
	listed, looping := newCountdown(busyObjects), newCountdown(busyObjects)
	begun := time.Now().UnixNano()
	last := begun
	s := setting{
		local: f.Local, workers: busyWorkers, plain: plain,
		members: map[fleet.ClusterName]*rest.Config{"busy": f.Members[0].Config(), "quiet": f.Members[1].Config()},
	}
	stop, err := s.run(ctx, mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
		if req.ClusterName == "busy" {
			listed.count(req.Name)
			if _, stamp, err := sinceChange(ctx, req); err != nil || stamp < begun {
				return reconcile.Result{}, err
			}
			looping.count(req.Name)
			<-time.After(busyTakes)
			return reconcile.Result{RequeueAfter: time.Nanosecond, Priority: new(0)}, nil
		}
		// Only one object is reconciled here, so never two at once.
		took, stamp, err := sinceChange(ctx, req)
		if err == nil && stamp > last {
			last = stamp
			reconciled <- took
		}
		return reconcile.Result{}, err
	}))
	if err != nil {
		return nil, err
	}
	// A change starts the loop of each busy object: at the priority of changes, not the low one of initial lists, with
	// which controller-runtime's queue would never hand out those that come after the first few.
	<-listed.done
	for i := range busyObjects {
		if err := change(ctx, f.Members[0], "busy", fmt.Sprintf("object-%d", i)); err != nil {
			return nil, errors.Join(err, stop())
		}
	}
	<-looping.done
	took := make([]time.Duration, 0, quietChanges)
	for range quietChanges {
		if err := change(ctx, f.Members[1], "quiet", "object-0"); err != nil {
			return nil, errors.Join(err, stop())
		}
		took = append(took, <-reconciled)
	}
	return took, stop()
}

// countdown closes done when so many different names were counted.
type countdown struct {
	done chan struct{}

	mu   sync.Mutex // guards what follows
	left int
	seen map[string]bool
}

func newCountdown(n int) *countdown {
	return &countdown{done: make(chan struct{}), left: n, seen: map[string]bool{}}
}

func (c *countdown) count(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[name] {
		return
	}
	c.seen[name] = true
	if c.left--; c.left == 0 {
		close(c.done)
	}
}
