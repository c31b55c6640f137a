package record

import (
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

var keys = NewKeys("payments", "copier")

// FuzzRecord reads whatever somebody has written where the owner's clusters are noted, and writes over it.
func FuzzRecord(f *testing.F) {
	f.Add(`["east","west"]`, `{"east":["1","2"]}`, "Deployment.v1.apps,ConfigMap.v1.", "north", "3")
	f.Add(`["east"]`, `{"east":[""],"west":["1"]}`, "", "east", "")
	f.Add(`["a\"east"]`, "", "", "east", "")
	f.Add(`nonsense`, `nonsense`, "nonsense", "", "")
	f.Add(`[1]`, `{"east":1}`, "..,", "\x00", "\x00")
	f.Fuzz(func(t *testing.T, names, identities, kinds, name, identity string) {
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			keys.Clusters: names, keys.Identities: identities, keys.Kinds: kinds,
		}}}
		r := keys.Read(owner)
		if r.Nonsense && len(r.Sites) > 0 {
			t.Fatalf("%v cannot be read, and was read as %v", names, r.Sites)
		}
		if in := mcreconcile.ClusterName(name); keys.Mentions(owner, in) && r.Excludes(in) {
			t.Fatalf("%v does not have %q", names, name)
		}
		if !keys.On(owner) {
			t.Fatal("there is a record, and it is not seen")
		}
		r.Nonsense = false
		more := Site{mcreconcile.ClusterName(strings.ToValidUTF8(name, "")), types.UID(strings.ToValidUTF8(identity, ""))}
		if len(ByName(r.Sites)[more.Name]) == 0 && IsName(more.Name) && len(more.Identity) <= longestIdentity {
			r.Sites = append(r.Sites, more)
		}
		keys.Write(owner, r, true)
		got := keys.Read(owner)
		if diff := cmp.Diff(setOf(r), setOf(got)); diff != "" || got.Nonsense {
			t.Fatalf("the record (-written, +read):\n%s", diff)
		}
		keys.Write(owner, Record{Sites: r.Sites, Kinds: r.Kinds, Slices: r.Slices}, false)
		if len(owner.Annotations)+len(owner.Finalizers) > 0 {
			t.Fatalf("the record was removed, and is there: %v", owner.ObjectMeta)
		}
	})
}

// TestACopyHasNoRecord, of whatever controller of whatever installation. All else of it stays.
func TestACopyHasNoRecord(t *testing.T) {
	t.Parallel()
	all := Record{Sites: []Site{{"east", "1"}}, Kinds: []schema.GroupVersionKind{{Version: "v1", Kind: "Secret"}}, GivenUp: true, Slices: &Slices{}, Failures: &Failures{}}
	stays := metav1.ObjectMeta{
		Finalizers: []string{"example.com/theirs", "fleet-runtime.dev/other"},
		Annotations: map[string]string{
			"note": "1", "a.b.example.com/kinds": "1", "fleet-runtime.dev/kinds": "1", "shop.payments.fleet-runtime.dev/note": "1",
		},
	}
	copied := &corev1.ConfigMap{ObjectMeta: *stays.DeepCopy()}
	for _, k := range []Keys{keys, NewKeys("payments", "other"), NewKeys("theirs", "copier")} {
		k.Write(copied, all, true)
	}
	Strip(copied)
	if diff := cmp.Diff(stays, copied.ObjectMeta); diff != "" {
		t.Errorf("the copy (-want, +got):\n%s", diff)
	}
	alone := &corev1.ConfigMap{}
	keys.Write(alone, all, true)
	if Strip(alone); alone.Finalizers != nil {
		t.Errorf("it has the finalizers %q", alone.Finalizers)
	}
}

func setOf(r Record) map[string]bool {
	set := map[string]bool{}
	for _, s := range r.Sites {
		set[fmt.Sprintf("%q %q", s.Name, s.Identity)] = true
	}
	for _, k := range r.Kinds {
		set[k.String()] = true
	}
	return set
}

