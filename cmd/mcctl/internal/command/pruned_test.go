package command_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// leavingWith deletes the ClusterAccess, which finalizers keep, and returns when that was. It goes once a leave that deletes it too has
// begun to wait.
func (s *stage) leavingWith(t *testing.T, finalizers ...string) time.Time {
	t.Helper()
	write := func(these []string) {
		a := s.access(t)
		a.Finalizers = these
		if err := s.Local.Client().Update(t.Context(), a); err != nil {
			t.Error(err)
		}
	}
	write(finalizers)
	if err := s.Local.Client().Delete(t.Context(), s.access(t)); err != nil {
		t.Fatal(err)
	}
	s.addTroubled(t, &troubled{read: func() {}, away: func() { write(nil) }})
	return s.access(t).DeletionTimestamp.Time
}

func TestLeaveThatWaitsOnIsSureOfAPruneThatEndedInTime(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.leavingWith(t, objects.LeaveFinalizer)
	r := s.run(t, "leave", "east", "--context", "troubled", "--member-context", "member", "--dependents=prune")
	if r.code != 0 || !strings.Contains(r.errOut, "ClusterAccess default/east: gone\n") {
		t.Errorf("%+v", r)
	}
	if left := s.madeByMcctl(t); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
}

// TestAMemberThatTheFleetMayHaveGivenUpKeepsItsRights is about a prune that somebody began before.
func TestAMemberThatTheFleetMayHaveGivenUpKeepsItsRights(t *testing.T) {
	t.Parallel()
	for name, told := range map[string][]string{"as told": {"--dependents=prune"}, "as the ClusterAccess says": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			if r := s.join(t); r.code != 0 {
				t.Fatalf("join: %+v", r)
			}
			deleted := s.leavingWith(t, objects.LeaveFinalizer)
			before := s.madeByMcctl(t)
			maps.DeleteFunc(before, func(of, _ string) bool { return strings.HasSuffix(of, " "+string(s.access(t).UID)) })
			eventually(t, "it was deleted before the time to wait", func() bool { return time.Since(deleted) > 5*time.Second })
			leave := []string{"leave", "east", "--member-context", "member"}
			refused := func(what string, args ...string) {
				t.Helper()
				r := s.run(t, append(leave, args...)...)
				for _, says := range []string{"not known", "LeftUndone", "mcctl leave east --dependents=keep"} {
					if r.code != 1 || !strings.Contains(r.errOut, says) {
						t.Errorf("%s: %q is not in %+v", what, says, r)
					}
				}
				if after := s.madeByMcctl(t); !maps.Equal(before, after) {
					t.Errorf("%s: there were\n%v\nand then\n%v", what, before, after)
				}
			}
			refused("while it goes", append(told, "--context", "troubled", "--timeout=5s")...)
			refused("when it is gone", "--dependents=prune")
			if r := s.run(t, append(leave, "--dependents=keep")...); r.code != 0 {
				t.Errorf("what is there is to be kept: %+v", r)
			}
			if left := s.madeByMcctl(t); len(left) > 0 {
				t.Errorf("it leaves %v", left)
			}
		})
	}
}

func TestAPruneOfAMemberThatIsLetGoAlreadyIsNotConfirmed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	a := s.access(t)
	a.Finalizers = []string{"example.com/hold"} // the fleet's own is off already
	if err := s.Local.Client().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if err := s.Local.Client().Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	before := s.madeByMcctl(t)
	if r := s.run(t, "leave", "east", "--member-context", "member", "--dependents=prune"); r.code != 1 || !strings.Contains(r.errOut, "not known") {
		t.Errorf("%+v", r)
	}
	if after := s.madeByMcctl(t); !maps.Equal(before, after) {
		t.Errorf("there were\n%v\nand then\n%v", before, after)
	}
}
