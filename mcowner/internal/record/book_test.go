package record

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

func someOwner() mcowner.Reference {
	return mcowner.Reference{Fleet: "test", Manager: "spread", APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "web", UID: "1"}
}

// clustersWith returns so many clusters, each with so many objects.
func clustersWith(n, objects int) []v1alpha1.Cluster {
	all := make([]v1alpha1.Cluster, n)
	for i := range all {
		all[i] = v1alpha1.Cluster{
			Name: fmt.Sprintf("cluster-%05d", i), MayHaveDependents: true, Targeted: true,
			Identities: []types.UID{types.UID(fmt.Sprintf("0b6e7c1c-0000-4000-8000-%012d", i))},
		}
		for k := range objects {
			all[i].Objects = append(all[i].Objects, v1alpha1.Object{
				Kind: "Deployment.v1.apps", Namespace: "some-namespace", Name: fmt.Sprintf("object-%d", k),
				UID: "0b6e7c1c-0000-4000-8000-000000000000", State: "Unchanged",
			})
		}
	}
	return all
}

// lay lays clusters out, checks what always holds, and returns the book as if all was written.
func lay(t *testing.T, b *Book, clusters []v1alpha1.Cluster, most int, renew bool) (*Book, Layout) {
	t.Helper()
	layout, err := b.Lay(clusters, most, renew)
	if err != nil {
		t.Fatal(err)
	}
	next := &Book{of: b.of, ref: b.ref, pages: map[int]page{}}
	var names []string
	for number, leaves := range layout.pages {
		if got := size(leaves); got > most || len(leaves) == 0 || len(leaves) > mostClusters {
			t.Fatalf("slice %d has %d clusters in %d bytes, and may have %d", number, len(leaves), got, most)
		}
		p := page{hash: hashOf(leaves)}
		for _, l := range leaves {
			p.names = append(p.names, l.Name)
			p.sites = append(p.sites, SitesOf([]v1alpha1.Cluster{l.Cluster})...)
		}
		if !slices.IsSorted(p.names) {
			t.Fatalf("the clusters of slice %d are not ordered: %q", number, p.names)
		}
		names = append(names, p.names...)
		next.pages[number] = p
	}
	slices.Sort(names)
	want := make([]string, len(clusters))
	for i, c := range clusters {
		want[i] = c.Name
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Fatalf("slices have the clusters %q, want %q, each once", names, want)
	}
	return next, layout
}

func changed(a, b *Book) (n int) {
	for number, p := range b.pages {
		if a.pages[number].hash != p.hash {
			n++
		}
	}
	return n
}

func TestTenThousandClustersFitIntoSlicesOfWhichOneClusterChangesOne(t *testing.T) {
	t.Parallel()
	for objects, most := range map[int]int{0: 30, 5: 160} {
		clusters := clustersWith(10_000, objects)
		book, _ := lay(t, NewBook(someOwner(), "ns"), clusters, DefaultBytes, false)
		if n := len(book.pages); n > most {
			t.Errorf("with %d objects in each cluster there are %d slices, want at most %d", objects, n, most)
		}
		t.Logf("10,000 clusters with %d objects: %d slices", objects, len(book.pages))
		clusters[5000].Error = strings.Repeat("x", 500)
		next, _ := lay(t, book, clusters, DefaultBytes, false)
		if n := changed(book, next); n != 1 {
			t.Errorf("a change of one cluster writes %d slices, want 1", n)
		}
		fewer := slices.Delete(slices.Clone(clusters), 100, 101)
		last, _ := lay(t, next, fewer, DefaultBytes, false)
		if n := changed(next, last); n != 1 {
			t.Errorf("that one cluster goes writes %d slices, want 1", n)
		}
	}
}

