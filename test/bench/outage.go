package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

func outageTable(ctx context.Context) error { return inWorld(ctx, (*world).outageTable) }

// outageTable answers: how soon are members noticed that freeze at once, what do they cost while they are down, and how soon
// are they back?
func (w *world) outageTable(ctx context.Context) (err error) {
	d, err := newDam(ctx, "127.0.0.1:"+w.port)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	t := table{
		title: fmt.Sprintf("Outage: all members freeze at once, with a request under way in each or none (CPU measured for %s)", *outageDuration),
		header: []string{
			columnMembers, "", "requests", "noticed after: median", columnLast, "CPU a minute while down", "back after: median", columnLast,
		},
	}
	for _, members := range outageSizes.all {
		for _, requests := range []bool{true, false} {
			if err := w.outage(ctx, d, &t, subjectOutage, members, requests); err != nil {
				return err
			}
		}
	}
	if !*oursAlone {
		if err := w.outage(ctx, d, &t, subjectPeer, outageSizes.all[0], false); err != nil {
			return err
		}
	}
	t.print()
	return nil
}

// outage has a fleet live through one, and adds what came of it to the table.
func (w *world) outage(ctx context.Context, d *dam, t *table, subject string, members int, requests bool) (err error) {
	c, _, err := w.engageBehind(ctx, d, subject, members)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	notices := subject == subjectOutage
	if _, err := c.settled(ctx, quiet, 2*quiet); err != nil {
		return err
	}
	progressf("%s: %d members freeze", subject, members)
	lost, err := c.turn(members, d.shut, requests, notices)
	if err != nil {
		return errors.Join(err, errors.New("the members were not noticed"))
	}
	cpu, err := cpuPerMinute(ctx, []*child{c}, *outageDuration)
	if err != nil {
		return err
	}
	progressf("%s: %d members thaw", subject, members)
	back, err := c.turn(members, d.reopen, false, notices)
	if err != nil {
		return err
	}
	word := map[bool]string{true: "one in each", false: "none"}[requests]
	t.add(fmt.Sprint(members), subject, word, lost.median, lost.last, secondsOf(cpu[0]), back.median, back.last)
	return nil
}

// engageBehind starts a process with so many members behind a dam, and waits until all were reconciled.
func (w *world) engageBehind(ctx context.Context, d *dam, subject string, members int) (*child, time.Duration, error) {
	behind := *w
	behind.port = d.port()
	namespace := fmt.Sprintf("outage-of-%d", members)
	if err := behind.createNamespace(ctx, namespace, members); err != nil {
		return nil, 0, err
	}
	return w.engageIn(ctx, subject, namespace, members)
}

// outageTimeout bounds how long members may take to be noticed, and to be back.
const outageTimeout = 3 * time.Minute

// turned says when members were in another state than before.
type turned struct{ median, last string }

// turn does something to all members, has a request sent in each if it shall, and waits until each is in another state.
func (c *child) turn(members int, do func(), requests, notices bool) (turned, error) {
	if !notices {
		do()
		return turned{"never", "never"}, nil
	}
	if _, err := c.ask(measure.Request{Do: measure.Reset}); err != nil {
		return turned{}, err
	}
	begin := time.Now()
	do()
	if requests {
		if _, err := c.ask(measure.Request{Do: measure.Ask}); err != nil {
			return turned{}, err
		}
	}
	a, err := c.wait(members, outageTimeout)
	if err != nil {
		return turned{}, err
	}
	after := func(at int64) string { return seconds(time.Unix(0, at).Sub(begin)) }
	return turned{after(a.Seen[len(a.Seen)/2]), after(a.Last)}, nil
}
