package remote

import (
	"testing"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestAVisitThatEndsLateNotesNothing of a member that was forgotten meanwhile.
func TestAVisitThatEndsLateNotesNothing(t *testing.T) {
	t.Parallel()
	a := &Access{}
	for _, is := range []bool{true, false} {
		a.visited.note(mcowner.ClusterID{Name: "member", UID: "1"}, func(mcreconcile.ClusterName) bool { return is })
		if _, noted := a.visited.get("member"); noted != is {
			t.Errorf("the member is elsewhere: %t; it is noted which cluster it is: %t", is, noted)
		}
		a.Forget("member")
	}
}