func TestClustersAreInASliceAtAllTimes(t *testing.T) {
	t.Parallel()
	const most = 4 << 10
	random := rand.New(rand.NewPCG(1, 2))
	book := NewBook(someOwner(), "ns")
	clusters := clustersWith(40, 2)
	for range 300 {
		c := &clusters[random.IntN(len(clusters))]
		switch random.IntN(4) {
		case 0:
			c.Error = strings.Repeat("x", random.IntN(500))
		case 1:
			c.Objects = slices.Repeat([]v1alpha1.Object{{Kind: "ConfigMap.v1.", Name: "a", State: "Failed"}}, random.IntN(100))
		case 2:
			clusters = slices.DeleteFunc(clusters, func(o v1alpha1.Cluster) bool { return o.Name == c.Name && len(clusters) > 10 })
		case 3:
			more := clustersWith(60, 1)[random.IntN(60)]
			if !slices.ContainsFunc(clusters, func(o v1alpha1.Cluster) bool { return o.Name == more.Name }) {
				clusters = append(clusters, more)
			}
		}
		next, layout := lay(t, book, clusters, most, true)
		stays := map[mcreconcile.ClusterName]bool{}
		for _, s := range next.Sites() {
			stays[s.Name] = true
		}
		stored := book.pages
		for _, number := range layout.order() { // each write may be the last one before a crash
			now := &Book{of: book.of, pages: maps.Clone(stored)}
			now.pages[number] = next.pages[number]
			stored = now.pages
			has := Names(now.Sites())
			for _, s := range book.Sites() {
				if _, is := slices.BinarySearch(has, s.Name); !is && stays[s.Name] {
					t.Fatalf("cluster %s is in no slice after slice %d was written", s.Name, number)
				}
			}
		}
		book = next
	}
}

func TestSlicesThatAreBeingDeletedAreEmptied(t *testing.T) {
	t.Parallel()
	book, _ := lay(t, NewBook(someOwner(), "ns"), clustersWith(30, 0), 2<<10, true)
	p := book.pages[1]
	p.deleting = true
	book.pages[1] = p
	if kept, _ := lay(t, book, clustersWith(30, 0), 2<<10, false); len(kept.pages[1].names) == 0 {
		t.Error("a slice of an owner that goes too is emptied")
	}
	if more, _ := lay(t, book, clustersWith(31, 0), 100<<10, false); len(more.places()) != 31 || more.places()["cluster-00030"] != 0 {
		t.Errorf("there was room, and the new cluster is in %v", more.places())
	}
	next, _ := lay(t, book, clustersWith(30, 0), 2<<10, true)
	if _, there := next.pages[1]; there {
		t.Error("a slice that is being deleted is still used")
	}
	p.names, p.sites = nil, nil
	alone := &Book{of: book.of, ref: book.ref, pages: map[int]page{0: p}}
	if used, _ := lay(t, alone, clustersWith(1, 0), 2<<10, false); len(used.pages[0].names) != 1 {
		t.Error("a slice of an owner that goes too is not used where nothing new can be made")
	}
}

// TestWhatTheRecordSaysOfACluster: it may have dependents, it has none, or slices alone can say.
func TestWhatTheRecordSaysOfACluster(t *testing.T) {
	t.Parallel()
	here, elsewhere := []Site{{"a", "1"}}, []Site{{"b", ""}}
	for name, c := range map[string]struct {
		Record

		has, open, excludes bool
	}{
		"nothing":                    {},
		"given up":                   {Record: Record{GivenUp: true}, excludes: true},
		"it":                         {Record: Record{Sites: here}, has: true},
		"it, and given up":           {Record: Record{Sites: here, GivenUp: true}, has: true},
		"another one":                {Record: Record{Sites: elsewhere}, excludes: true},
		"slices":                     {Record: Record{Slices: &Slices{}}, open: true},
		"slices, and given up":       {Record: Record{Slices: &Slices{}, GivenUp: true}, open: true, excludes: true},
		"slices, and another one":    {Record: Record{Slices: &Slices{}, Sites: elsewhere}, open: true, excludes: true},
		"slices, and it":             {Record: Record{Slices: &Slices{}, Sites: here}, has: true},
		"nonsense":                   {Record: Record{Nonsense: true}},
		"nonsense, and another one":  {Record: Record{Nonsense: true, Sites: elsewhere}},
		"nonsense in place of pages": {Record: Record{Nonsense: true, Slices: &Slices{}, GivenUp: true}},
	} {
		if has, open, excludes := c.Has("a"), c.IsOpen("a"), c.Excludes("a"); has != c.has || open != c.open || excludes != c.excludes {
			t.Errorf("%s: has it %t, open %t, excludes it %t; want %t, %t, %t", name, has, open, excludes, c.has, c.open, c.excludes)
		}
	}
}

