package dependents

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// slicedOwner is the owner of the slices here.
var slicedOwner = mcowner.Reference{UID: "1", Namespace: "ns", Name: "a"}

// sliceStore has slices, which are stored and read in one call.
type sliceStore struct {
	client.Client

	slices []unstructured.Unstructured
}

// Create implements client.Client.
func (s *sliceStore) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	s.slices = append(s.slices, *obj.(*unstructured.Unstructured).DeepCopy()) //nolint:forcetypeassert // so are all slices
	return nil
}

// List implements client.Client.
func (s *sliceStore) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*unstructured.UnstructuredList).Items = s.slices //nolint:forcetypeassert // so are all lists of slices
	return nil
}

// sitesOf returns clusters of these names.
func sitesOf(names ...mcreconcile.ClusterName) (sites []record.Site) {
	for _, name := range names {
		sites = append(sites, record.Site{Name: name, Identity: "1"})
	}
	return sites
}

// layoutOf has a slice for each cluster.
func layoutOf(t *testing.T, b *record.Book, sites []record.Site) record.Layout {
	t.Helper()
	layout, err := b.Lay(withRecord(map[mcreconcile.ClusterName]v1alpha1.Cluster{}, sites), 1, true)
	if err != nil {
		t.Fatal(err)
	}
	return layout
}

// bookOf returns what slices of the clusters have, as it is read after a change.
func bookOf(t *testing.T, change func(slice *unstructured.Unstructured), sites ...record.Site) *record.Book {
	t.Helper()
	store := &sliceStore{}
	empty := record.NewBook(slicedOwner, "ns")
	written, err := empty.Write(t.Context(), store, layoutOf(t, empty, sites), "test")
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&store.slices[0])
	}
	read, _, err := record.Load(t.Context(), store, slicedOwner, record.Slices{Namespace: "ns"})
	if err != nil {
		t.Fatal(err)
	}
	return read.Recalling(written)
}

// slicedAccount returns what keeps the account of an owner that has this in its metadata.
func slicedAccount(there record.Record, held bool, now ...record.Site) *accounting {
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: slicedOwner.UID}}
	testKeys.Write(owner, there, true)
	if !held {
		owner.Finalizers = nil
	}
	return &accounting{
		engine: &engine{keys: testKeys}, o: newOwnerState(mcreconcile.Request{}, "1"), plan: &plan{owner: owner, ref: slicedOwner},
		record: record.Record{Sites: now},
	}
}

// TestWhatOnlyInformsWaits after slices were written. Where there may be dependents does not.
func TestWhatOnlyInformsWaits(t *testing.T) {
	t.Parallel()
	sliced := record.Record{Slices: &record.Slices{Namespace: "ns"}}
	both := record.Record{Sites: sitesOf("one"), Slices: sliced.Slices}
	one := sitesOf("one")
	deleted := func(slice *unstructured.Unstructured) { slice.SetDeletionTimestamp(&metav1.Time{Time: time.Now()}) }
	set := func(value any, fields ...string) func(*unstructured.Unstructured) {
		return func(slice *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(slice.Object, value, fields...)
		}
	}
	for what, c := range map[string]struct {
		there record.Record
		book  *record.Book
		mode  mode
		now   []record.Site
		since time.Duration
		due   bool
	}{
		"nothing new":                           {there: sliced, book: bookOf(t, nil, one...), now: one},
		"nothing new for a while":               {there: sliced, book: bookOf(t, nil, one...), now: one, since: 2 * sliceDelay, due: true},
		"nothing is left in a cluster":          {there: sliced, book: bookOf(t, nil, one...)},
		"a cluster more":                        {there: sliced, book: bookOf(t, nil, one...), now: sitesOf("one", "two"), due: true},
		"an owner with annotations":             {there: both, book: bookOf(t, nil, one...), now: one, due: true},
		"an owner that says nothing of slices":  {book: bookOf(t, nil, one...), now: one, due: true},
		"a slice that lacks what it had":        {there: sliced, book: bookOf(t, set([]any{}, "clusters"), one...), now: one, due: true},
		"a slice that cannot be read":           {there: sliced, book: bookOf(t, set("nonsense", "clusters"), one...), now: one, due: true},
		"a slice of an earlier owner":           {there: sliced, book: bookOf(t, set("0", "owner", "uid"), one...), now: one, due: true},
		"a slice that somebody deletes":         {there: sliced, book: bookOf(t, deleted, one...), now: one, due: true},
		"a slice that is deleted, as its owner": {there: sliced, book: bookOf(t, deleted, one...), mode: finishing, now: one},
	} {
		a := slicedAccount(c.there, true, c.now...)
		a.plan.mode, a.o.known.written = c.mode, time.Now().Add(-c.since)
		if got := a.isSliceDue(c.book); got != c.due {
			t.Errorf("%s is due: %t", what, got)
		}
		if !c.due && (a.later <= 0 || a.lingers != (len(c.now) == 0)) {
			t.Errorf("%s is written in %s, and lingers: %t", what, a.later, a.lingers)
		}
	}
}

