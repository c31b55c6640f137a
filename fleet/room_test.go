package fleet

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// names returns the names of the members, those of members that are being drained with a "-" in front.
func (f *Fleet) names() []string {
	list := f.List(nil)
	names := make([]string, 0, len(list))
	for _, status := range list {
		name := string(status.Name)
		if status.State == Draining {
			name = "-" + name
		}
		names = append(names, name)
	}
	return names
}

func wantNames(t *testing.T, f *Fleet, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, f.names()); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

// wantLeftOut fails the test unless the fleet's problem says how many members are left out.
func wantLeftOut(t *testing.T, f *Fleet, want string) {
	t.Helper()
	text := ""
	for _, p := range f.Problems() {
		text += p.Reason + ": " + p.Message
	}
	if !strings.HasPrefix(text, want) || want == "" && text != "" {
		t.Errorf("the problem is %q, want %q", text, want)
	}
}

// TestNoMemberLosesItsPlaceToAnother: whatever the other is called. Those that may describe members could drain them.
func TestNoMemberLosesItsPlaceToAnother(t *testing.T) {
	for _, started := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := running(t, Options{MaxMembers: 2})
			if started {
				f = running(t, Options{MaxMembers: 2})
			}
			for _, name := range []ClusterName{"d", "e", "b", "a", "c"} {
				describe(t, f, name, nil)
			}
			wantNames(t, f, "d", "e")
			wantLeftOut(t, f, `TooManyMembers: 3 members are left out, from "a" on`)
			<-f.remove("e")
			wantNames(t, f, "a", "d")
		})
	}
}

func TestAMemberThatIsLeftOutJoinsWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{MaxMembers: 2})
		for _, name := range []ClusterName{"a", "b", "d", "c"} {
			describe(t, f, name, map[string]string{"round": "1"})
		}
		describe(t, f, "c", map[string]string{"round": "2"})
		<-f.remove("a")
		wantNames(t, f, "b", "c")
		if s, _ := f.Status("c"); s.Labels["round"] != "2" {
			t.Errorf("it joined as it was described first: %v", s)
		}
		wantLeftOut(t, f, "TooManyMembers: 1 members are left out")
		<-f.remove("d")
		wantLeftOut(t, f, "")
		<-f.remove("b")
		wantNames(t, f, "c")
	})
}

// TestAMemberThatIsLeftOutIsNotGone: dependents of what is gone are deleted.
func TestAMemberThatIsLeftOutIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{MaxMembers: 1})
		describe(t, f, "a", nil)
		describe(t, f, "b", nil)
		wantNames(t, f, "a")
		_, err := f.Engagement("b")
		if !errors.Is(err, ErrNotReady) || errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "TooManyMembers: there may be 1") {
			t.Errorf("Engagement() = %v, want ErrNotReady and why", err)
		}
	})
}

func TestThereAreNeverMoreMembersThanAllowedAlsoWhileSomeAreDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{MaxMembers: 2})
		describe(t, f, "b", nil)
		_, leave, err := join(t, f, "c").Join(t.Context(), named("a reconcile"))
		if err != nil {
			t.Fatal(err)
		}
		describe(t, f, "d", nil)
		f.remove("c")
		wantNames(t, f, "b", "-c")
		describe(t, f, "c", nil) // it comes back, while it is drained
		leave()
		wantNames(t, f, "b", "c")
		wantLeftOut(t, f, `TooManyMembers: 1 members are left out, from "d" on`)
	})
}

func TestANegativeNumberIsNoLimit(t *testing.T) {
	f := running(t, Options{MaxMembers: -1})
	for _, name := range []ClusterName{"a", "b", "c"} {
		describe(t, f, name, nil)
	}
	if got := f.names(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("members %q", got)
	}
}
