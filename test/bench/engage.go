package main

import (
	"context"
	"fmt"
)

func engageTable(ctx context.Context) error { return inWorld(ctx, (*world).engageTable) }

// engageTable answers: how long after the start of the manager are all members engaged, and an object of each reconciled?
func (w *world) engageTable(ctx context.Context) error {
	t := table{
		title:  fmt.Sprintf("Engage: from the start of the manager until %d members are engaged and reconciled", *fleetSize),
		header: []string{"", "took", toOurs},
	}
	var ours float64
	for i, subject := range compared() {
		c, took, err := w.engage(ctx, subject, *fleetSize)
		if err != nil {
			return err
		}
		if err := c.close(); err != nil {
			return err
		}
		if i == 0 {
			ours = took.Seconds()
		}
		t.add(subject, seconds(took), ratio(took.Seconds(), ours))
	}
	t.print()
	return nil
}