// TestAnOwnerReliesOnNoSliceThatMayNotBeThere, and has no cluster less, while slices are written.
func TestAnOwnerReliesOnNoSliceThatMayNotBeThere(t *testing.T) {
	t.Parallel()
	said := func(numbers ...int) *record.Slices { return &record.Slices{Namespace: "ns", Numbers: numbers} }
	one, two := sitesOf("one"), sitesOf("one", "two")
	for what, c := range map[string]struct {
		there record.Record
		book  []record.Site
		now   []record.Site
		// unread says that the record could not be read, and back that it goes to annotations.
		unread, back bool
		want         record.Record
	}{
		"a new owner": {now: one, want: record.Record{Slices: said()}},
		"clusters in an annotation, with no room left": {there: record.Record{Sites: two}, now: two, want: record.Record{Sites: two}},
		"one of these is done with":                    {there: record.Record{Sites: two}, now: one, want: record.Record{Sites: one}},
		"slices that stay":                             {there: record.Record{Slices: said(0, 1)}, book: two, now: two, want: record.Record{Slices: said(0, 1)}},
		"a slice that goes":                            {there: record.Record{Slices: said(0, 1)}, book: two, now: one, want: record.Record{Slices: said(0)}},
		"a slice that the owner does not know":         {there: record.Record{Slices: said(0)}, book: two, now: two, want: record.Record{Slices: said(0)}},
		"a slice more":                                 {there: record.Record{Slices: said(0)}, book: one, now: two, want: record.Record{Slices: said(0)}},
		"a slice that somebody took":                   {there: record.Record{Slices: said(0, 3)}, book: one, now: two, unread: true, want: record.Record{Slices: said(0, 1, 3)}},
		"a slice that somebody took, and nobody needs": {there: record.Record{Slices: said(0, 1)}, book: one, now: one, unread: true, want: record.Record{Slices: said(0, 1)}},
		"an annotation that cannot be read":            {there: record.Record{Sites: one}, now: two, unread: true, want: record.Record{Sites: one, Slices: said(0, 1)}},
		"back to annotations":                          {there: record.Record{Slices: said(0, 1)}, book: two, now: two, back: true, want: record.Record{Sites: two, Slices: said()}},
	} {
		for _, held := range []bool{true, false} {
			a, book, layout := slicedAccount(c.there, held, c.now...), bookOf(t, nil, c.book...), record.Layout{}
			if !c.back {
				layout = layoutOf(t, book, c.now)
			}
			a.record.Nonsense = c.unread
			got := a.between(book, layout, !c.back)
			got.Nonsense = false // that is not stored
			if c.want.Slices != nil && got.Slices != nil && len(got.Slices.Numbers) == 0 {
				got.Slices.Numbers = c.want.Slices.Numbers
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s, with the finalizer: %t (-want, +got):\n%s", what, held, diff)
			}
		}
	}
}

// TestSlicesThatWereWrittenMeanwhileCount: what was read before that is older.
func TestSlicesThatWereWrittenMeanwhileCount(t *testing.T) {
	t.Parallel()
	o := newOwnerState(mcreconcile.Request{}, "1")
	before, now := bookOf(t, nil, sitesOf("one")...), bookOf(t, nil, sitesOf("one", "two")...)
	o.shelve(nil, before, nil, 0, nil)
	(&accounting{o: o}).noteBook(now, false)
	o.shelve(nil, before, nil, 0, nil)
	if o.known.book != now {
		t.Errorf("slices are known to have %v", o.known.book.Sites())
	}
}

// TestWhatSlicesSaidBeforeTheProgramBeganIsWrittenOver, also when nothing else happens.
func TestWhatSlicesSaidBeforeTheProgramBeganIsWrittenOver(t *testing.T) {
	t.Parallel()
	book := bookOf(t, nil, sitesOf("one")...)
	a := slicedAccount(record.Record{}, true)
	a.o.shelve(nil, book, []v1alpha1.Cluster{{Name: "one"}}, 0, nil)
	a.noteBook(book, false)
	if a.later <= 0 || a.later > sliceStart {
		t.Errorf("it is written in %s", a.later)
	}
	a.o.known.age(&report{Result: Result{Cluster: "one"}})
	a.o.shelve(book, book, []v1alpha1.Cluster{{Name: "one"}}, 1, nil) // what others have made of them since is no news
	a.later = 0
	if a.noteBook(book, false); a.later != 0 {
		t.Errorf("after all was looked at, slices are written in %s", a.later)
	}
}

