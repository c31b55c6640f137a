package dependents

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestSlicesDoNotSayWhatChangesAllTheTime: how often it was tried to reach a cluster, and whether a dependent was as desired before.
func TestSlicesDoNotSayWhatChangesAllTheTime(t *testing.T) {
	t.Parallel()
	away := func(message string, since time.Time) error {
		return &fleet.StateError{Err: fleet.ErrNotReady, Status: fleet.Status{Name: "member", State: "Unreachable", Reason: "Timeout", Message: message, Since: since}}
	}
	if one, other := sliceText(away("attempt 1", time.Unix(1, 0))), sliceText(away("attempt 2", time.Unix(2, 0))); one != other || one == "" {
		t.Errorf("a cluster that is away is %q, and then %q", one, other)
	}
	result := func(state State, err error, since int64) Result {
		return Result{Cluster: "member", Objects: []ObjectResult{{State: state, Err: err, Since: time.Unix(since, 0)}}}
	}
	first := entryOf(result(Applied, nil, 1)).Objects[0]
	for _, state := range []State{Unchanged, Drifted} {
		if o := entryOf(result(state, nil, 2)).Objects[0]; o != first {
			t.Errorf("a dependent that is as desired is %+v, and then %+v", first, o)
		}
	}
	if o := entryOf(result(Failed, errors.New("quota exceeded"), 2)).Objects[0]; o.State != "Failed" || o.Error != "quota exceeded" || !o.Since.Time.Equal(time.Unix(2, 0)) {
		t.Errorf("a dependent that has failed is %+v", o)
	}
}

// TestASliceIsBoundedWhateverIsDesiredOrAnswered: names, kinds, UIDs and messages of any length, and any number of dependents, with
// characters that take more room when they are stored.
func TestASliceIsBoundedWhateverIsDesiredOrAnswered(t *testing.T) {
	t.Parallel()
	const clusters, objects = 5, 1100
	long := strings.Repeat("<&\u2028é\x00", 1000)
	hostile := ObjectResult{
		Kind: schema.GroupVersionKind{Group: long, Version: long, Kind: long}, Key: client.ObjectKey{Namespace: long, Name: long},
		UID: types.UID(long), State: Failed, Err: errors.New(long), Since: time.Unix(1, 0),
	}
	entries := make([]v1alpha1.Cluster, clusters)
	for i := range entries {
		r := Result{Cluster: mcreconcile.ClusterName(fmt.Sprintf("%0317d", i)), Err: errors.New(long), Since: time.Unix(1, 0)}
		r.Objects = slices.Repeat([]ObjectResult{hostile}, objects)
		entries[i] = entryOf(r)
		for j := range record.MostSites {
			entries[i].Identities = append(entries[i].Identities, types.UID(fmt.Sprintf("%064d", j)))
		}
	}
	ref := mcowner.Reference{Fleet: "test", Name: strings.Repeat("n", 253), Namespace: strings.Repeat("s", 63), Kind: "ConfigMap", UID: "1"}
	layout, err := record.NewBook(ref, ref.Namespace).Lay(entries, record.DefaultBytes, true)
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for number, of := range layout.Clusters() {
		content, err := json.Marshal(v1alpha1.DependentSlice{Clusters: of})
		if err != nil {
			t.Fatal(err)
		}
		if len(content) > record.DefaultBytes+100 {
			t.Errorf("slice %d has %d bytes of %d clusters", number, len(content), len(of))
		}
		for _, c := range of {
			if told++; len(c.Objects) == 0 || len(c.Objects)+int(c.Omitted) != objects || c.Error == "" {
				t.Errorf("of cluster %s there are %d objects, and %d are omitted", c.Name, len(c.Objects), c.Omitted)
			}
		}
	}
	if told != clusters {
		t.Errorf("slices have %d clusters, want %d", told, clusters)
	}
}

// TestEveryMemberCanBeNoted, however long its name is.
func TestEveryMemberCanBeNoted(t *testing.T) {
	t.Parallel()
	if record.MostName != fleet.MaxNameLength {
		t.Errorf("names of %d bytes can be noted, and members have up to %d", record.MostName, fleet.MaxNameLength)
	}
}