// TestABookIsOfOneOwnerAndKnowsItsSlices by their names, as they are written and in no other way.
func TestABookIsOfOneOwnerAndKnowsItsSlices(t *testing.T) {
	t.Parallel()
	var none *Book
	b := NewBook(someOwner(), "ns")
	if none.IsOf("1") || none.IsOf("") || !b.IsOf("1") || b.IsOf("2") {
		t.Error("a book is taken for that of another owner")
	}
	in := func(namespace, name string) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	if none.Has(in("ns", b.of.name(0))) || !none.IsEmpty() || !b.IsEmpty() {
		t.Error("a book without slices has some")
	}
	b.pages[0], b.pages[12] = page{}, page{foreign: true}
	for name, want := range map[string]bool{
		b.of.name(0): true, b.of.name(12): true, b.of.name(1): false, b.of.prefix: false, b.of.prefix + "x": false, b.of.prefix + "-0": false,
		b.of.prefix + "012": false, "other-0": false,
	} {
		if b.Has(in("other", name)) {
			t.Errorf("the book has slice %q of another namespace", name)
		}
		if b.Has(in("ns", name)) != want {
			t.Errorf("the book has slice %q: %t, want %t", name, !want, want)
		}
	}
	if _, ok := b.of.number("0"); ok {
		t.Error("a number alone is taken for the name of a slice")
	}
	if _, ok := b.of.number(b.of.prefix + "-1"); ok {
		t.Error("a number below zero is taken for that of a slice")
	}
	if said := b.Slices(); b.IsEmpty() || said.Namespace != "ns" || !slices.Equal(said.Numbers, []int{0}) {
		t.Errorf("the book says of its slices %+v, want those alone that are this owner's", said)
	}
}

