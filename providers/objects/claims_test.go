package objects

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// claim is one step: an object of namespace "ns" claims names, or without names lets go of all. At negative times it is
// deleted, and at 0 the time is up for which the name "x" is kept.
type claim struct {
	object  string
	created int
	names   []fleet.ClusterName
}

// keptUntil is until when the names of deleted objects are kept.
var keptUntil = time.Unix(1000, 0)

func (cs *claims) step(c claim) []fleet.ClusterName {
	key := client.ObjectKey{Namespace: "ns", Name: c.object}
	switch {
	case c.created < 0:
		return cs.remove(key, keptUntil)
	case c.created == 0:
		cs.expire("x", keptUntil.Add(-1)) // not yet
		if slices.ContainsFunc(cs.of("x"), claimant.isDeleted) {
			cs.expire("x", keptUntil)
		}
		return nil
	}
	return cs.set(claimant{key: key, created: time.Unix(int64(c.created), 0)}, c.names)
}

func TestTheOldestClaimantHoldsTheName(t *testing.T) {
	names := func(names ...fleet.ClusterName) []fleet.ClusterName { return names }
	for name, tc := range map[string]struct {
		claims []claim
		want   map[fleet.ClusterName][]string // the claimants, the holder first
	}{
		"one object alone":                 {[]claim{{"a", 1, names("x")}}, map[fleet.ClusterName][]string{"x": {"a"}}},
		"the older came first":             {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}}, map[fleet.ClusterName][]string{"x": {"a", "b"}}},
		"the older came last":              {[]claim{{"b", 2, names("x")}, {"a", 1, names("x")}}, map[fleet.ClusterName][]string{"x": {"a", "b"}}},
		"equal age goes by name":           {[]claim{{"b", 1, names("x")}, {"a", 1, names("x")}}, map[fleet.ClusterName][]string{"x": {"a", "b"}}},
		"the middle one comes last":        {[]claim{{"a", 1, names("x")}, {"c", 3, names("x")}, {"b", 2, names("x")}}, map[fleet.ClusterName][]string{"x": {"a", "b", "c"}}},
		"claiming again changes nothing":   {[]claim{{"a", 1, names("x")}, {"a", 1, names("x")}}, map[fleet.ClusterName][]string{"x": {"a"}}},
		"the holder lets go":               {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}, {"a", 1, nil}}, map[fleet.ClusterName][]string{"x": {"b"}}},
		"the holder turns to another":      {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}, {"a", 1, names("y")}}, map[fleet.ClusterName][]string{"x": {"b"}, "y": {"a"}}},
		"another than the holder leaves":   {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}, {"b", 2, nil}}, map[fleet.ClusterName][]string{"x": {"a"}}},
		"the holder is replaced unseen":    {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}, {"a", 3, names("x")}}, map[fleet.ClusterName][]string{"x": {"a", "b"}}},
		"another name of what replaced it": {[]claim{{"a", 1, names("x")}, {"b", 2, names("y")}, {"a", 3, names("x", "y")}}, map[fleet.ClusterName][]string{"x": {"a"}, "y": {"b", "a"}}},
		"the holder is deleted":            {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}, {"a", -1, nil}}, map[fleet.ClusterName][]string{"x": {"a (deleted)", "b"}}},
		"the holder is replaced":           {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}, {"a", -1, nil}, {"a", 3, names("x")}}, map[fleet.ClusterName][]string{"x": {"a", "b"}}},
		"it is empty at first":             {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}, {"a", -1, nil}, {"a", 3, nil}, {"a", 3, names("x")}}, map[fleet.ClusterName][]string{"x": {"a", "b"}}},
		"it stays empty":                   {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}, {"a", -1, nil}, {"a", 3, nil}, {"", 0, nil}}, map[fleet.ClusterName][]string{"x": {"b"}}},
		"the holder does not come back":    {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}, {"a", -1, nil}, {"", 0, nil}}, map[fleet.ClusterName][]string{"x": {"b"}}},
		"it comes back too late":           {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}, {"a", -1, nil}, {"", 0, nil}, {"a", 3, names("x")}}, map[fleet.ClusterName][]string{"x": {"b", "a"}}},
		"it came back in time":             {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}, {"a", -1, nil}, {"a", 3, names("x")}, {"", 0, nil}}, map[fleet.ClusterName][]string{"x": {"a", "b"}}},
		"a newcomer while it is kept":      {[]claim{{"a", 2, names("x")}, {"a", -1, nil}, {"b", 3, names("x")}}, map[fleet.ClusterName][]string{"x": {"a (deleted)", "b"}}},
		"all are deleted":                  {[]claim{{"a", 1, names("x")}, {"b", 2, names("x")}, {"a", -1, nil}, {"b", -1, nil}, {"", 0, nil}}, map[fleet.ClusterName][]string{}},
		"several names of one object":      {[]claim{{"a", 2, names("x", "y")}, {"b", 1, names("y", "z")}}, map[fleet.ClusterName][]string{"x": {"a"}, "y": {"b", "a"}, "z": {"b"}}},
		"one of several names is dropped":  {[]claim{{"a", 1, names("x", "y")}, {"b", 2, names("y")}, {"a", 1, names("x")}}, map[fleet.ClusterName][]string{"x": {"a"}, "y": {"b"}}},
		"all let go":                       {[]claim{{"a", 1, names("x")}, {"a", 1, nil}}, map[fleet.ClusterName][]string{}},
		"letting go of nothing":            {[]claim{{"a", 1, nil}}, map[fleet.ClusterName][]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			var cs claims
			for _, c := range tc.claims {
				cs.step(c)
			}
			got := map[fleet.ClusterName][]string{}
			for name := range cs.claimants {
				for _, c := range cs.of(name) {
					text := c.key.Name
					if c.isDeleted() {
						text += " (deleted)"
					}
					got[name] = append(got[name], text)
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
		{claim{"a", 1, []fleet.ClusterName{"x"}}, []fleet.ClusterName{"x"}},
		{claim{"a", -1, nil}, []fleet.ClusterName{"x"}},
		{claim{"a", -1, nil}, nil},
		{claim{"a", 3, []fleet.ClusterName{"z"}}, []fleet.ClusterName{"x", "z"}},
		{claim{"a", -1, nil}, []fleet.ClusterName{"z"}},
		{claim{"", 0, nil}, nil},
		{claim{"a", 4, nil}, []fleet.ClusterName{"z"}},
	} {
		got := cs.step(step.claim)
		slices.Sort(got)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("after %v (-want +got):\n%s", step.claim, diff)
		}
	}
	cs.expire("z", keptUntil)
	if len(cs.claimants)+len(cs.names) != 1+1 {
		t.Errorf("something is left of objects that let go: %v, %v", cs.claimants, cs.names)
	}
}
