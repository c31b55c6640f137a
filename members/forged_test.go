package members_test

import (
	"flag"
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// forged is how many Members of no member a test creates.
var forged = flag.Int("forged", 2000, "Members of clusters that are no members, in the test about them")

// forge creates Members of clusters that are no members.
func (s *stage) forge(how int) {
	s.t.Helper()
	var creating errgroup.Group
	creating.SetLimit(16)
	for i := range how {
		creating.Go(func() error {
			name := fmt.Sprintf("forged-%d", i)
			m := &v1alpha1.Member{Spec: v1alpha1.Spec{ClusterName: name, Paused: true}}
			m.Namespace, m.Name = s.ns, name
			return s.client.Create(s.t.Context(), m)
		})
	}
	if err := creating.Wait(); err != nil {
		s.t.Fatal(err)
	}
}

// told returns how many Members say something.
func (s *stage) told() (n int) {
	s.t.Helper()
	list := s.list()
	for i := range list {
		if list[i].Status.State == v1alpha1.StateUnknown {
			n++
		}
	}
	return n
}

// TestMembersThatAreForgedAreNotWrittenEach, and delay no others.
func TestMembersThatAreForgedAreNotWrittenEach(t *testing.T) {
	t.Parallel()
	const most = 500
	s := newStage(t, 1)
	s.forge(*forged)
	// One that was a member's is written in any case, after all that were there before.
	s.create("late", "late", paused)
	late := s.get("late")
	late.Status.State = string(fleet.Ready)
	if err := s.client.Status().Update(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	m := s.newManager(s.Local.Config())
	m.set(fleet.Member{Name: "east", Config: s.Members[0].Config()})
	m.start()
	s.is("east", fleet.Ready)
	t.Logf("%d writes when the member is Ready", m.writes.Load())
	s.becomes("late", "says that the cluster is gone", func(m *v1alpha1.Member) bool { return m.Status.State == v1alpha1.StateGone })
	s.eventually("as many say what is wrong as may", func() bool { return s.told() >= min(most, *forged) })
	before := s.resourceVersions()
	m.set(fleet.Member{Name: "west", Config: s.Members[0].Config()})
	s.is("west", fleet.Ready)
	s.say("east", paused)
	s.becomesPaused("east")
	changed := 0
	for name, version := range s.resourceVersions() {
		if before[name] != version && name != "east" && name != v1alpha1.ObjectName("west") {
			changed++
		}
	}
	if n := s.told(); n > most || changed > 0 {
		t.Errorf("%d of %d were told that they are no member's, want %d at most; %d others were written afterwards", n, *forged, most, changed)
	}
	if n := m.writes.Load(); n > most+100 {
		t.Errorf("%d requests that write", n)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	t.Logf("%d forged Members: %d writes, %d MB in use", *forged, m.writes.Load(), memory.HeapInuse>>20)
}