// TestARecordWithoutIdentitiesIsRead: it is of a version before they were noted, and names alone count.
func TestARecordWithoutIdentitiesIsRead(t *testing.T) {
	t.Parallel()
	owner := &corev1.ConfigMap{}
	owner.Annotations = map[string]string{keys.Clusters: `["west","east"]`}
	got := keys.Read(owner)
	if diff := cmp.Diff(Record{Sites: []Site{{Name: "east"}, {Name: "west"}}}, got); diff != "" {
		t.Errorf("the record was read as (-want, +got):\n%s", diff)
	}
	keys.Write(owner, Record{Sites: []Site{{"east", "1"}, {Name: "west"}, {"east", "2"}, {"east", "1"}}}, true)
	want := map[string]string{keys.Clusters: `["east","west"]`, keys.Identities: `{"east":["1","2"]}`}
	if diff := cmp.Diff(want, owner.Annotations); diff != "" {
		t.Errorf("the record (-want, +got), whose names a version before must be able to read:\n%s", diff)
	}
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	want := Record{
		Sites:   []Site{{"east", "1"}, {"east", "2"}, {Name: "west"}},
		Kinds:   []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}, {Group: "apps", Version: "v1", Kind: "Deployment"}},
		GivenUp: true, Failures: &Failures{Revision: "1", Clusters: []mcreconcile.ClusterName{"east"}},
	}
	others := map[string]string{"of": "others"}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: others, Finalizers: []string{"of/others"}}}
	changed := Changed(owner, func(obj client.Object) { keys.Write(obj, want, true) })
	if diff := cmp.Diff(want, keys.Read(changed)); diff != "" || !keys.Holds(changed) || !keys.On(changed) {
		t.Errorf("the record (-written, +read):\n%s", diff)
	}
	if len(others) != 1 || keys.On(owner) {
		t.Error("the owner itself was changed, which may be the cache's")
	}
	if again := Changed(changed, func(obj client.Object) { keys.Write(obj, want, true) }); again != nil {
		t.Errorf("nothing is new, and it is to be stored: %v", again)
	}
	if only := Changed(changed, func(obj client.Object) { obj.SetFinalizers(nil) }); only == nil {
		t.Error("the finalizers alone have changed, and it is not to be stored")
	}
	letGo := Changed(changed, func(obj client.Object) { keys.Write(obj, want, false) })
	if diff := cmp.Diff(Record{GivenUp: true}, keys.Read(letGo)); diff != "" || keys.On(letGo) {
		t.Errorf("an owner that is let go has a record (-want, +read):\n%s", diff)
	}
	want.GivenUp = false
	gone := Changed(changed, func(obj client.Object) { keys.Write(obj, want, false) })
	if diff := cmp.Diff(owner.ObjectMeta, gone.(*corev1.ConfigMap).ObjectMeta); diff != "" {
		t.Errorf("an owner without the finalizer has a record (-before, +after):\n%s", diff)
	}
	owner.Annotations = map[string]string{keys.Clusters: "{"}
	if r := keys.Read(owner); !r.Nonsense || len(r.Sites) > 0 {
		t.Errorf("nonsense was read as %v", r)
	}
}

func TestAClusterIsNotedByItsIdentity(t *testing.T) {
	t.Parallel()
	named := []Site{{"a", "1"}, {"a", "2"}}
	for _, tc := range []struct {
		site Site
		in   []Site
		want bool
	}{
		{Site{"a", "1"}, named, true},
		{Site{"a", "3"}, named, false},
		{Site{Name: "a"}, named, true}, // nobody can tell
		{Site{Name: "a"}, nil, false},
		{Site{"a", "1"}, []Site{{Name: "a"}}, false}, // it is completed first
	} {
		if got := tc.site.IsNoted(tc.in); got != tc.want {
			t.Errorf("%v is noted in %v: %t, want %t", tc.site, tc.in, got, tc.want)
		}
	}
}

// TestWhatSomebodyNotesOnAnOwnerCostsLittle: whoever may edit an owner may fill its annotations.
func TestWhatSomebodyNotesOnAnOwnerCostsLittle(t *testing.T) {
	many := make([]string, 8000)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	owner := &corev1.ConfigMap{}
	owner.Annotations = map[string]string{keys.Clusters: asJSON(many), keys.Identities: asJSON(map[string][]string{"0": many})}
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	r := keys.Read(owner)
	goruntime.ReadMemStats(&after)
	if last := (Site{"0", "7999"}); len(ByName(r.Sites)["0"]) != MostSites || !slices.Contains(r.Sites, last) {
		t.Errorf("%d clusters of one name were read, want the last %d", len(ByName(r.Sites)["0"]), MostSites)
	}
	if megabytes := (after.TotalAlloc - before.TotalAlloc) >> 20; megabytes > 100 {
		t.Errorf("it took %d MB", megabytes)
	}
}

