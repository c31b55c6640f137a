package fleet

import (
	"strings"
	"testing"
	"testing/synctest"
)

// TestTheHistoryOfAMemberIsBounded: it has the last transitions with their reasons, and no more of a message than it says.
func TestTheHistoryOfAMemberIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		describe(t, f, "a", nil)
		join(t, f, "a")
		synctest.Wait()
		got := f.History("a")
		if last := got[len(got)-1]; got[0].State != Pending || last.State != Ready || last.Time.IsZero() {
			t.Errorf("the history is %+v, want one from Pending to Ready", got)
		}
		m := f.members["a"]
		for range 100 {
			f.mu.Lock()
			m.setStateLocked(Unreachable, ReasonTimeout, strings.Repeat("long\n", 1000))
			m.setStateLocked(Unreachable, ReasonTimeout, "another message is no transition")
			m.setStateLocked(Ready, "", "")
			f.mu.Unlock()
		}
		got = f.History("a")
		if len(got) != mostTransitions || got[0].State != Unreachable || got[15].State != Ready || got[0].Reason != ReasonTimeout {
			t.Fatalf("the history has %d: %+v", len(got), got)
		}
		if len(got[0].Message) > mostTransitionMessage || strings.Contains(got[0].Message, "\n") || !strings.HasPrefix(got[0].Message, "long") {
			t.Errorf("a message is %q", got[0].Message)
		}
		<-f.remove("a")
		if got := f.History("a"); got != nil {
			t.Errorf("after it was removed, its history is %+v", got)
		}
	})
}

// TestAMemberOfAnotherReplicaHasNoHistory: a fleet may have many of these.
func TestAMemberOfAnotherReplicaHasNoHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := shared(t, "a")
		wantState(t, f, "a", Ready)
		if got := f.History("a"); len(got) == 0 || got[len(got)-1].State != Ready {
			t.Errorf("the history of a member of this replica is %+v", got)
		}
		s.give("a", "other")
		wantState(t, f, "a", NotOwned)
		for _, name := range []ClusterName{"a", "b"} {
			if got := f.History(name); got != nil {
				t.Errorf("the history of %s, which is another replica's, is %+v", name, got)
			}
		}
	})
}
