package mcmanager

import (
	"fmt"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// AtLeastReady returns a check that fails while fewer than percent of the members, at most 100, are Ready. An empty fleet passes, and
// members that are being drained do not count. The manager adds no such check by itself: members that cannot be reached
// are no reason to take the traffic from a manager, let alone to restart it. It is there to halt an upgrade of the
// manager when the new version reaches too few:
//
//	mgr.AddReadyzCheck("fleet", mcmanager.AtLeastReady(mgr.GetFleet(), 80))
func AtLeastReady(f *fleet.Fleet, percent int) healthz.Checker {
	percent = min(percent, 100)
	return func(*http.Request) error {
		ready, all := 0, 0
		var waiting fleet.Status // one of those that are not
		for _, status := range f.List(nil) {
			switch status.State {
			case fleet.Draining:
				continue
			case fleet.Ready:
				ready++
			case fleet.Pending, fleet.Connecting, fleet.Unreachable:
				waiting = status
			}
			all++
		}
		if ready*100 >= all*percent {
			return nil
		}
		return fmt.Errorf("%d of %d members are Ready, %d %% must be: %w", ready, all, percent,
			&fleet.StateError{Err: fleet.ErrNotReady, Status: waiting})
	}
}
