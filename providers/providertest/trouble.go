package providertest

import (
	"fmt"
	"sync"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// What follows is about what goes wrong in the source, and in the fleet.

func (c *trial) badHarmsNoOther() {
	bad, good := c.cluster("bad"), c.cluster("good")
	c.set(good)
	c.source.Break(c.t, bad)
	d := c.start()
	later := c.cluster("later")
	c.set(later)
	d.waitUntil(func() string { return c.diffBeside(bad, d.now, good, later) })
	for _, report := range d.reported(c.Name(bad.Name)) {
		if report.member.Err == nil {
			c.t.Errorf("it was reported as if it could be used: %v", report)
		}
	}
	c.set(bad)
	d.waitFor(bad, good, later)

	c.source.Break(c.t, bad)
	last := c.cluster("last")
	c.set(last)
	d.waitUntil(func() string { return c.diffBeside(bad, d.now, good, later, last) })
	bad = c.withNewToken(bad)
	c.set(bad)
	d.waitFor(bad, good, later, last)
	for _, name := range d.withdrawn() {
		if name != c.Name(bad.Name) {
			c.t.Errorf("%q was withdrawn, which nothing was wrong with", name)
		}
	}
}

// errRefused is what the fleet of a case answers for a member that it refuses.
var errRefused = fmt.Errorf("%w: the suite refuses it", fleet.ErrInvalidMember)

func (c *trial) refusedHarmsNoOther() {
	refused, other := c.cluster("refused"), c.cluster("other")
	c.set(refused, other)
	ms := newMembers()
	ms.refuse(c.Name(refused.Name), errRefused)
	d := c.startWith(ms)
	d.waitFor(other)
	d.waitForRefusal(refused)
	if c.Fixed != "" {
		return
	}
	later := c.cluster("later")
	c.set(later)
	d.waitFor(other, later)
	if c.NoConfig != "" {
		return
	}
	ms.refuse(c.Name(refused.Name), nil)
	refused = c.withNewToken(refused)
	c.set(refused)
	d.waitFor(refused, other, later)
}

// waitForRefusal waits until the provider has reported a member that is refused.
func (d *discovery) waitForRefusal(refused Description) {
	d.trial.t.Helper()
	name := d.trial.Name(refused.Name)
	d.waitUntil(func() string {
		for _, call := range d.calls {
			if call.member.Name == name && call.err != nil {
				return ""
			}
		}
		return fmt.Sprintf("%q is not reported", name)
	})
}

func (c *trial) awayIsWaitedFor() {
	one := c.cluster("one")
	c.set(one)
	noticed, restore := c.interrupt()
	d := c.start()
	d.waitForNotice(noticed)
	restore()
	d.waitFor(one)
}

func (c *trial) interruptionIsCaughtUp() {
	stays, goes, changes, comes := c.cluster("stays"), c.cluster("goes"), c.cluster("changes"), c.cluster("comes")
	c.set(stays, goes, changes)
	d := c.start()
	d.waitFor(stays, goes, changes)
	noticed, restore := c.interrupt()
	d.waitForNotice(noticed)
	changes = c.withNewToken(changes)
	c.set(changes, comes)
	c.source.Remove(c.t, goes.Name)
	restore()
	d.waitFor(stays, changes, comes)
	d.wantWithdrawn(goes)
}

// interrupt interrupts the source until restore is called, or the test ends.
func (c *trial) interrupt() (noticed <-chan struct{}, restore func()) {
	c.t.Helper()
	noticed, restore = c.source.Interrupt(c.t)
	restore = sync.OnceFunc(restore)
	c.t.Cleanup(restore)
	return noticed, restore
}

// waitForNotice waits until the provider has noticed that its source is interrupted, if that can be told.
func (d *discovery) waitForNotice(noticed <-chan struct{}) {
	t := d.trial.t
	t.Helper()
	if noticed == nil {
		return
	}
	select {
	case <-noticed:
	case <-d.done:
		t.Fatalf("Run returned while the source was interrupted: %v", d.err)
	case <-time.After(d.trial.patience):
		t.Fatalf("after %v, the provider has not noticed that the source is interrupted", d.trial.patience)
	}
}