// TestADependentThatCannotBeHidesNoOther: its name alone would fill the slice.
func TestADependentThatCannotBeHidesNoOther(t *testing.T) {
	t.Parallel()
	e := entryOf(Result{Cluster: "member", Objects: []ObjectResult{
		{Key: client.ObjectKey{Name: strings.Repeat("n", 1<<20)}, State: Failed, Err: errors.New("the name is too long")},
		{Key: client.ObjectKey{Name: "other"}, State: Failed, Err: errors.New("quota exceeded")},
	}})
	layout, err := record.NewBook(mcowner.Reference{}, "ns").Lay([]v1alpha1.Cluster{e}, record.DefaultBytes, true)
	if err != nil {
		t.Fatal(err)
	}
	if got := layout.Clusters()[0]; len(got) != 1 || len(got[0].Objects) != 2 || got[0].Omitted != 0 {
		t.Errorf("the slice has %d clusters, and %d dependents are omitted", len(got), got[0].Omitted)
	}
}

// TestSlicesGoOnAfterARestart saying what they said of a cluster that was not looked at yet, but not for ever.
func TestSlicesGoOnAfterARestart(t *testing.T) {
	t.Parallel()
	said := v1alpha1.Cluster{Name: "member", Error: "no answer", Since: metav1.Unix(1, 0), Objects: []v1alpha1.Object{{Name: "a"}}}
	now := Result{Cluster: "member", Targeted: true, Err: errors.New("no answer"), Since: time.Unix(2, 0)}
	other := now
	other.Err = errors.New("not in the fleet")
	for what, c := range map[string]struct {
		before map[string]v1alpha1.Cluster
		until  time.Duration
		result Result
		want   v1alpha1.Cluster
	}{
		"at first":           {map[string]v1alpha1.Cluster{"member": said}, time.Minute, other, v1alpha1.Cluster{Name: "member", Targeted: true, Error: "no answer", Since: metav1.Unix(1, 0), Objects: said.Objects}},
		"later":              {map[string]v1alpha1.Cluster{"member": said}, -time.Minute, now, v1alpha1.Cluster{Name: "member", Targeted: true, Error: "no answer", Since: metav1.Unix(1, 0)}},
		"later, with news":   {map[string]v1alpha1.Cluster{"member": said}, -time.Minute, other, v1alpha1.Cluster{Name: "member", Targeted: true, Error: "not in the fleet", Since: metav1.Unix(2, 0)}},
		"of another cluster": {map[string]v1alpha1.Cluster{"other": said}, time.Minute, now, v1alpha1.Cluster{Name: "member", Targeted: true, Error: "no answer", Since: metav1.Unix(2, 0)}},
	} {
		o := newOwnerState(mcreconcile.Request{}, "1")
		o.known.before, o.known.until = c.before, time.Now().Add(c.until)
		if diff := cmp.Diff(c.want, o.entryLocked(c.result)); diff != "" {
			t.Errorf("%s (-want, +got):\n%s", what, diff)
		}
	}
}

// TestAfterARestartADependentFailsSinceItBegan, also one whose name is not stored as it is.
func TestAfterARestartADependentFailsSinceItBegan(t *testing.T) {
	t.Parallel()
	result := func(name string, since int64) Result {
		return Result{Cluster: "member", Err: errors.New("no"), Since: time.Unix(since, 0), Objects: []ObjectResult{
			{Key: client.ObjectKey{Namespace: "ns", Name: name}, State: Failed, Err: errors.New("no"), Since: time.Unix(since, 0)},
		}}
	}
	for _, name := range []string{"a", strings.Repeat("n", 300)} {
		k := knownSlices{before: map[string]v1alpha1.Cluster{"member": entryOf(result(name, 1))}}
		now := report{Result: result(name, 2)}
		k.age(&now)
		if !now.Since.Equal(time.Unix(1, 0)) || !now.Objects[0].Since.Equal(time.Unix(1, 0)) {
			t.Errorf("%.10s has failed since %s, its cluster since %s", name, now.Objects[0].Since, now.Since)
		}
	}
}

// TestNothingIsSoSinceATimeToCome, whatever the clock of the replica said that has noted it.
func TestNothingIsSoSinceATimeToCome(t *testing.T) {
	t.Parallel()
	failed, now := errors.New("quota exceeded"), time.Unix(100, 0)
	for noted, want := range map[int64]int64{50: 50, 100: 100, 150: 100} {
		result := func(since time.Time) Result {
			return Result{Cluster: "member", Err: failed, Since: since, Objects: []ObjectResult{{State: Failed, Err: failed, Since: since}}}
		}
		k := knownSlices{before: map[string]v1alpha1.Cluster{"member": entryOf(result(time.Unix(noted, 0)))}}
		r := report{Result: result(now)}
		k.age(&r)
		if r.Since.Unix() != want || r.Objects[0].Since.Unix() != want {
			t.Errorf("noted at %d, it is so since %d, and its object since %d; want %d", noted, r.Since.Unix(), r.Objects[0].Since.Unix(), want)
		}
	}
}
