package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

func idleTable(ctx context.Context) error { return inWorld(ctx, (*world).idleTable) }

// idleTable answers: what CPU time do members take that do nothing? All processes are measured over the same time.
func (w *world) idleTable(ctx context.Context) error {
	t := table{
		title:  fmt.Sprintf("Idle: CPU time a minute with %d members (measured for %s)", *fleetSize, *idleDuration),
		header: []string{"", headerCPU, toOurs},
	}
	var children []*child
	defer func() {
		for _, c := range children {
			_ = c.close()
		}
	}()
	for _, subject := range compared() {
		c, _, err := w.engage(ctx, subject, *fleetSize)
		if err != nil {
			return err
		}
		children = append(children, c)
	}
	for _, c := range children {
		if _, err := c.settled(ctx, quiet, 10*quiet); err != nil {
			return err
		}
	}
	progressf("measuring for %s", *idleDuration)
	used, err := cpuPerMinute(ctx, children, *idleDuration)
	if err != nil {
		return err
	}
	for i, c := range children {
		t.add(c.spec.Subject, secondsOf(used[i]), ratio(used[i], used[0]))
	}
	t.print()
	return nil
}

// cpuPerMinute measures what CPU time each child takes, in seconds. All are measured over the same time.
func cpuPerMinute(ctx context.Context, children []*child, during time.Duration) ([]float64, error) {
	before, err := costs(children)
	if err != nil {
		return nil, err
	}
	if err := pass(ctx, during); err != nil {
		return nil, err
	}
	after, err := costs(children)
	if err != nil {
		return nil, err
	}
	used := make([]float64, len(children))
	for i := range used {
		used[i] = (after[i].CPU - before[i].CPU).Seconds() * float64(time.Minute) / float64(after[i].Now-before[i].Now)
	}
	return used, nil
}

// pass lets time pass in which something is measured.
func pass(ctx context.Context, during time.Duration) error {
	select {
	case <-time.After(during):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func secondsOf(s float64) string { return fmt.Sprintf("%.2f s", s) }

func costs(children []*child) ([]measure.Answer, error) {
	all := make([]measure.Answer, len(children))
	for i, c := range children {
		var err error
		if all[i], err = c.ask(measure.Request{Do: measure.Cost}); err != nil {
			return nil, err
		}
	}
	return all, nil
}
