package members_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// broken is why a member cannot be described.
type broken struct{ reason, message string }

func (b broken) Error() string { return b.message }

// Reason is what the status shows.
func (b broken) Reason() string { return b.reason }

// TestAThousandMembersAreWrittenWhenTheyChange, and only then, and not all at once.
func TestAThousandMembersAreWrittenWhenTheyChange(t *testing.T) {
	t.Parallel()
	const load = 1000
	s := newStage(t, 0)
	m := s.newManager(s.Local.Config())
	all := func(reason, message string) {
		for i := range load {
			m.set(fleet.Member{Name: fleet.ClusterName(fmt.Sprintf("member-%d", i)), Err: broken{reason, message}})
		}
	}
	show := func(reason string) {
		s.eventually("all are "+reason, func() bool {
			list := s.list()
			for i := range list {
				if list[i].Status.Reason != reason {
					return false
				}
			}
			return len(list) == load
		})
	}
	all("First", "first")
	m.start()
	show("First")
	if n := m.writes.Load(); n < 2*load || n > 2*load+load/100 { // one that was slow is tried again
		t.Errorf("%d writes for %d new members, want two for each", n, load)
	}

	before, versions := m.writes.Load(), s.resourceVersions()
	all("First", "said otherwise")
	m.set(fleet.Member{Name: "member-7", Err: broken{"Second", "second"}})
	s.becomes("member-7", "is another", func(m *v1alpha1.Member) bool { return m.Status.Reason == "Second" })
	if n := m.writes.Load() - before; n != 1 {
		t.Errorf("%d writes for one change", n)
	}
	for name, version := range s.resourceVersions() {
		if versions[name] != version && name != "member-7" {
			t.Errorf("%s was written", name)
		}
	}

	before, begin := m.writes.Load(), time.Now()
	for i := range 10 {
		all(fmt.Sprintf("Flap%d", i), "flap")
	}
	show("Flap9")
	took := time.Since(begin)
	n := m.writes.Load() - before
	t.Logf("%d writes in %v, while %d members changed ten times", n, took, load)
	if most := int64(100*took.Seconds()) + 200; n > most {
		t.Errorf("%d writes in %v, want at most %d", n, took, most)
	}
	if n > 2*load {
		t.Errorf("%d writes for %d members that changed together", n, load)
	}
}

// TestAMemberThatFlapsIsWrittenOnceASecond, however often it changes.
func TestAMemberThatFlapsIsWrittenOnceASecond(t *testing.T) {
	t.Parallel()
	s := newStage(t, 0)
	m := s.newManager(s.Local.Config())
	m.set(fleet.Member{Name: "east", Err: errors.New("it does not parse")})
	m.start()
	s.is("east", fleet.Pending)
	before, begin := m.writes.Load(), time.Now()
	for i := 0; time.Since(begin) < 4*time.Second; i++ {
		m.set(fleet.Member{Name: "east", Err: broken{fmt.Sprintf("Flap%d", i), "flap"}})
		s.get("east") // which takes its time
	}
	m.set(fleet.Member{Name: "east", Err: broken{"Last", "last"}})
	s.becomes("east", "is as last said", func(m *v1alpha1.Member) bool { return m.Status.Reason == "Last" })
	if n, most := m.writes.Load()-before, int64(time.Since(begin).Seconds())+2; n > most {
		t.Errorf("%d writes, want at most %d", n, most)
	}
}

func (s *stage) resourceVersions() map[string]string {
	s.t.Helper()
	versions := map[string]string{}
	for _, m := range s.list() {
		versions[m.Name] = m.ResourceVersion
	}
	return versions
}
