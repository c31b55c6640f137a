package dependents

import (
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestWhatIsNotWantedIsForgotten: dependents whose names change all the time, and that go by themselves, leave nothing behind.
func TestWhatIsNotWantedIsForgotten(t *testing.T) {
	o := newMemory().of(mcreconcile.Request{})
	key := func(cluster mcreconcile.ClusterName, name string) dependentKey {
		return dependentKey{cluster: cluster, name: types.NamespacedName{Name: name}}
	}
	kept, dropped, elsewhere := key("one", "wanted"), key("one", "of-yesterday"), key("two", "of-yesterday")
	for _, k := range []dependentKey{kept, dropped, elsewhere} {
		o.remember(k, applied{})
	}
	o.keep("one", map[dependentKey]bool{kept: true})
	for k, want := range map[dependentKey]bool{kept: true, dropped: false, elsewhere: true} {
		if o.is(k, applied{}) != want {
			t.Errorf("%v is remembered: %t, want %t", k, !want, want)
		}
	}
}

// TestAClusterThatIsBackIsMissedAnew: each identity of a name is missed by itself, and what is back holds up owners for as long
// as at first.
func TestAClusterThatIsBackIsMissedAnew(t *testing.T) {
	m := newMemory()
	named, one, two := site{name: "a"}, site{"a", "1"}, site{"a", "2"}
	for _, s := range []site{named, one, two} {
		m.missingFor(s)
	}
	m.present(one)
	for s, want := range map[site]bool{named: false, one: false, two: true} {
		if _, missing := m.missing[s]; missing != want {
			t.Errorf("%v is missed: %t, want %t", s, missing, want)
		}
	}
}

// TestAReconcileThatIsLateMissesNothing: a cluster has its name again, and a reconcile of the one in between still runs. If
// it were noted, the cluster would be given up at once when the name is led away next.
func TestAReconcileThatIsLateMissesNothing(t *testing.T) {
	m := newMemory()
	one, two := site{"a", "1"}, site{"a", "2"}
	isMissed := func(s site) bool {
		m.missingFor(s)
		_, missed := m.missing[s]
		return missed
	}
	m.present(two)
	if !isMissed(one) {
		t.Error("the first cluster is not missed while the second has the name")
	}
	m.present(one)
	if isMissed(one) {
		t.Error("the first cluster is missed, and has its name")
	}
	m.present(two)
	if !isMissed(one) {
		t.Error("the first cluster is not missed once the second has the name again")
	}
	m.present(two)
	m.forgetOrigin("a")
	if !isMissed(two) {
		t.Error("the second cluster is not missed once the name is no member's")
	}
}

// TestOwnersInAnotherClusterAreToldOfOnce, and again when there are more or fewer.
func TestOwnersInAnotherClusterAreToldOfOnce(t *testing.T) {
	lines := 0
	s := &sweeper{log: funcr.New(func(string, string) { lines++ }, funcr.Options{})}
	c := &sweepMemory{name: "member"}
	for _, step := range []struct{ strange, want int }{{3, 1}, {3, 1}, {4, 2}, {0, 2}, {4, 3}} {
		now := map[mcreconcile.ClusterName]int{}
		if step.strange > 0 {
			now["owners"] = step.strange
		}
		if s.tellStrange(c, now); lines != step.want {
			t.Errorf("after a sweep with %d there are %d lines, want %d", step.strange, lines, step.want)
		}
	}
}
