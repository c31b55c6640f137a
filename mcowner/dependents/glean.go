package dependents

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// isTakenBack reports whether an owner was let go while it had dependents, and is the controller's again. Where replicas share the members,
// another one may sweep what it left, and could tell nobody.
func (c *engine) isTakenBack(owner client.Object) bool {
	return c.access.IsShared() && !c.keys.Holds(owner) && c.keys.Read(owner).GivenUp
}

// toGlean returns the clusters in which an owner may have left something, ordered.
func (c *engine) toGlean() []mcreconcile.ClusterName {
	return union(c.access.Names(c.cfg.dependentsIn), nil)
}

// gleanIn has the first of these clusters gleaned. The others come after it: there may be thousands, for thousands of owners.
func (c *engine) gleanIn(owner mcreconcile.Request, names []mcreconcile.ClusterName) {
	if len(names) > 0 {
		c.works.addLow(work{owner, names[0], glean})
	}
}

// glean looks whether an owner has left something in a cluster, and goes on with the next one. Where the owner has something by its record
// is looked at anyway, and a cluster that cannot be visited now is visited when it can.
func (c *engine) glean(ctx context.Context, w work) error {
	if o := c.ledger.get(w.owner); o != nil && !o.concerns(w.in) {
		result, err := c.visit(ctx, work{w.owner, w.in, visit})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			c.works.addLow(c.placing(w.owner, w.in))
		case result.RequeueAfter > 0: // it could not be found out
			c.works.addAfter(c.placing(w.owner, w.in), result.RequeueAfter)
		}
	}
	names := c.toGlean()
	at, found := slices.BinarySearch(names, w.in)
	if found {
		at++
	}
	c.gleanIn(w.owner, names[at:])
	return nil
}
