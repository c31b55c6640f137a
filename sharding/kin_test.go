package sharding

import (
	"maps"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// doubts returns which replicas seem to be of another fleet, and why.
func (a *actor) doubts() map[string]string {
	doubts := map[string]string{}
	for _, one := range a.replica.Status().Replicas {
		if one.AnotherFleet != "" {
			doubts[one.Replica] = one.AnotherFleet
		}
	}
	return doubts
}

// TestTwoFleetsOfOneIDAreTold: they share the members of both, and each replica has some that it does not know. No two write to one.
func TestTwoFleetsOfOneIDAreTold(t *testing.T) {
	t.Parallel()
	s := newScene(t, 40)
	s.lease = 15 * time.Second // so that a busy machine costs no session
	first := func(name fleet.ClusterName) bool { return name < "m020" }
	second := func(name fleet.ClusterName) bool { return name >= "m020" }
	log := &lines{}
	a, twin, b := s.prepare("a", log.logger()), s.prepare("twin"), s.prepare("b")
	a.worker.knows, twin.worker.knows, b.worker.knows = first, first, second
	for _, one := range []*actor{a, twin, b} {
		one.replica.kin.patient = 7 * time.Second // longer than two renewals
		one.run()
	}
	const why = "of a sample of 16 members, it and this one both know 0"
	stage.Eventually(t, "each says that the other fleet's replicas are none of its own", func() bool {
		return maps.Equal(a.doubts(), map[string]string{"b": why}) &&
			maps.Equal(twin.doubts(), map[string]string{"b": why}) &&
			maps.Equal(b.doubts(), map[string]string{"a": why, "twin": why})
	})
	s.becomesToldOf("AnotherFleet")
	if n := log.with("A replica with this ID seems to be of another fleet"); n != 1 {
		t.Errorf("it was logged %d times, want once", n)
	}
	if n := gaugeOf(t, b.replica, "replicas_of_another_fleet"); n != 2 {
		t.Errorf("the metric is %v, want 2", n)
	}
	b.stop()
	stage.Eventually(t, "all is well once the other fleet has gone", func() bool {
		return len(a.doubts()) == 0 && len(a.holds())+len(twin.holds()) == 20
	})
}

func TestWhatASessionSaysTellsWhetherItIsOfAnotherFleet(t *testing.T) {
	t.Parallel()
	sample := func(hashes ...uint32) string { return protocol.Sample(hashes).Encode() }
	k := &kin{program: "example.com/shop", sample: protocol.Sample{1, 2, 3, 4}}
	for name, tc := range map[string]struct{ program, members, want string }{
		"TheSame":               {"example.com/shop", sample(1, 2, 3, 4), ""},
		"OfAnEarlierVersion":    {"", "", ""},
		"NoMembersYet":          {"example.com/shop", sample(), ""},
		"HalfOfThem":            {"example.com/shop", sample(1, 2), ""},
		"LessThanHalf":          {"example.com/shop", sample(1, 5), "of a sample of 5 members, it and this one both know 1"},
		"AnotherProgram":        {"example.com/bank", sample(1, 2, 3, 4), "it runs the program example.com/bank, and this one example.com/shop"},
		"HostileMembers":        {"example.com/shop", strings.Repeat("\x00", 1<<10), ""},
		"HostileProgram":        {"a\nb", "", `it runs the program a b, and this one example.com/shop`},
		"NobodyKnowsTheProgram": {"", sample(4, 5, 6, 7, 8), "of a sample of 8 members, it and this one both know 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lease := &coordinationv1.Lease{}
			lease.Annotations = map[string]string{annotationProgram: tc.program, annotationMembers: tc.members}
			if got := k.differs(&peer{lease: lease}); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	if why := (&kin{program: "example.com/shop"}).differs(&peer{lease: &coordinationv1.Lease{}}); why != "" {
		t.Errorf("a replica that knows no members yet says %q", why)
	}
}
