package providertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/goleak"
)

// What follows is about how a provider ends, and what it leaves alone.

func (c *trial) runReturns() {
	c.set(c.cluster("one"))
	c.start().stop()
}

func (c *trial) endWithdrawsNothing() {
	one, two := c.cluster("one"), c.cluster("two")
	c.set(one, two)
	d := c.start()
	d.waitFor(one, two)
	d.stop()
	d.wantWithdrawn()
	if d.err != nil && !errors.Is(d.err, context.Canceled) {
		c.t.Errorf("Run returned an error because its context ended: %v", d.err)
	}
}

func (c *trial) endWaitsForNoDrain() {
	removed, other := c.cluster("removed"), c.cluster("other")
	c.set(removed, other)
	d := c.start()
	d.waitFor(removed, other)
	c.t.Cleanup(d.hold(c.Name(removed.Name)))
	c.source.Remove(c.t, removed.Name)
	d.waitUntil(func() string {
		if !slices.Contains(d.withdrawnLocked(), c.Name(removed.Name)) {
			return "the member is not being removed"
		}
		return ""
	})
	d.stop()
}

func (c *trial) noGoroutineIsLeft() {
	one, two := c.cluster("one"), c.cluster("two")
	c.set(one)
	// A first provider may have connected the local cluster's client, which keeps its connections.
	c.work(one, two)
	before := goleak.IgnoreCurrent()
	c.work(one, two)
	deadline := time.Now().Add(c.patience)
	err := goleak.Find(before)
	for err != nil && time.Now().Before(deadline) {
		err = goleak.Find(before) // waits a moment if there are any
	}
	if err != nil {
		c.t.Error(err)
	}
}

// work runs a provider while a cluster comes and goes, if the source can tell that.
func (c *trial) work(stays, comes Description) {
	c.t.Helper()
	d := c.start()
	d.waitFor(stays)
	if c.Fixed == "" && c.source.Remove != nil {
		c.set(comes)
		d.waitFor(stays, comes)
		c.source.Remove(c.t, comes.Name)
		d.waitFor(stays)
	}
	d.stop()
}

func (c *trial) noClusterIsCalled() {
	one, two := c.cluster("one"), c.cluster("two")
	c.set(one)
	c.work(one, two)
	for _, bell := range c.bells {
		if visitors := bell.visitors(c.t); visitors > 0 {
			c.t.Errorf("there were %d connections to a cluster: a provider describes, and the fleet connects", visitors)
		}
	}
}

func (c *trial) noCredentialsAreTold() {
	refused, bad, later := c.cluster("refused"), c.cluster("bad"), c.cluster("later")
	c.set(refused)
	ms := newMembers()
	ms.refuse(c.Name(refused.Name), errRefused)
	d := c.startWith(ms)
	d.waitForRefusal(refused)
	if c.Fixed == "" {
		if c.source.Break != nil {
			c.source.Break(c.t, bad)
		}
		c.set(later)
		d.waitUntil(func() string { return c.diffBeside(bad, d.now, later) })
	}
	d.stop()

	told := d.log.read()
	for _, call := range d.calls {
		if call.member.Err != nil {
			told = append(told, call.member.Err.Error())
		}
	}
	for _, p := range d.problems {
		told = append(told, fmt.Sprintf("%+v", p))
	}
	if d.err != nil {
		told = append(told, d.err.Error())
	}
	for _, text := range told {
		if slices.ContainsFunc(c.tokens, func(token string) bool { return strings.Contains(text, token) }) {
			c.t.Errorf("there is a token in the log or in an error: %s", text)
		}
	}
}
