package fleet

import (
	"testing"
	"testing/synctest"
	"time"
)

func letGo() Hold { return Hold{Leave: true} }

// wantLeaving checks whether the member leaves, and that it is in a state.
func wantLeaving(t *testing.T, f *Fleet, state State, leaving bool) Status {
	t.Helper()
	got := wantState(t, f, "a", state)
	if got.Leaving != leaving {
		t.Errorf("whether it leaves is %t: %+v", got.Leaving, got)
	}
	return got
}

// TestAMemberThatPeopleLetLeaveIsDrainedWhenControllersAreDone, and comes back when people say otherwise.
func TestAMemberThatPeopleLetLeaveIsDrainedWhenControllersAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := held(t, Options{}, Hold{Paused: true})
		c := controls(f, "things")
		for round := range 2 {
			e := f.members["a"].engagement
			c.has("a", 1)
			h.set("a", Hold{Leave: true, Paused: true, Drained: true, Reason: "it is given up"})
			if got := wantLeaving(t, f, Ready, true); got.Paused {
				t.Errorf("its controllers cannot take anything back: %+v", got)
			}
			if replays := c.replayed(); len(replays) != round+1 || replays[round] != e {
				t.Errorf("%d replays, want one for each time that it leaves", len(replays))
			}
			described := f.members["a"].described
			set(t, f, described) // as its provider does again and again
			wantLeaving(t, f, Ready, true)
			c.has("a", 0)
			if got := wantLeaving(t, f, Drained, true); got.Message != "it is given up" || got.Engaged() {
				t.Errorf("after it has left: %+v", got)
			}
			set(t, f, described)
			wantLeaving(t, f, Drained, true)
			h.set("a", Hold{})
			wantLeaving(t, f, Ready, false)
			if replays := c.replayed(); len(replays) != round+1 {
				t.Errorf("%d replays: its sources tell of everything that is there anyway", len(replays))
			}
		}
	})
}

func TestAMemberThatPeopleLetLeaveMayStayAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := held(t, Options{}, Hold{})
		c := controls(f, "things")
		c.has("a", 1)
		h.set("a", letGo())
		<-time.After(leavePatience + time.Second)
		wantProblem(t, f, ReasonLeaving, "things")
		h.set("a", Hold{})
		wantLeaving(t, f, Ready, false)
		if replays := c.replayed(); len(replays) != 2 {
			t.Errorf("%d replays, want one to take back, and one to put back", len(replays))
		}
		wantProblem(t, f)
		c.has("a", 0)
		wantLeaving(t, f, Ready, false)
	})
}

func TestAMemberThatPeopleLetLeaveHasUntilItsTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := held(t, Options{LeaveTimeout: time.Minute}, Hold{})
		c := controls(f, "things")
		c.has("a", 1)
		h.set("a", letGo())
		<-time.After(time.Minute)
		wantLeaving(t, f, Drained, true)
		wantProblem(t, f, ReasonLeftUndone, "things")
		h.set("a", Hold{Drained: true})
		wantLeaving(t, f, Drained, false)
		wantProblem(t, f)
		h.set("a", Hold{})
		wantLeaving(t, f, Ready, false)
	})
}

// TestAMemberThatPeopleHaveLetLeaveIsConnectedInOrderToLeave by a manager that starts anew, and by one that knows it as drained.
func TestAMemberThatPeopleHaveLetLeaveIsConnectedInOrderToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := held(t, Options{}, letGo())
		c := controls(f, "things")
		wantLeaving(t, f, Drained, true) // without a controller that was to be asked
		h.set("a", Hold{Drained: true})
		wantLeaving(t, f, Drained, false)
		c.has("a", 1)
		h.set("a", letGo())
		wantLeaving(t, f, Ready, true)
		c.has("a", 0)
		wantLeaving(t, f, Drained, true)
		if replays := c.replayed(); len(replays) != 1 {
			t.Errorf("%d replays", len(replays))
		}
	})
}

// TestWhatProvidersSayOfMembersThatPeopleLetLeaveHolds, be it before they have left or after.
func TestWhatProvidersSayOfMembersThatPeopleLetLeaveHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := held(t, Options{}, letGo())
		wantLeaving(t, f, Drained, true)
		wantLeft(t, leavingMember(t, f, is(&existing{})), true, "a member that has left already")
		wantNoMember(t, f)
		set(t, f, is(&existing{}))
		c := controls(f, "things")
		wantLeaving(t, f, Drained, true)

		h.set("a", Hold{})
		c.has("a", 1)
		h.set("a", letGo())
		left := leavingMember(t, f, is(&existing{}))
		wantLeft(t, left, false, "before the controller is done")
		h.set("a", Hold{})
		wantLeaving(t, f, Ready, true) // its provider has said so too
		h.set("a", letGo())
		set(t, f, is(&existing{})) // its provider takes it back, and people do not
		c.has("a", 0)
		wantLeft(t, left, false, "a member that people alone let leave")
		wantLeaving(t, f, Drained, true)
		<-f.remove("a")
		wantNoMember(t, f)
	})
}
