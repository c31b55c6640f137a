package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

const (
	freezeWorkers = 8
	beforeFreeze  = 20 * time.Second
	afterFreeze   = time.Minute
	freezeChange  = 10 * time.Millisecond // from one change, in one member, to the next one in the next member
	asksEvery     = time.Second           // each member that is to freeze is asked so often by its reconciles
	freezing      = "freezing-"
)

// freezeTable answers: when a third of the members freezes in one instant, how long do changes in the others wait, in the
// worst second of the minute after?
func freezeTable(ctx context.Context) error {
	f, err := mctest.New(ctx, mctest.Options{Clusters: 1})
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	going, frozen := freezeFleet.all[0], freezeFleet.all[1]
	if err := each(ctx, going+frozen, func(ctx context.Context, i int) error {
		return fill(ctx, f.Members[0], freezeName(i, going), 1)
	}); err != nil {
		return err
	}
	t := table{
		title: fmt.Sprintf("Freeze: from change to reconcile in %d members with %d changes/s together, while %d others freeze whose reconciles ask them every %s (%d workers)",
			going, time.Second/freezeChange, frozen, asksEvery, freezeWorkers),
		header: []string{columnQueue, "", columnMedian, "p99", "p99 of the worst second (which; the freeze is at 20)", "worst second to before"},
	}
	for _, plain := range []bool{false, true} {
		if plain && *oursAlone {
			break
		}
		progressf("freezing %d of %d members, %s", frozen, going+frozen, queueName(plain))
		log, err := freezeOnce(ctx, f, plain, going, frozen)
		if err != nil {
			return err
		}
		before := log.between(0, beforeFreeze-time.Second) // what is made in the last second may wait until after it
		after := log.between(beforeFreeze, beforeFreeze+afterFreeze)
		for _, part := range []struct {
			name string
			waitsSummary
		}{{"before", before}, {"the minute after", after}} {
			t.add(queueName(plain), part.name, milliseconds(part.median), milliseconds(part.p99), fmt.Sprintf("%s (%d)", milliseconds(part.worst), part.second),
				ratio(float64(part.worst), float64(before.worst)))
		}
	}
	t.print()
	return nil
}

// freezeName is the name of a member: the first ones go on, the others freeze.
func freezeName(i, going int) fleet.ClusterName {
	if i < going {
		return fleet.ClusterName(fmt.Sprintf("going-%d", i))
	}
	return fleet.ClusterName(fmt.Sprintf("%s%d", freezing, i-going))
}

func freezeOnce(ctx context.Context, f *mctest.Fleet, plain bool, going, frozen int) (log *changeLog, err error) {
	server, err := url.Parse(f.Members[0].Config().Host)
	if err != nil {
		return nil, err
	}
	d, err := newDam(ctx, server.Host)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	s := setting{local: f.Local, workers: freezeWorkers, plain: plain, members: map[fleet.ClusterName]*rest.Config{}}
	for i := range going + frozen {
		cfg := f.Members[0].Config()
		if i >= going {
			cfg.Host, cfg.ServerName = "https://127.0.0.1:"+d.port(), server.Hostname()
		}
		s.members[freezeName(i, going)] = cfg
	}
	log = newChangeLog()
	everyone := newCountdown(going + frozen)
	stop, err := s.run(ctx, mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
		if req.Name != "object-0" {
			return reconcile.Result{}, nil
		}
		if strings.HasPrefix(string(req.ClusterName), freezing) {
			err := mcreconcile.ClusterFrom(ctx).GetAPIReader().Get(ctx, req.NamespacedName, &corev1.ConfigMap{})
			everyone.count(string(req.ClusterName))
			return reconcile.Result{RequeueAfter: asksEvery}, err
		}
		_, stamp, err := sinceChange(ctx, req)
		log.seen(req.ClusterName, stamp)
		everyone.count(string(req.ClusterName))
		return reconcile.Result{}, err
	}))
	if err != nil {
		return nil, err
	}
	select {
	case <-everyone.done:
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), stop())
	}
	log.begin = time.Now()
	freeze := time.AfterFunc(beforeFreeze, d.shut)
	defer freeze.Stop()
	err = keepChanging(ctx, f.Members[0], going, log)
	log.end()
	return log, errors.Join(err, stop())
}

// keepChanging changes the objects of the members that go on by turns.
func keepChanging(ctx context.Context, cp *mctest.ControlPlane, going int, log *changeLog) error {
	writing, ctx := errgroup.WithContext(ctx)
	writing.SetLimit(writers)
	tick := time.NewTicker(freezeChange)
	defer tick.Stop()
	for i := 0; time.Since(log.begin) < beforeFreeze+afterFreeze && ctx.Err() == nil; i++ {
		name, stamp := freezeName(i%going, going), time.Now().UnixNano()
		log.made(name, stamp)
		writing.Go(func() error { return changeAt(ctx, cp, name, "object-0", stamp) })
		<-tick.C
	}
	return writing.Wait()
}

// changeLog notes for each change how long it was until a reconcile saw it, or a later one.
type changeLog struct {
	begin time.Time

	mu      sync.Mutex // guards what follows
	waiting map[fleet.ClusterName][]int64
	took    map[int64]time.Duration // by when the change was made
}

func newChangeLog() *changeLog {
	return &changeLog{waiting: map[fleet.ClusterName][]int64{}, took: map[int64]time.Duration{}}
}

func (l *changeLog) made(name fleet.ClusterName, stamp int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[name] = append(l.waiting[name], stamp)
}

func (l *changeLog) seen(name fleet.ClusterName, upTo int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[name] = slices.DeleteFunc(l.waiting[name], func(stamp int64) bool {
		if stamp <= upTo {
			l.took[stamp] = time.Duration(time.Now().UnixNano() - stamp)
		}
		return stamp <= upTo
	})
}

// end counts what is not seen as if it were seen now.
func (l *changeLog) end() {
	for name := range l.waiting {
		l.seen(name, time.Now().UnixNano())
	}
}

// waitsSummary sums up how long changes waited.
type waitsSummary struct {
	median, p99, worst time.Duration // worst is the p99 of the changes of one second
	second             time.Duration // which one that is, after the beginning, in seconds
}

// between sums up the changes of a time after the beginning.
func (l *changeLog) between(from, to time.Duration) waitsSummary {
	var all []time.Duration
	seconds := map[time.Duration][]time.Duration{}
	for stamp, took := range l.took {
		at := time.Unix(0, stamp).Sub(l.begin)
		if at >= from && at < to {
			all = append(all, took)
			seconds[at/time.Second] = append(seconds[at/time.Second], took)
		}
	}
	slices.Sort(all)
	w := waitsSummary{median: all[len(all)/2], p99: all[len(all)*99/100]}
	for n, second := range seconds {
		slices.Sort(second)
		if p99 := second[len(second)*99/100]; p99 > w.worst {
			w.worst, w.second = p99, n
		}
	}
	return w
}
