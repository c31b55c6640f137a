package providertest

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// What follows is about the way from the source to the fleet.

func (c *trial) startIsReported() {
	one, two := c.cluster("one"), c.cluster("two")
	c.set(one, two)
	d := c.start()
	d.waitFor(one, two)
}

func (c *trial) laterIsReported() {
	one, two := c.cluster("one"), c.cluster("two")
	d := c.start()
	c.set(one)
	d.waitFor(one)
	c.set(two)
	d.waitFor(one, two)
}

func (c *trial) newCredentialsAreNews() {
	before, other := c.cluster("renewed"), c.cluster("other")
	c.set(before, other)
	d := c.start()
	d.waitFor(before, other)
	after := c.withNewToken(before)
	c.set(after)
	d.waitFor(after, other)
	d.wantWithdrawn()
	d.stop()

	reports := d.reported(c.Name(before.Name))
	first, last := reports[0], reports[len(reports)-1]
	if sameAccess(first.member, last.member) {
		c.t.Errorf("the new description passes for the one before (Revisions %q and %q)", first.member.Revision, last.member.Revision)
	}
	if first.given != nil && first.given.BearerToken != first.member.Config.BearerToken {
		c.t.Error("the config that was reported first has been changed since: give a new one")
	}
}

// sameAccess reports whether a fleet takes two descriptions for the same.
func sameAccess(a, b fleet.Member) bool {
	switch {
	case a.Load != nil || b.Load != nil:
		return a.Revision == b.Revision
	case a.Config == nil || b.Config == nil:
		return a.Config == b.Config && a.Cluster == b.Cluster
	case a.Revision != "" && b.Revision != "":
		return a.Revision == b.Revision
	}
	return reflect.DeepEqual(withoutFunctions(a.Config), withoutFunctions(b.Config))
}

// withoutFunctions returns a copy of config that can be compared.
func withoutFunctions(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.WrapTransport, config.Dial, config.Proxy = nil, nil, nil
	return config
}

func (c *trial) touchIsNoNews() {
	touched, later := c.cluster("touched"), c.cluster("later")
	c.set(touched)
	d := c.start()
	d.waitFor(touched)
	c.source.Touch(c.t, touched)
	c.set(later)
	d.waitFor(touched, later)
	d.wantWithdrawn()
	reports := d.reported(c.Name(touched.Name))
	first := reports[0].member
	for _, report := range reports[1:] {
		if !sameAccess(first, report.member) || !maps.Equal(first.Labels, report.member.Labels) {
			c.t.Errorf("%v came after %v", report, reports[0])
		}
	}
}

func (c *trial) removedIsWithdrawn() {
	removed, other := c.cluster("removed"), c.cluster("other")
	c.set(removed, other)
	d := c.start()
	d.waitFor(removed, other)
	c.source.Remove(c.t, removed.Name)
	d.waitFor(other)
	d.wantWithdrawn(removed)
}

func (c *trial) leavingIsWithdrawnThen() {
	leaver, other := c.cluster("leaver"), c.cluster("other")
	c.set(leaver, other)
	d := c.start()
	d.waitFor(leaver, other)
	c.source.Leave(c.t, leaver.Name)
	name := c.Name(leaver.Name)
	d.waitUntil(func() string {
		if d.leaving[name] == nil {
			return "the member is not reported as one that leaves"
		}
		return ""
	})
	d.wantWithdrawn()
	d.letLeave(name)
	d.waitUntil(func() string {
		if !slices.Contains(d.withdrawnLocked(), name) {
			return "the member that has left is not withdrawn"
		}
		return ""
	})
	d.waitFor(other)
	d.wantWithdrawn(leaver)
}

func (c *trial) returnIsReported() {
	removed, other := c.cluster("removed"), c.cluster("other")
	c.set(removed, other)
	d := c.start()
	d.waitFor(removed, other)
	c.source.Remove(c.t, removed.Name)
	d.waitFor(other)
	c.set(removed)
	d.waitFor(removed, other)
}

func (c *trial) renamedIsAnother() {
	before, other := c.cluster("before"), c.cluster("other")
	c.set(before, other)
	d := c.start()
	d.waitFor(before, other)
	after := before
	after.Name = "after"
	c.source.Rename(c.t, before.Name, after.Name)
	d.waitFor(after, other)
	d.wantWithdrawn(before)
}

func (c *trial) labelsAreReported() { c.labelled() }

// labelled waits for a cluster with labels.
func (c *trial) labelled() (*discovery, Description) {
	c.t.Helper()
	labelled := c.cluster("labelled")
	labelled.Labels = map[string]string{"tier": "test", removedLabel: "a"}
	c.set(labelled)
	d := c.start()
	d.waitFor(labelled)
	return d, labelled
}

const removedLabel = "zone"

func (c *trial) labelsAreFollowed() {
	d, labelled := c.labelled()
	labelled.Labels = map[string]string{"tier": "production"}
	c.set(labelled)
	d.waitFor(labelled)
	d.waitUntil(func() string {
		if _, ok := d.now[c.Name(labelled.Name)].Labels[removedLabel]; ok {
			return "the member has a label that was removed"
		}
		return ""
	})
	d.wantWithdrawn()
}

func (c *trial) olderHasTheName() {
	older, younger, later := c.cluster("twice"), c.cluster("twice"), c.cluster("later")
	c.set(older)
	d := c.start()
	d.waitFor(older)
	c.source.Duplicate(c.t, younger)
	c.set(later)
	d.waitFor(older, later)
	for _, report := range d.reported(c.Name(older.Name)) {
		if diff := c.Diff(older, report.member); diff != "" {
			c.t.Errorf("the younger was reported: %s", diff)
		}
	}
	d.stop()

	d = c.start() // it hears of both at once
	d.waitFor(older, later)
	c.source.Remove(c.t, older.Name)
	d.waitFor(younger, later)
}
