package objects

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// claim is one step: an object of namespace "ns" claims names, or without names lets go of all.
type claim struct {
	object  string
	created int
	names   []fleet.ClusterName
}

func TestTheOldestClaimantHoldsTheName(t *testing.T) {
	names := func(names ...fleet.ClusterName) []fleet.ClusterName { return names }
	for name, tc := range map[string]struct {
		claims []claim
		want   map[fleet.ClusterName][]string // the claimants, the holder first
	}{
		"one object alone":                {[]claim{{"a", 1, names("x")}}, map[fleet.ClusterName][]string{"x": {"a"}}},
		"the older came first":            {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}}, map[fleet.ClusterName][]string{"x": {"a", "b"}}},
		"the older came last":             {[]claim{{"b", 2, names("x")}, {"a", 1, names("x")}}, map[fleet.ClusterName][]string{"x": {"a", "b"}}},
		"equal age goes by name":          {[]claim{{"b", 1, names("x")}, {"a", 1, names("x")}}, map[fleet.ClusterName][]string{"x": {"a", "b"}}},
		"the middle one comes last":       {[]claim{{"a", 1, names("x")}, {"c", 3, names("x")}, {"b", 2, names("x")}}, map[fleet.ClusterName][]string{"x": {"a", "b", "c"}}},
		"claiming again changes nothing":  {[]claim{{"a", 1, names("x")}, {"a", 1, names("x")}}, map[fleet.ClusterName][]string{"x": {"a"}}},
		"the holder lets go":              {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}, {"a", 1, nil}}, map[fleet.ClusterName][]string{"x": {"b"}}},
		"the holder turns to another":     {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}, {"a", 1, names("y")}}, map[fleet.ClusterName][]string{"x": {"b"}, "y": {"a"}}},
		"another than the holder leaves":  {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}, {"b", 2, nil}}, map[fleet.ClusterName][]string{"x": {"a"}}},
		"the holder is made anew":         {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}, {"a", 3, names("x")}}, map[fleet.ClusterName][]string{"x": {"b", "a"}}},
		"several names of one object":     {[]claim{{"a", 1, names("x", "y")}, {"b", 0, names("y", "z")}}, map[fleet.ClusterName][]string{"x": {"a"}, "y": {"b", "a"}, "z": {"b"}}},
		"one of several names is dropped": {[]claim{{"a", 1, names("x", "y")}, {"b", 2, names("y")}, {"a", 1, names("x")}}, map[fleet.ClusterName][]string{"x": {"a"}, "y": {"b"}}},
		"all let go":                      {[]claim{{"a", 1, names("x")}, {"a", 1, nil}}, map[fleet.ClusterName][]string{}},
		"letting go of nothing":           {[]claim{{"a", 1, nil}}, map[fleet.ClusterName][]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			var cs claims
			for _, c := range tc.claims {
				cs.set(claimantOf(c), c.names)
			}
			got := map[fleet.ClusterName][]string{}
			for name := range cs.claimants {
				for _, c := range cs.of(name) {
					got[name] = append(got[name], c.key.Name)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("claimants (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAClaimTouchesTheNamesOfBeforeAndNow(t *testing.T) {
	var cs claims
	for _, step := range []struct {
		claim claim
		want  []fleet.ClusterName
	}{
		{claim{"a", 1, []fleet.ClusterName{"x", "y"}}, []fleet.ClusterName{"x", "y"}},
		{claim{"b", 2, []fleet.ClusterName{"y"}}, []fleet.ClusterName{"y"}},
		{claim{"a", 1, []fleet.ClusterName{"y", "z"}}, []fleet.ClusterName{"x", "y", "z"}},
		{claim{"a", 1, nil}, []fleet.ClusterName{"y", "z"}},
		{claim{"a", 1, nil}, nil},
	} {
		got := cs.set(claimantOf(step.claim), step.claim.names)
		slices.Sort(got)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("after %v (-want +got):\n%s", step.claim, diff)
		}
	}
	if len(cs.claimants)+len(cs.names) != 1+1 {
		t.Errorf("something is left of objects that let go: %v, %v", cs.claimants, cs.names)
	}
}

func claimantOf(c claim) claimant {
	return claimant{
		key:     client.ObjectKey{Namespace: "ns", Name: c.object},
		created: time.Unix(int64(c.created), 0),
	}
}
