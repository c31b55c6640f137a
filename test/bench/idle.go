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
		header: []string{"", "CPU", toOurs},
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
	before, err := costs(children)
	if err != nil {
		return err
	}
	select {
	case <-time.After(*idleDuration):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	after, err := costs(children)
	if err != nil {
		return err
	}
	perMinute := func(i int) float64 {
		return (after[i].CPU - before[i].CPU).Seconds() * float64(time.Minute) / float64(after[i].Now-before[i].Now)
	}
	for i, c := range children {
		t.add(c.spec.Subject, fmt.Sprintf("%.2f s", perMinute(i)), ratio(perMinute(i), perMinute(0)))
	}
	t.print()
	return nil
}

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