// TestASliceInAnotherNamespaceIsNotTheOwners, though it has the name of one that is, and names the owner.
func TestASliceInAnotherNamespaceIsNotTheOwners(t *testing.T) {
	t.Parallel()
	var slice metav1.PartialObjectMetadata
	book := bookOf(t, func(written *unstructured.Unstructured) {
		slice.Name, slice.Labels, slice.Annotations = written.GetName(), written.GetLabels(), written.GetAnnotations()
	}, sitesOf("a")...)
	s := sliceWatch{&engine{ledger: newLedger(), works: &feed[work]{}}}
	req, _ := s.ownerOf("member", &slice)
	o := s.ledger.of(req, slicedOwner.UID)
	for namespace, ours := range map[string]bool{"ns": true, "other": false} {
		slice.Namespace, slice.ResourceVersion = namespace, "9"
		for event, happens := range map[string]func(){
			"changed": func() { s.changed("member", &slice) }, "deleted": func() { s.doubted("member", &slice) },
		} {
			o.known = knownSlices{book: book}
			if happens(); o.known.doubts > 0 != ours {
				t.Errorf("slices are read again as one in the namespace %s is %s: %t", namespace, event, !ours)
			}
		}
		o.writingSlices()
		s.changed("member", &slice)
		o.known.doubts = 0
		if (&accounting{engine: s.engine, o: o}).noteBook(book, false); o.known.doubts > 0 != ours {
			t.Errorf("slices are read again as one in the namespace %s was changed while they were written: %t", namespace, !ours)
		}
	}
}

// TestSlicesOfOthersAreLeft, also if they name an owner of this controller.
func TestSlicesOfOthersAreLeft(t *testing.T) {
	t.Parallel()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[work]())
	defer queue.ShutDown()
	s := sliceWatch{&engine{cfg: config{fleet: "fleet", name: "controller"}, works: &feed[work]{}}}
	if err := s.works.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fleet, controller, owner string
		ours                     bool
	}{
		{"fleet", "controller", "a", true}, {"other", "controller", "a", false}, {"fleet", "other", "a", false}, {"fleet", "controller", "", false},
	} {
		slice := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{v1alpha1.FleetLabel: c.fleet, v1alpha1.ControllerLabel: c.controller},
			Annotations: map[string]string{v1alpha1.OwnerNameAnnotation: c.owner, v1alpha1.OwnerNamespaceAnnotation: "ns"},
		}}
		s.in("member", nil).Create(t.Context(), event.TypedCreateEvent[client.Object]{Object: slice}, nil)
		if ours := queue.Len() > 0; ours != c.ours {
			t.Errorf("a slice of %+v is ours: %t", c, ours)
		}
		for queue.Len() > 0 {
			w, _ := queue.Get()
			queue.Done(w)
			if w.task != discard || w.in != "member" || w.owner.String() != "cluster://member/ns/a" {
				t.Errorf("to be done is %+v", w)
			}
		}
	}
}

// cached is a cluster whose cache has all owners, and whose API server has none to ask.
type cached struct{ cluster.Cluster }

// GetCache implements cluster.Cluster.
func (cached) GetCache() cache.Cache { return cacheOfAll{} }

// GetAPIReader implements cluster.Cluster.
func (cached) GetAPIReader() client.Reader { return nil }

type cacheOfAll struct{ cache.Cache }

// Get implements cache.Cache.
func (cacheOfAll) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}

// misled is a cluster whose cache has no owner, and of whose API server a gateway says that it has no such page.
type misled struct {
	cluster.Cluster

	serves bool // the kind of owners
}

// GetCache implements cluster.Cluster.
func (misled) GetCache() cache.Cache { return emptyCache{} }

// GetAPIReader implements cluster.Cluster.
func (misled) GetAPIReader() client.Reader { return gateway{} }

// GetRESTMapper implements cluster.Cluster.
func (m misled) GetRESTMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	if m.serves {
		mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	}
	return mapper
}

type emptyCache struct{ cache.Cache }

// Get implements cache.Cache.
func (emptyCache) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(configMaps, key.Name)
}

// TestSlicesAreLookedAtAgainAfterAPage: it does not say that their owner is gone. Where the kind of owners is not served, nobody can.
func TestSlicesAreLookedAtAgainAfterAPage(t *testing.T) {
	t.Parallel()
	for name, serves := range map[string]bool{"the kind of owners is served": true, "it is not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccounting(t, config{slices: &Slices{}, newOwner: func() client.Object { return &corev1.ConfigMap{} }}, &plan{})
			a.engine.owner = remote.Untyped(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
			err := a.engine.discard(t.Context(), remote.Session{Cluster: misled{serves: serves}}, requestOf("", a.o.plan.owner))
			if again := err != nil; again != serves {
				t.Errorf("they are looked at again: %t, %v", again, err)
			}
		})
	}
}

// TestSlicesOfAnOwnerThatIsThereCostNoRequest, as they do for all owners when the program begins.
func TestSlicesOfAnOwnerThatIsThereCostNoRequest(t *testing.T) {
	t.Parallel()
	a := newAccounting(t, config{
		slices: &Slices{}, ownersIn: mcowner.Clusters{Local: true}, newOwner: func() client.Object { return &corev1.ConfigMap{} },
	}, &plan{})
	if err := a.engine.discard(t.Context(), remote.Session{Cluster: cached{}}, mcreconcile.Request{}); err != nil {
		t.Error(err)
	}
}
