package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

// usage is what one replica uses.
type usage struct {
	// idle and busy are CPU time in seconds a minute: while nothing happens, and while an object of each member changes
	// once a second.
	idle, busy float64
	// rss and heap are in bytes, after garbage collection.
	rss, heap float64
}

// goalOfThree is what each of three replicas may take of what one alone takes.
const goalOfThree = "≤ 0.36×"

// costTable answers: what does each replica use of CPU time and memory, by how many there are that share real members?
func (w *world) costTable(ctx context.Context) error {
	empty, _, err := w.usages(ctx, 1, 0)
	if err != nil {
		return err
	}
	t := table{
		title: fmt.Sprintf("Sharding: what each replica uses of %d members (CPU measured for %s while idle, and again)", *shardingMembers, *shardingFor),
		header: []string{
			columnReplicas, "members of each", "", "mean, most", "above an empty one: mean, most", "that to the first row's: mean, most", "goal for each",
		},
	}
	var first []usage
	for i, n := range shardingReplicas.all {
		all, shares, err := w.usages(ctx, n, *shardingMembers)
		if err != nil {
			return err
		}
		if i == 0 {
			first = all
		}
		goal := "–"
		if n == 3 && shardingReplicas.all[0] == 1 {
			goal = goalOfThree
		}
		for _, u := range usageRows {
			t.add(append(append([]string{fmt.Sprint(n), fmt.Sprintf("%d to %d", slices.Min(shares), slices.Max(shares))},
				u.cells(all, first, empty[0])...), goal)...)
		}
	}
	t.print()
	return nil
}

// usageRows are the rows of a table for each number of replicas.
var usageRows = []usageRow{
	{"CPU a minute, idle", func(u usage) float64 { return u.idle }, secondsOf},
	{"CPU a minute, a change a second in each", func(u usage) float64 { return u.busy }, secondsOf},
	{"RSS", func(u usage) float64 { return u.rss }, megabytes},
	{columnHeap, func(u usage) float64 { return u.heap }, megabytes},
}

type usageRow struct {
	name string
	one  func(usage) float64
	text func(float64) string
}

// cells writes the name of a row, what replicas use, how much that is above an empty one, and this to what the mean of the first row is above.
func (r usageRow) cells(all, first []usage, empty usage) []string {
	mean, most := r.of(all)
	before, _ := r.of(first)
	none := r.one(empty)
	return []string{
		r.name, r.text(mean) + ", " + r.text(most), r.text(mean-none) + ", " + r.text(most-none),
		ratio(mean-none, before-none) + ", " + ratio(most-none, before-none),
	}
}

// of returns the mean of all replicas, and the most.
func (r usageRow) of(all []usage) (mean, most float64) {
	for _, u := range all {
		mean += r.one(u) / float64(len(all))
		most = max(most, r.one(u))
	}
	return mean, most
}

// usages measures n replicas that share so many members, and returns what each uses, and how many members each has.
func (w *world) usages(ctx context.Context, n, members int) (all []usage, shares []int, err error) {
	r, shares, err := w.share(ctx, measure.Spec{}, n, members)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	progressf("measuring %d replicas with %d members", n, members)
	idle, err := cpuPerMinute(ctx, r.all, *shardingFor)
	if err != nil {
		return nil, nil, err
	}
	busy := idle
	if members > 0 {
		end := w.changeEverySecond(ctx)
		busy, err = cpuPerMinute(ctx, r.all, *shardingFor)
		if err := errors.Join(err, end()); err != nil {
			return nil, nil, err
		}
	}
	samples, err := r.ask(measure.Request{Do: measure.TakeSample})
	if err != nil {
		return nil, nil, err
	}
	for i := range samples {
		all = append(all, usage{idle: idle[i], busy: busy[i], rss: samples[i].Sample.RSS, heap: samples[i].Sample.Heap})
	}
	return all, shares, r.all[0].profile(fmt.Sprintf("%d-of-%d-members", n, members))
}

// changeEverySecond changes the object that all members show, once a second, until end is called.
func (w *world) changeEverySecond(ctx context.Context) (end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		var err error
		for err == nil && pass(ctx, time.Second) == nil {
			err = w.changeObject(ctx)
		}
		if ctx.Err() != nil {
			err = nil
		}
		ended <- err
	}()
	return func() error {
		cancel()
		return <-ended
	}
}

// changeObject changes the object that all members show.
func (w *world) changeObject(ctx context.Context) error {
	return writeStamp(ctx, w.client, configMap(metav1.NamespaceDefault, "object"), time.Now().UnixNano())
}

func megabytes(bytes float64) string { return fmt.Sprintf("%.1f MB", bytes/(1<<20)) }
