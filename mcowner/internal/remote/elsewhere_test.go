package remote

import (
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestAVisitThatEndsLateNotesNothing of a member that was forgotten meanwhile.
func TestAVisitThatEndsLateNotesNothing(t *testing.T) {
	t.Parallel()
	a := &Access{}
	for _, is := range []bool{true, false} {
		a.visited.note(mcowner.ClusterID{Name: "member", UID: "1"}, fleet.Status{}, func(mcreconcile.ClusterName) bool { return is })
		if _, noted := a.visited.get("member", fleet.Status{}); noted != is {
			t.Errorf("the member is elsewhere: %t; it is noted which cluster it is: %t", is, noted)
		}
		a.Forget("member")
	}
}

// TestAMemberThatCameAnewIsNotTheOneThatWasVisited: another cluster may have its name, of which nobody tells this replica.
func TestAMemberThatCameAnewIsNotTheOneThatWasVisited(t *testing.T) {
	t.Parallel()
	before := fleet.Status{Server: "https://one", Since: time.Unix(1, 0), Labels: map[string]string{"a": "b"}}
	for name, tc := range map[string]struct {
		now  fleet.Status
		same bool
	}{
		"as it was":    {fleet.Status{Server: "https://one", Since: time.Unix(1, 0)}, true},
		"it came anew": {fleet.Status{Server: "https://one", Since: time.Unix(2, 0)}, false},
		"elsewhere":    {fleet.Status{Server: "https://two", Since: time.Unix(1, 0)}, false},
	} {
		a := &Access{}
		a.visited.note(mcowner.ClusterID{Name: "member", UID: "1"}, before, func(mcreconcile.ClusterName) bool { return true })
		if _, same := a.visited.get("member", tc.now); same != tc.same {
			t.Errorf("%s: it is the one that was visited: %t", name, same)
		}
	}
}
