package dependents

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// errUnnoted says that a member that leaves is still in the owner's record.
var errUnnoted = fmt.Errorf("%w, and the owner's record still has it", ErrLeaving)

// errUnsettled says that a member that leaves waits until it is known what becomes of dependents, or until they are gone.
var errUnsettled = fmt.Errorf("%w after that", ErrLeaving)

// depart does what is declared for a member that leaves, or for owners that are let go if that is more than to leave all as it is. The member waits
// until the owner's record has it no more, unless nothing is to be done there and the record cannot be stored. It does not wait for what the owner has
// in another cluster that had its name. nobody says why there is no writer for the owner.
func (p *placement) depart(ctx context.Context, nobody error, done *report) {
	if p.asked.targeted {
		done.Err = ErrLeaving
	}
	here, before := divide(p.at, p.asked.sites)
	policy, isKnown := p.engine.departure(p.asked, p.work.owner)
	switch {
	case len(here) > 0 && !isKnown:
		done.Err = fmt.Errorf("%w: %w", p.asked.unclear, errUnsettled)
		return
	case len(here) == 0:
		held, released := p.unreleased(before)
		done.drop, done.givenUp = slices.Concat(p.asked.dropped, released), len(released) > 0
		if len(held) > 0 {
			done.Err = p.engine.replaced(p.at, held)
		}
	case policy == "":
		done.drop, done.givenUp = here, true
	case nobody != nil:
		done.Err = nobody
	default:
		p.leave(ctx, done, policy)
	}
	if len(done.drop) > 0 && !p.engine.letsGo(p.o, p.asked) {
		done.Err = errUnnoted
	}
}

// departure returns what becomes of what an owner has in a member that leaves, empty if it stays as it is. It is not known where it is not to stay so,
// and nothing else can be done.
func (c *engine) departure(asked view, owner mcreconcile.Request) (policy metav1.DeletionPropagation, isKnown bool) {
	policy = c.cfg.onMemberLeaving.propagation()
	switch asked.mode {
	case serving: // unless its own cluster leaves, which may not be planned yet
		if c.isLeaving(owner.ClusterName) {
			policy = cmp.Or(c.cfg.onOwnersLeaving.propagation(), policy)
		}
	case retiring:
		policy = cmp.Or(asked.propagation, policy)
	case finishing:
		return asked.propagation, policy == "" || !asked.isUnclear()
	}
	return policy, true
}

// letsGo reports whether a member that leaves does not wait for an owner: all stays there as it is, and the owner's record cannot be stored, for who
// knows how long. Its account takes the member from it later.
func (c *engine) letsGo(o *ownerState, asked view) bool {
	policy, _ := c.departure(asked, o.req)
	owner := o.owner() // which may be deleted since it was planned
	isGoing := asked.mode == finishing || owner != nil && !owner.GetDeletionTimestamp().IsZero()
	home := o.req.ClusterName
	return policy == "" && !isGoing && (c.access.WhyNot(home) != nil || c.access.WhyHeld(home) != nil || o.isUnstored())
}
