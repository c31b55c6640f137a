package mcmanager

import (
	"fmt"
	"net/http"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// AtLeastReady returns a check that fails while fewer than percent of the members, at most 100, are Ready. An empty fleet
// passes, and members that are drained, or being drained, or are another replica's, do not count. A member must satisfy each of the conditions, too: see
// [KindsSynced].
//
// The manager adds no such check by itself: members that cannot be reached are no reason to take the traffic from a manager,
// let alone to restart it. It is for those that want an upgrade of the manager to halt when the new version reaches too few:
//
//	mgr.AddReadyzCheck("fleet", mcmanager.AtLeastReady(mgr.GetFleet(), 80))
func AtLeastReady(f *fleet.Fleet, percent int, conditions ...func(fleet.Status) bool) healthz.Checker {
	percent = min(percent, 100)
	isReady := func(status fleet.Status) bool {
		return status.State == fleet.Ready &&
			!slices.ContainsFunc(conditions, func(holds func(fleet.Status) bool) bool { return !holds(status) })
	}
	return func(*http.Request) error {
		ready, all := 0, 0
		var waiting fleet.Status // one of those that are not
		for _, status := range f.List(nil) {
			if slices.Contains([]fleet.State{fleet.Draining, fleet.Drained, fleet.NotOwned}, status.State) {
				continue
			}
			all++
			if isReady(status) {
				ready++
			} else {
				waiting = status
			}
		}
		if ready*100 >= all*percent {
			return nil
		}
		return fmt.Errorf("%d of %d members are Ready, %d %% must be: %w", ready, all, percent,
			&fleet.StateError{Err: fleet.ErrNotReady, Status: waiting})
	}
}

// KindsSynced is a condition for [AtLeastReady]: every kind that controllers want of the member is synced, as far as is known.
func KindsSynced(status fleet.Status) bool { return len(status.NotSynced) == 0 }
