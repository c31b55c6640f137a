package remote

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// IsShared reports whether several replicas share the members.
func (a *Access) IsShared() bool {
	return a.Manager.GetProvider() != nil && a.Manager.GetFleet().Shared()
}

// IsElsewhere reports whether a member is not this replica's to work on, nor still being given up: then it is visited as a guest.
func (a *Access) IsElsewhere(name mcreconcile.ClusterName) bool {
	if !a.IsShared() {
		return false
	}
	status, _ := a.Manager.GetFleet().Status(name)
	return status.State == fleet.NotOwned
}

// IsOthers reports whether another replica does what is to be done for a cluster, or is about to. It may be the local one.
func (a *Access) IsOthers(name mcreconcile.ClusterName) bool {
	if !a.IsShared() {
		return false
	}
	_, err := a.Manager.GetFleet().Engagement(name)
	return errors.Is(err, fleet.ErrNotOwned)
}

// ErrNoVisit says that a member of another replica cannot be visited now. Nobody tells when it can.
var ErrNoVisit = errors.New("it is visited, as another replica works on it")

// errNotVisited says that it is not known yet which cluster a member of another replica is.
var errNotVisited = errors.New("another replica works on it, and it was not visited yet")

// IDOf returns which cluster has a name, as Identities.Of does. A member elsewhere is the one that was visited last: whatever is
// done there finds out which it is.
func (a *Access) IDOf(ctx context.Context, name mcreconcile.ClusterName) (mcowner.ClusterID, error) {
	if !a.IsElsewhere(name) {
		return a.Identities.Of(ctx, name)
	}
	identity, known := a.Manager.GetFleet().GuestIdentity(name)
	if !known {
		return mcowner.ClusterID{}, fmt.Errorf("%s: %w", ClusterText(name), errNotVisited)
	}
	return a.Identities.OfGuest(name, identity)
}

// AskID is IDOf, and visits a member elsewhere.
func (a *Access) AskID(ctx context.Context, name mcreconcile.ClusterName) (id mcowner.ClusterID, err error) {
	if !a.IsElsewhere(name) {
		return a.Identities.Of(ctx, name)
	}
	err = a.Visit(ctx, name, func(_ context.Context, at Session) error {
		id = at.ID
		return nil
	})
	return id, err
}

// enterAsGuest is enter for a member elsewhere.
func (a *Access) enterAsGuest(ctx context.Context, name mcreconcile.ClusterName) (_ context.Context, _ Session, leave func(), err error) {
	guest, end, err := a.Manager.GetFleet().SharedGuest(ctx, name)
	if err != nil {
		return nil, Session{}, nil, fmt.Errorf("%w: %w", ErrNoVisit, err)
	}
	id, err := a.Identities.OfGuest(name, guest.Identity())
	if err != nil {
		end()
		return nil, Session{}, nil, err
	}
	inside, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(guest.Context(), func() { cancel(context.Cause(guest.Context())) })
	return inside, Session{ID: id, Cluster: guest.Cluster(), Guest: guest}, func() {
		stop()
		cancel(nil)
		end()
	}, nil
}

// VisitOwn is Visit for a cluster that is this replica's to work on. Where several replicas share the clusters, the local one is that of
// one of them too, and what is done there is gated as a reconcile is. Nothing is done in a member that is paused.
func (a *Access) VisitOwn(ctx context.Context, name mcreconcile.ClusterName, do func(context.Context, Session) error) error {
	if err := a.WhyHeld(name); err != nil {
		return err
	}
	switch {
	case !a.IsShared():
		return a.Visit(ctx, name, do)
	case name != mcreconcile.LocalCluster:
		if _, err := a.Manager.GetFleet().Engagement(name); err != nil {
			return err
		}
		return a.Visit(ctx, name, func(ctx context.Context, at Session) error {
			if at.Guest != nil {
				return fmt.Errorf("%s: %w", at, fleet.ErrDisengaged) // it was handed over this very moment
			}
			return do(ctx, at)
		})
	}
	inside, e, end, err := a.Manager.GetFleet().Controller(a.Who).Begin(ctx, name, work(a.Who))
	if err != nil {
		return err
	}
	err = a.Visit(inside, name, func(ctx context.Context, at Session) error {
		at.Cluster = e.Cluster()
		return do(ctx, at)
	})
	end(reconcile.Result{}, err)
	return err
}
