package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

const (
	healthyMembers = 10
	healthyWorkers = 8
	changesEach    = 100 // at ten a second
	changeEvery    = 100 * time.Millisecond
	hangsFor       = 30 * time.Second
	hangingObjects = 50
	hangingPrefix  = "hanging-"
)

// hangingMembers are how many members hang.
var hangingMembers = []int{0, 1, 20}

// bulkheadTable answers: how long do changes in ten healthy members wait while the reconciles of others hang?
func bulkheadTable(ctx context.Context) error {
	f, err := mctest.New(ctx, mctest.Options{Clusters: 2})
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for i := range slices.Max(hangingMembers) {
		if err := fill(ctx, f.Members[0], hanging(i), hangingObjects); err != nil {
			return err
		}
	}
	for i := range healthyMembers {
		if err := fill(ctx, f.Members[1], healthy(i), 1); err != nil {
			return err
		}
	}
	t := table{
		title: fmt.Sprintf("Bulkhead: from change to reconcile in %d healthy members with 10 changes/s each, beside others whose reconciles hang for %s (%d workers)",
			healthyMembers, hangsFor, healthyWorkers),
		header: []string{columnQueue, "hanging members", columnMedian, "p99", "p99 to without"},
	}
	for _, plain := range []bool{false, true} {
		var without float64
		for _, hangs := range hangingMembers {
			took, err := healthyWaits(ctx, f, plain, hangs)
			if err != nil {
				return err
			}
			slices.Sort(took)
			p99 := float64(took[len(took)*99/100])
			if hangs == 0 {
				without = p99
			}
			t.add(queueName(plain), fmt.Sprint(hangs),
				milliseconds(took[len(took)/2]), perItem(p99), ratio(p99, without))
		}
	}
	t.print()
	return nil
}

func hanging(i int) fleet.ClusterName {
	return fleet.ClusterName(fmt.Sprintf("%s%d", hangingPrefix, i))
}

func healthy(i int) fleet.ClusterName { return fleet.ClusterName(fmt.Sprintf("healthy-%d", i)) }

// healthyWaits changes the object of each healthy member ten times a second, and returns how long the changes waited
// that were reconciled. A change that another overtook counts with the one that did.
func healthyWaits(ctx context.Context, f *mctest.Fleet, plain bool, hangs int) ([]time.Duration, error) {
	s := setting{local: f.Local, workers: healthyWorkers, plain: plain, members: map[fleet.ClusterName]*rest.Config{}}
	for i := range healthyMembers {
		s.members[healthy(i)] = f.Members[1].Config()
	}
	for i := range hangs {
		s.members[hanging(i)] = f.Members[0].Config()
	}
	var (
		mu     sync.Mutex
		took   []time.Duration
		begun  = time.Now().UnixNano()
		latest = map[fleet.ClusterName]int64{}
		hang   = newCountdown(hangs)
	)
	if plain && hangs > 0 {
		hang = newCountdown(1) // its queue does not hand out a request of each
	}
	stop, err := s.run(ctx, mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
		if strings.HasPrefix(string(req.ClusterName), hangingPrefix) {
			hang.count(string(req.ClusterName))
			select {
			case <-time.After(hangsFor):
			case <-ctx.Done():
			}
			return reconcile.Result{}, nil
		}
		waited, stamp, err := sinceChange(ctx, req)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && stamp > max(begun, latest[req.ClusterName]) {
			latest[req.ClusterName] = stamp
			took = append(took, waited)
		}
		return reconcile.Result{}, err
	}))
	if err != nil {
		return nil, err
	}
	if hangs > 0 {
		<-hang.done
	}
	final, err := changeAll(ctx, f.Members[1])
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	for tick := time.Tick(changeEvery); ; <-tick {
		mu.Lock()
		done := 0
		for i := range healthyMembers {
			if latest[healthy(i)] >= final {
				done++
			}
		}
		mu.Unlock()
		if done == healthyMembers {
			return took, stop()
		}
	}
}

// changeAll makes the changes of all healthy members, and returns a time after which the last of each was made.
func changeAll(ctx context.Context, cp *mctest.ControlPlane) (final int64, err error) {
	tick := time.NewTicker(changeEvery)
	defer tick.Stop()
	for n := range changesEach {
		if n == changesEach-1 {
			final = time.Now().UnixNano()
		}
		for i := range healthyMembers {
			if err := change(ctx, cp, healthy(i), "object-0"); err != nil {
				return 0, err
			}
		}
		<-tick.C
	}
	return final, nil
}