// TestClustersOfSlicesAreNamedOnce, in order, and by what is known of them.
func TestClustersOfSlicesAreNamedOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ sites, want []Site }{
		"none":                {},
		"order":               {[]Site{{"b", ""}, {"a", ""}}, []Site{{"a", ""}, {"b", ""}}},
		"twice":               {[]Site{{"a", "1"}, {"b", ""}, {"a", "1"}, {"b", ""}}, []Site{{"a", "1"}, {"b", ""}}},
		"two of a name":       {[]Site{{"a", "2"}, {"a", "1"}}, []Site{{"a", "2"}, {"a", "1"}}},
		"known later":         {[]Site{{"a", ""}, {"a", "1"}, {"b", ""}}, []Site{{"a", "1"}, {"b", ""}}},
		"known before":        {[]Site{{"a", "1"}, {"a", ""}}, []Site{{"a", "1"}}},
		"known of others":     {[]Site{{"b", "1"}, {"a", ""}}, []Site{{"a", ""}, {"b", "1"}}},
		"known between twice": {[]Site{{"a", ""}, {"a", "1"}, {"a", ""}}, []Site{{"a", "1"}}},
	} {
		b := NewBook(someOwner(), "ns")
		for i, s := range c.sites {
			b.pages[i] = page{sites: []Site{s}}
		}
		if got := b.Sites(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestABookThatHasLostSomethingIsNotWhole, and one that cannot be read may have anything.
func TestABookThatHasLostSomethingIsNotWhole(t *testing.T) {
	t.Parallel()
	lost := []Site{{"b", "1"}}
	for name, c := range map[string]struct {
		pages          []page
		absent         bool
		lost           []Site
		whole, strange bool
	}{
		"all":           {pages: []page{{}, {}}, whole: true},
		"first strange": {pages: []page{{strange: true}, {}}, strange: true},
		"last strange":  {pages: []page{{}, {strange: true}}, strange: true},
		"foreign":       {pages: []page{{}, {foreign: true}}},
		"absent":        {pages: []page{{}}, absent: true, strange: true},
		"lost":          {pages: []page{{}}, lost: lost},
	} {
		b := NewBook(someOwner(), "ns")
		for i, p := range c.pages {
			b.pages[i] = p
		}
		b.absent, b.lost = c.absent, c.lost
		r := Record{Sites: []Site{{"a", ""}}}.With(b)
		if b.IsWhole() != c.whole || r.Nonsense != c.strange || r.Has("b") != (len(c.lost) > 0) || !r.Has("a") {
			t.Errorf("%s: whole %t, the record is %+v", name, b.IsWhole(), r)
		}
	}
	if r := (Record{Nonsense: true}).With(nil); !r.Nonsense {
		t.Error("without a book, nonsense is none")
	}
}

// TestWhatSlicesHadIsRecalled, of this owner alone.
func TestWhatSlicesHadIsRecalled(t *testing.T) {
	t.Parallel()
	of := func(uid types.UID, sites ...Site) *Book {
		owner := someOwner()
		owner.UID = uid
		b := NewBook(owner, "ns")
		b.pages[0] = page{sites: sites}
		return b
	}
	now := of("1", Site{"a", "1"})
	if got := now.Recalling(of("1", Site{"a", "1"}, Site{"b", "2"})).Sites(); !slices.Equal(got, []Site{{"a", "1"}, {"b", "2"}}) {
		t.Errorf("of what slices had before, %v is known", got)
	}
	for _, before := range []*Book{nil, of("2", Site{"c", "3"})} {
		if got := now.Recalling(before).Sites(); !slices.Equal(got, []Site{{"a", "1"}}) {
			t.Errorf("the clusters of another owner are recalled: %v", got)
		}
	}
	if len(now.lost) > 0 {
		t.Error("the book itself was changed")
	}
}

func TestObjectsWithErrorsAreKeptWhenThereIsNoRoom(t *testing.T) {
	t.Parallel()
	c := clustersWith(1, 5000)[0]
	c.Objects[4999].Error, c.Omitted = "it failed", 7
	l, err := within(c, 4<<10)
	if err != nil || len(l.json) > 4<<10 || int(l.Omitted)+len(l.Objects) != 5007 || l.Objects[0].Error == "" {
		t.Errorf("%d bytes with %d objects and %d omitted, error %v", len(l.json), len(l.Objects), l.Omitted, err)
	}
}

func TestASliceThatIsMissingMeansAnywhere(t *testing.T) {
	t.Parallel()
	b := NewBook(someOwner(), "ns")
	b.absent = true
	if r := (Record{Sites: []Site{{Name: "a"}}}).With(b); !r.Nonsense || len(r.Sites) != 1 {
		t.Errorf("the record is %+v", r)
	}
}

func TestSlicesOfAnEarlierOwnerAreNotTheRecordUnlessTheOwnerSaysSo(t *testing.T) {
	t.Parallel()
	s := &unstructured.Unstructured{Object: map[string]any{
		"owner": map[string]any{"uid": "0"}, "clusters": []any{map[string]any{"name": "a", "mayHaveDependents": true}},
	}}
	if p, _ := pageOf(s, someOwner(), false); len(p.sites) > 0 || p.strange {
		t.Errorf("a slice of another owner says %+v", p)
	}
	if p, _ := pageOf(s, someOwner(), true); len(p.sites) != 1 || p.hash != (hash{}) {
		t.Errorf("a slice that the owner names, and that is to be written in its name, says %+v", p)
	}
}

func TestASliceThatCannotBeReadMayHaveAnything(t *testing.T) {
	t.Parallel()
	s := &unstructured.Unstructured{Object: map[string]any{"owner": map[string]any{"uid": "1"}, "clusters": "nonsense"}}
	if p, _ := pageOf(s, someOwner(), true); !p.strange || p.hash != (hash{}) {
		t.Errorf("it says %+v", p)
	}
}

func TestOnlyClustersThatMayHaveDependentsAreInTheRecord(t *testing.T) {
	t.Parallel()
	clusters := clustersWith(2, 0)
	clusters[1].MayHaveDependents = false
	if got := Names(SitesOf(clusters)); !slices.Equal(got, []mcreconcile.ClusterName{"cluster-00000"}) {
		t.Errorf("these are: %q", got)
	}
}

func FuzzSlicesOfStrangersAreRead(f *testing.F) {
	f.Add([]byte(`{"owner":{"uid":"1"},"clusters":[{"name":"a","mayHaveDependents":true,"identities":["x",""]}]}`))
	f.Add([]byte(`{"owner":{"uid":"1"},"clusters":"nonsense"}`))
	f.Add([]byte(`{"owner":7,"clusters":[{"name":7,"since":"never"}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		s := &unstructured.Unstructured{}
		if json.Unmarshal(content, &s.Object) != nil || s.Object == nil {
			return
		}
		p, _ := pageOf(s, someOwner(), true)
		if p.strange && p.hash != (hash{}) {
			t.Error("a slice that cannot be read counts as written by the controller")
		}
		b := NewBook(someOwner(), "ns")
		b.pages[0] = p
		for name, sites := range ByName(b.Sites()) {
			if len(sites) > MostSites*max(1, len(p.names)) {
				t.Errorf("%d clusters of the name %q", len(sites), name)
			}
		}
	})
}

func BenchmarkLayingOutTenThousandClusters(b *testing.B) {
	book, clusters := NewBook(someOwner(), "ns"), clustersWith(10_000, 5)
	b.ReportAllocs()
	for b.Loop() {
		layout, err := book.Lay(clusters, DefaultBytes, false)
		if err != nil {
			b.Fatal(err)
		}
		for _, leaves := range layout.pages {
			hashOf(leaves)
		}
	}
}

// TestWhatNobodyIsCalledIsNotKept: a name or an identity that no cluster has was written by somebody else, and would fill what is
// stored. That there may be dependents is known nonetheless.
func TestWhatNobodyIsCalledIsNotKept(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100<<10)
	keys := NewKeys("test", "spread")
	for what, c := range map[string]struct {
		name       string
		identities []types.UID
		want       []Site
		nonsense   bool
	}{
		"fit":                   {"a", []types.UID{"1", "2"}, []Site{{"a", "1"}, {"a", "2"}}, false},
		"the longest":           {long[:317], []types.UID{types.UID(long[:64])}, []Site{{mcreconcile.ClusterName(long[:317]), types.UID(long[:64])}}, false},
		"a name too long":       {long[:318], []types.UID{"1"}, nil, true},
		"an identity too long":  {"a", []types.UID{types.UID(long[:65])}, []Site{{Name: "a"}}, false},
		"one of them too long":  {"a", []types.UID{types.UID(long), "", "2"}, []Site{{"a", "2"}}, false},
		"no identity":           {"a", nil, []Site{{Name: "a"}}, false},
		"identities of nothing": {"a", []types.UID{"", ""}, []Site{{Name: "a"}}, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cluster := map[string]any{"name": c.name, "mayHaveDependents": true, "identities": c.identities, "error": long + "e"}
			content, err := json.Marshal(map[string]any{"owner": map[string]any{"uid": "1"}, "clusters": []any{cluster}})
			if err != nil {
				t.Fatal(err)
			}
			s := &unstructured.Unstructured{}
			if err := json.Unmarshal(content, &s.Object); err != nil {
				t.Fatal(err)
			}
			p, said := pageOf(s, someOwner(), false)
			if !slices.Equal(p.sites, c.want) || p.strange != c.nonsense || len(said) > 0 || len(p.names) > 0 == c.nonsense {
				t.Errorf("of a slice there are the clusters %.80q, strange %t, and %d go on to be told of", p.sites, p.strange, len(said))
			}
			owner := &metav1.ObjectMeta{Annotations: map[string]string{
				keys.Clusters: asJSON([]string{c.name}), keys.Identities: asJSON(map[string][]types.UID{c.name: c.identities}),
			}}
			r := keys.Read(&metav1.PartialObjectMetadata{ObjectMeta: *owner})
			if !slices.Equal(r.Sites, c.want) || r.Nonsense != c.nonsense {
				t.Errorf("of an annotation there are the clusters %.80q, nonsense %t", r.Sites, r.Nonsense)
			}
		})
	}
}
