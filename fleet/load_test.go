package fleet

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"
)

// TestTheConfigOfAMemberIsLoadedWhenThisReplicaConnectsIt, and not before: one that another replica works on has none here.
func TestTheConfigOfAMemberIsLoadedWhenThisReplicaConnectsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares()
		f := running(t, Options{Ownership: s})
		var loads atomic.Int32
		set(t, f, Member{Name: "a", Revision: "1", Load: func() (*rest.Config, error) {
			loads.Add(1)
			return nil, errors.New("it is another one by now")
		}})
		wantState(t, f, "a", NotOwned)
		if n := loads.Load(); n != 0 {
			t.Errorf("the config was loaded %d times", n)
		}
		s.give("a", me)
		if got := wantState(t, f, "a", Connecting); loads.Load() != 1 || !strings.Contains(got.Message, "another one by now") {
			t.Errorf("the config was loaded %d times: %s", loads.Load(), got.Message)
		}
		before := loads.Load()
		s.give("a", "other")
		wantState(t, f, "a", NotOwned)
		if _, err := f.Guest(t.Context(), "a"); err == nil || loads.Load() != before+1 {
			t.Errorf("a guest has loaded the config %d times: %v", loads.Load()-before, err)
		}
	})
}

func TestALoadedMemberHasAConfigAlone(t *testing.T) {
	cfg := &rest.Config{Host: "https://a"}
	m, err := Member{Name: "a", Revision: "1", Load: func() (*rest.Config, error) { return cfg, nil }}.Loaded()
	if err != nil || m.Config != cfg || m.Load != nil || m.Validate() != nil {
		t.Errorf("%+v, %v", m, err)
	}
	if again, err := m.Loaded(); err != nil || again.Config != cfg {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := (Member{Load: func() (*rest.Config, error) { return nil, nil }}).Loaded(); err == nil { //nolint:nilnil // a broken provider's
		t.Error("no config is a config")
	}
}

func TestAConfigThatIsLoadedNeedsARevision(t *testing.T) {
	load := func() (*rest.Config, error) { return &rest.Config{}, nil }
	for name, m := range map[string]Member{
		"without": {Name: "a", Load: load}, "and a config": {Name: "a", Revision: "1", Load: load, Config: &rest.Config{}},
		"and an error": {Name: "a", Revision: "1", Load: load, Err: errNo},
	} {
		if err := m.Validate(); !errors.Is(err, ErrInvalidMember) {
			t.Errorf("%s: %v", name, err)
		}
	}
	one, other := Member{Revision: "1", Load: load}, Member{Revision: "2", Load: load}
	if !sameAccess(one, Member{Revision: "1", Config: &rest.Config{}}) || sameAccess(one, other) || sameAccess(one, Member{Err: errNo}) ||
		sameAccess(one, Member{Config: &rest.Config{}}) {
		t.Error("the revision does not tell configs apart that are loaded")
	}
}

// TestMembersWithTheSameLabelsShareThem, and have labels of their own where a provider changes what it gave.
func TestMembersWithTheSameLabelsShareThem(t *testing.T) {
	f := New(Options{})
	given := map[string]string{"region": "east"}
	one, other := f.ownLabelsLocked(given), f.ownLabelsLocked(map[string]string{"region": "east"})
	given["region"] = "west"
	if one["region"] != "east" || f.ownLabelsLocked(given)["region"] != "west" {
		t.Error("labels changed that were given")
	}
	delete(one, "region") // nobody else would
	if len(other) != 0 {
		t.Error("equal labels are not shared")
	}
	comma, split := map[string]string{"a": "1,b=2"}, map[string]string{"a": "1", "b": "2"}
	if got := f.ownLabelsLocked(comma); len(got) != 1 {
		t.Errorf("%v", got)
	}
	if got := f.ownLabelsLocked(split); len(got) != 2 {
		t.Errorf("%v", got)
	}
}