// TestTheKindsThatSomebodyNotesOnAnOwnerCostLittle: no more are read than an owner can note, which is told, and each once.
func TestTheKindsThatSomebodyNotesOnAnOwnerCostLittle(t *testing.T) {
	t.Parallel()
	numbered := func(n int) (kinds []schema.GroupVersionKind) {
		for i := range n {
			kinds = append(kinds, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: fmt.Sprintf("Kind%d", i)})
		}
		return kinds
	}
	for name, c := range map[string]struct {
		text    string
		want    int
		crowded bool
	}{
		"as many as can be noted":  {kindsText(numbered(MostKinds)), MostKinds, false},
		"one more":                 {kindsText(numbered(MostKinds + 1)), MostKinds, true},
		"many":                     {kindsText(numbered(10_000)), MostKinds, true},
		"one time and again":       {strings.Repeat("Pod.v1.,", 30_000), 1, false},
		"many that are no kinds":   {strings.Repeat("a..,", 60_000) + strings.Repeat("Pod.v1.../,", 1000) + "Pod.v1.", 1, false},
		"commas":                   {strings.Repeat(",", 250_000), 0, false},
		"a long name":              {strings.Repeat("a", 64) + ".v1.apps", 0, false},
		"a version with a capital": {"Pod.V1.", 0, false},
	} {
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.Kinds: c.text}}}
		if r := keys.Read(owner); len(r.Kinds) != c.want || r.Crowded != c.crowded {
			t.Errorf("%s: %d kinds were read, and there are more: %t; want %d and %t", name, len(r.Kinds), r.Crowded, c.want, c.crowded)
		}
	}
}

// TestAKindThatCanBeNotedIsReadAsItWasWritten, and what the annotation would make another of cannot be noted.
func TestAKindThatCanBeNotedIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for kind, want := range map[schema.GroupVersionKind]bool{
		{Version: "v1", Kind: "ConfigMap"}:                                           true,
		{Group: "autoscaling.k8s.io", Version: "v1beta2", Kind: "Scaler2"}:           true,
		{Version: "v1.1", Kind: "ConfigMap"}:                                         false,
		{Group: "apps", Version: "v1,x", Kind: "Deployment"}:                         false,
		{Group: "apps", Version: "", Kind: "Deployment"}:                             false,
		{Group: "apps", Version: "v1", Kind: "De.ployment"}:                          false,
		{Group: "a,Pod.v1.", Version: "v1", Kind: "Deployment"}:                      false,
		{Group: strings.Repeat("a.", 200) + "com", Version: "v1", Kind: "Far"}:       false,
		{Group: "../api", Version: "v1", Kind: "Deployment"}:                         false,
		{Group: "apps", Version: "v1", Kind: "Deployment" + strings.Repeat("x", 54)}: false,
	} {
		read, _ := kindsIn(kindsText([]schema.GroupVersionKind{kind}))
		if IsKind(kind) != want || want && !slices.Equal(read, []schema.GroupVersionKind{kind}) {
			t.Errorf("%s can be noted: %t, and is read as %v", kind, IsKind(kind), read)
		}
	}
}

// TestAnOwnerCanNoteAFleet of 3000 clusters: the API server takes 256 KiB of annotations.
func TestAnOwnerCanNoteAFleet(t *testing.T) {
	t.Parallel()
	sites := make([]Site, 3000)
	for i := range sites {
		sites[i] = Site{mcreconcile.ClusterName(fmt.Sprintf("%020d", i)), "ec4a8a5e-3b0f-4d0e-b7dd-70f4bd7d9d35"}
	}
	owner := &corev1.ConfigMap{}
	keys.Write(owner, Record{Sites: sites}, true)
	if err := apivalidation.ValidateAnnotationsSize(owner.Annotations); err != nil {
		t.Error(err)
	}
}

// TestWhatIsSaidOfSlicesIsReadAsItWasWritten, and what cannot be read means anywhere.
func TestWhatIsSaidOfSlicesIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	owner := &corev1.ConfigMap{}
	want := Record{
		Slices: &Slices{Namespace: "ns", Numbers: []int{0, 3}}, GivenUp: true, Sites: []Site{{"a", "1"}, {"b", ""}},
		Kinds: []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"}},
	}
	unordered := want
	unordered.Kinds = []schema.GroupVersionKind{want.Kinds[1], want.Kinds[0], want.Kinds[1]}
	keys.Write(owner, unordered, true)
	if diff := cmp.Diff(want, keys.Read(owner)); diff != "" || !keys.On(owner) || !keys.Holds(owner) {
		t.Errorf("the record (-written, +read):\n%s", diff)
	}
	for content, nonsense := range map[string]bool{`{"namespace":"ns"}`: false, `nonsense`: true, `[]`: true} {
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.Slices: content}}}
		if r := keys.Read(owner); r.Nonsense != nonsense || r.Slices == nil || !keys.On(owner) {
			t.Errorf("%s: the record is %+v", content, r)
		}
	}
}
