package dependents

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

var testKeys = record.NewKeys("payments", "copier")

// TestWhatIsNotWantedIsForgotten: dependents whose names change all the time, and that go by themselves, leave nothing behind.
func TestWhatIsNotWantedIsForgotten(t *testing.T) {
	t.Parallel()
	o := newOwnerState(mcreconcile.Request{}, "1")
	key := func(cluster mcreconcile.ClusterName, name string) dependentKey {
		return dependentKey{cluster: cluster, name: types.NamespacedName{Name: name}}
	}
	kept, dropped, elsewhere := key("one", "wanted"), key("one", "of-yesterday"), key("two", "of-yesterday")
	for _, k := range []dependentKey{kept, dropped, elsewhere} {
		o.remember(k, fingerprint{uid: "1"})
	}
	o.keep("one", map[dependentKey]bool{kept: true})
	for k, want := range map[dependentKey]bool{kept: true, dropped: false, elsewhere: true} {
		if f, is := o.was(k); is != want || is && f.uid != "1" {
			t.Errorf("%v is remembered: %t, want %t", k, is, want)
		}
	}
	o.forgetObject(kept)
	if _, is := o.was(kept); is {
		t.Error("a dependent that was removed is remembered")
	}
}

// TestAPlanKnowsWhatWasWrittenLast: the cache may be older.
func TestAPlanKnowsWhatWasWrittenLast(t *testing.T) {
	t.Parallel()
	owner := func(version string, to ...string) *plan {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: version}}
		var r record.Record
		for _, name := range to {
			r.Sites = append(r.Sites, record.Site{Name: mcreconcile.ClusterName(name)})
		}
		testKeys.Write(cm, r, true)
		return &plan{owner: cm, ref: mcowner.Reference{UID: "1"}}
	}
	o := newOwnerState(mcreconcile.Request{}, "1")
	if _, ok := o.in("a"); ok || o.concerns("a") {
		t.Error("there is something to do without a plan")
	}
	o.replan(owner("10", "a"), testKeys)
	o.replan(owner("9"), testKeys)
	if v, ok := o.in("a"); !ok || v.owner.GetResourceVersion() != "10" || v.seq != 2 || len(v.sites) != 1 {
		t.Errorf("the plan is of version %s, the %dth, with the sites %v", v.owner.GetResourceVersion(), v.seq, v.sites)
	}
}

// TestAnOwnerWaitsSinceItAskedForSomethingElse, whatever others write to it after that.
func TestAnOwnerWaitsSinceItAskedForSomethingElse(t *testing.T) {
	t.Parallel()
	o := newOwnerState(mcreconcile.Request{}, "1")
	asking := func(version, value string) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: version}, Data: map[string]string{"value": value}}
		o.replan(&plan{owner: cm, ref: mcowner.Reference{UID: "1"}}, testKeys)
	}
	asking("1", "one")
	hourAgo := time.Now().Add(-time.Hour)
	o.plan.since = hourAgo
	if asking("2", "one"); !o.plan.since.Equal(hourAgo) {
		t.Errorf("it waits since %s, although it asks for the same", o.plan.since)
	}
	if asking("3", "two"); time.Since(o.plan.since) > time.Minute {
		t.Errorf("it waits since %s, although it asks for something else", o.plan.since)
	}
}

// apiServer has one owner, and stores it as an API server does. The cluster with dependents is its other half.
type apiServer struct {
	cluster.Cluster
	client.Client
	t         *testing.T
	site      record.Site
	hasStatus bool       // its kind of owners has
	defined   bool       // it is a CustomResourceDefinition's
	away      bool       // a gateway answers what is asked of kinds
	mu        sync.Mutex // guards what follows
	owner     *corev1.ConfigMap
	created   bool // there may be dependents
	meant     int  // how often it was
}

// GetClient implements cluster.Cluster.
func (s *apiServer) GetClient() client.Client { return s }

// GetAPIReader implements cluster.Cluster.
func (s *apiServer) GetAPIReader() client.Reader { return s }

// Get implements client.Client.
func (s *apiServer) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	s.read(false).DeepCopyInto(obj.(*corev1.ConfigMap)) //nolint:forcetypeassert // so are all owners here
	return nil
}

// Status implements client.Client: ConfigMaps have none.
func (s *apiServer) Status() client.SubResourceWriter { return noStatus{defined: s.defined} }

type noStatus struct {
	client.SubResourceWriter

	defined bool
}

// Patch implements client.SubResourceWriter.
func (s noStatus) Patch(_ context.Context, owner client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	if s.defined {
		return apierrors.NewNotFound(configMaps, owner.GetName())
	}
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", configMaps, owner.GetName(), "404 page not found", 0, true)
}

// GetConfig implements cluster.Cluster.
func (*apiServer) GetConfig() *rest.Config { return &rest.Config{Host: "https://127.0.0.1:1"} }

// GetHTTPClient implements cluster.Cluster.
func (s *apiServer) GetHTTPClient() *http.Client { return &http.Client{Transport: s} }

// RoundTrip implements http.RoundTripper: it says which resources there are of the core group.
func (s *apiServer) RoundTrip(req *http.Request) (*http.Response, error) {
	list := metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap"}}}
	if s.hasStatus {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: "configmaps/status", Kind: "ConfigMap"})
	}
	answer := httptest.NewRecorder()
	if req.URL.Path != "/api/v1" || s.away {
		http.NotFound(answer, req)
		return answer.Result(), nil
	}
	answer.Header().Set("Content-Type", "application/json")
	err := json.NewEncoder(answer).Encode(list)
	return answer.Result(), err
}

// Patch implements client.Client.
func (s *apiServer) Patch(_ context.Context, obj client.Object, _ client.Patch, _ ...client.PatchOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj.GetResourceVersion() != s.owner.ResourceVersion || obj.GetUID() != s.owner.UID {
		return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, s.owner.Name, nil)
	}
	s.bumpLocked(obj.(*corev1.ConfigMap)) //nolint:forcetypeassert // so are all owners here
	obj.SetResourceVersion(s.owner.ResourceVersion)
	return nil
}

// bumpLocked stores an owner. Its record has the cluster as long as something may be there.
func (s *apiServer) bumpLocked(obj *corev1.ConfigMap) {
	version, _ := strconv.Atoi(s.owner.ResourceVersion)
	s.owner = obj.DeepCopy()
	s.owner.ResourceVersion = strconv.Itoa(version + 1)
	if s.created && !s.notedLocked() {
		s.t.Error("the record was stored without a cluster in which there may be dependents")
	}
}

func (s *apiServer) notedLocked() bool {
	return testKeys.Holds(s.owner) && slices.Contains(testKeys.Read(s.owner).Sites, s.site)
}

func (s *apiServer) create() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.created = true; !s.notedLocked() {
		s.t.Error("something was created in a cluster that is not in the record")
	}
	s.meant++
}

func (s *apiServer) empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.created = false
}

// read returns the owner as it is; touched by somebody, if so desired.
func (s *apiServer) read(touch bool) *corev1.ConfigMap {
	s.mu.Lock()
	defer s.mu.Unlock()
	if touch {
		s.bumpLocked(s.owner)
	}
	return s.owner.DeepCopy()
}

// yield lets the others go on for a while.
func yield() {
	for range rand.N(10) {
		runtime.Gosched()
	}
}

// TestTheRecordHasWhatMayBeCreated, whatever plans, placements and accounts do at the same time.
func TestTheRecordHasWhatMayBeCreated(t *testing.T) {
	t.Parallel()
	site := record.Site{Name: "member", Identity: "1"}
	s := &apiServer{t: t, site: site, owner: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", ResourceVersion: "1"}}}
	c := &engine{keys: testKeys, ledger: newLedger(), access: &remote.Access{Timeout: time.Minute}}
	req := mcreconcile.Request{}
	o := c.ledger.of(req, "1")
	const rounds = 3000
	planOnce := func(i int) {
		yield()
		p := &plan{owner: s.read(i%7 == 0), ref: mcowner.Reference{UID: "1"}}
		if i%2 == 0 {
			p.targets = []mcreconcile.ClusterName{site.Name}
		}
		c.ledger.replan(o, p, testKeys)
	}
	placeOnce := func() {
		v, _ := o.begin(site.Name)
		yield()
		var r report
		switch {
		case v.targeted && site.IsNoted(v.sites):
			yield()
			s.create()
		case v.targeted:
			r.again = true
		case len(v.sites) > 0:
			s.empty()
			r.drop = v.sites
		}
		o.report(site.Name, v, r)
	}
	accountOnce := func() {
		a := &accounting{engine: c, o: o, home: remote.Session{Cluster: s}, again: map[mcreconcile.ClusterName]bool{}, asked: map[mcreconcile.ClusterName]bool{}}
		if !a.open() {
			return
		}
		yield()
		if len(a.plan.targets) > 0 && !site.IsNoted(a.record.Sites) {
			a.record.Sites = append(a.record.Sites, site)
		}
		if err := a.keep(t.Context(), len(a.record.Sites) > 0); err != nil && !apierrors.IsConflict(err) {
			t.Error(err)
		}
	}
	planOnce(0)
	var all sync.WaitGroup
	for _, do := range []func(int){planOnce, func(int) { placeOnce() }, func(int) { accountOnce() }} {
		all.Go(func() {
			for i := range rounds {
				do(i)
			}
		})
	}
	all.Wait()
	planOnce(0)
	for range 3 {
		accountOnce()
		placeOnce()
	}
	if s.meant == 0 || !s.created {
		t.Errorf("it was created %d times, and at last: %t", s.meant, s.created)
	}
}

// TestAClusterThatWasLeftIsNotForgottenBeforeThatIsStored: somebody writes to the owner meanwhile, and an event on what was there
// has the cluster looked at once more. The owner would wait for it for ever.
func TestAClusterThatWasLeftIsNotForgottenBeforeThatIsStored(t *testing.T) {
	t.Parallel()
	site := record.Site{Name: "member", Identity: "1"}
	s := &apiServer{t: t, site: site, owner: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", ResourceVersion: "1"}}}
	testKeys.Write(s.owner, record.Record{Sites: []record.Site{site}}, true)
	c := &engine{
		keys: testKeys, ledger: newLedger(), access: &remote.Access{Timeout: time.Minute}, works: &feed[work]{},
	}
	o := c.ledger.of(mcreconcile.Request{}, "1")
	planOnce := func() {
		c.ledger.replan(o, &plan{
			owner: s.read(false), ref: mcowner.Reference{UID: "1"}, mode: retiring, propagation: metav1.DeletePropagationBackground,
		}, testKeys)
	}
	placeOnce := func() {
		t.Helper()
		at := remote.Session{ID: mcowner.ClusterID{Name: site.Name, UID: site.Identity}, Cluster: s}
		if _, err := c.place(t.Context(), o, work{owner: o.req, in: site.Name, task: place}, at); err != nil {
			t.Fatal(err)
		}
	}
	accountOnce := func() error {
		a := &accounting{engine: c, o: o, home: remote.Session{Cluster: s}}
		if !a.open() {
			t.Fatal("there is nothing to account for")
		}
		return a.keep(t.Context(), len(a.record.Sites) > 0)
	}
	planOnce()
	placeOnce()
	s.read(true)
	if err := accountOnce(); !apierrors.IsConflict(err) {
		t.Fatalf("the record was stored: %v, want a conflict", err)
	}
	planOnce()
	placeOnce()
	if err := accountOnce(); err != nil || testKeys.Holds(s.owner) {
		t.Errorf("the owner waits for a cluster in which nothing is left: %t, %v", testKeys.Holds(s.owner), err)
	}
}

// TestAnAccountOfTheOwnerBefore changes nothing about the one that has the name now.
func TestAnAccountOfTheOwnerBefore(t *testing.T) {
	t.Parallel()
	site := record.Site{Name: "member", Identity: "1"}
	before := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", ResourceVersion: "1"}}
	testKeys.Write(before, record.Record{Sites: []record.Site{site}}, true)
	s := &apiServer{t: t, site: site, owner: before}
	c := &engine{keys: testKeys, ledger: newLedger(), access: &remote.Access{Timeout: time.Minute}}
	o := c.ledger.of(mcreconcile.Request{}, "1")
	c.ledger.replan(o, &plan{owner: before, ref: mcowner.Reference{UID: "1"}}, testKeys)
	a := &accounting{engine: c, o: o, home: remote.Session{Cluster: s}, again: map[mcreconcile.ClusterName]bool{}, asked: map[mcreconcile.ClusterName]bool{}}
	if !a.open() {
		t.Fatal("there is nothing to account for")
	}
	c.ledger.forget(o.req)
	now := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "2", ResourceVersion: "5"}}
	another := c.ledger.of(o.req, now.UID)
	c.ledger.replan(another, &plan{owner: now, ref: mcowner.Reference{UID: "2"}, targets: []mcreconcile.ClusterName{site.Name}}, testKeys)
	if err := a.keep(t.Context(), true); err != nil {
		t.Error(err)
	}
	if v, _ := another.in(site.Name); len(v.sites) > 0 {
		t.Errorf("the clusters %v of the owner before count for the one now, which has no record", v.sites)
	}
	c.ledger.finished(o, a.plan)
	if c.ledger.get(o.req) != another {
		t.Error("the owner was forgotten with the one before")
	}
}

// TestAnOwnerIsForgottenOnceNothingIsLeft, unless it is to have dependents again.
func TestAnOwnerIsForgottenOnceNothingIsLeft(t *testing.T) {
	t.Parallel()
	l := newLedger()
	o := l.of(mcreconcile.Request{}, "1")
	asking := func(m mode) *plan {
		p := &plan{owner: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1"}}, ref: mcowner.Reference{UID: "1"}, mode: m}
		l.replan(o, p, testKeys)
		return p
	}
	letGo := asking(retiring)
	again := asking(serving)
	l.finished(o, letGo)
	if l.get(o.req) != o {
		t.Error("an owner was forgotten that is to have dependents again")
	}
	l.finished(o, again)
	if l.get(o.req) != nil {
		t.Error("an owner that has nothing left is remembered")
	}
	asking(serving)
	if l.get(o.req) != o || !o.hasOldTargetsLocked() {
		t.Error("the state was dropped while targets were found, and they are not found anew")
	}
}

// TestWhatAnOwnerNeeds are the clusters of its record and its targets, and the kinds of its record and those that are asked for.
func TestWhatAnOwnerNeeds(t *testing.T) {
	t.Parallel()
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	testKeys.Write(owner, record.Record{Sites: []record.Site{{Name: "noted"}, {Name: "other"}}}, true)
	o := newOwnerState(mcreconcile.Request{}, "1")
	o.replan(&plan{owner: owner, ref: mcowner.Reference{UID: "1"}, targets: []mcreconcile.ClusterName{"target"}}, testKeys)
	v, _ := o.begin("noted")
	if len(v.sites) != 1 || v.sites[0].Name != "noted" {
		t.Errorf("of the cluster %v are noted", v.sites)
	}
	o.report("noted", v, report{kinds: []schema.GroupVersionKind{pod}})
	for name, want := range map[mcreconcile.ClusterName][]schema.GroupVersionKind{"noted": {pod}, "other": {{}}, "target": {{}}} {
		if got := o.needs(name); !slices.Equal(got, want) || !slices.Contains(o.clusters(), name) {
			t.Errorf("in %s it needs %v, want %v", name, got, want)
		}
	}
	for name, want := range map[mcreconcile.ClusterName]bool{"noted": true, "target": true, "else": false} {
		if o.concerns(name) != want {
			t.Errorf("it concerns %s: %t", name, !want)
		}
	}
}

// TestAKindIsWaitedForAnewOnceItIsWantedAgain: its CustomResourceDefinition may be another one then.
func TestAKindIsWaitedForAnewOnceItIsWantedAgain(t *testing.T) {
	t.Parallel()
	o, key := newOwnerState(mcreconcile.Request{}, "1"), dependentKey{cluster: "a", kind: schema.GroupKind{Kind: "Gadget"}}
	first := o.unservedFor(key)
	o.keep("a", map[dependentKey]bool{key: true})
	if again := o.unservedFor(key); again <= first {
		t.Errorf("while it is wanted, it is waited for since %s, then since %s", first, again)
	}
	if o.keep("a", nil); len(o.parts["a"].unserved) > 0 {
		t.Error("it is still waited for, although it is not wanted")
	}
}

// TestWhatStaysUntilItIsStored: that something was left, though a later run leaves nothing. What is a target is not dropped.
func TestWhatStaysUntilItIsStored(t *testing.T) {
	t.Parallel()
	site := record.Site{Name: "member", Identity: "1"}
	o := newOwnerState(mcreconcile.Request{}, "1")
	o.replan(&plan{owner: &corev1.ConfigMap{}, ref: mcowner.Reference{UID: "1"}}, testKeys)
	left, _ := o.begin(site.Name)
	o.report(site.Name, left, report{drop: []record.Site{site}, givenUp: true})
	o.report(site.Name, left, report{})
	if p := o.parts[site.Name]; !p.givenUp || len(p.drop) != 1 {
		t.Errorf("after a run that has found nothing it is %+v", p)
	}
	o.replan(&plan{owner: &corev1.ConfigMap{}, ref: mcowner.Reference{UID: "1"}, targets: []mcreconcile.ClusterName{site.Name}}, testKeys)
	target, _ := o.in(site.Name)
	o.report(site.Name, target, report{})
	if p := o.parts[site.Name]; len(p.drop) > 0 {
		t.Errorf("a target is to be dropped: %+v", p)
	}
	o.report(site.Name, target, report{})
	o.did(EventCreated, site.Name, "ConfigMap a")
	if !o.report(site.Name, target, report{}) {
		t.Error("an event that waits is no news")
	}
}

// TestConflictsInARowAreCounted, and what was told last is told again after all was well.
func TestConflictsInARowAreCounted(t *testing.T) {
	t.Parallel()
	o := newOwnerState(mcreconcile.Request{}, "1")
	for i, want := range []int{1, 2, 0, 1} {
		if got := o.outdated(want > 0); got != want {
			t.Errorf("after write %d there are %d conflicts in a row, want %d", i, got, want)
		}
	}
	for i, step := range []struct {
		message string
		news    bool
	}{{"", false}, {"wrong", true}, {"wrong", false}, {"", true}, {"", false}, {"wrong", true}} {
		if news := o.isNews(topic{}, step.message); news != step.news {
			t.Errorf("message %d is news: %t", i, news)
		}
	}
	if o.isNews(topic{}, ""); len(o.told) > 0 {
		t.Errorf("%d things are remembered, and all is well", len(o.told))
	}
}

// TestWhatIsToldOfAClusterIsForgottenOnceItConcernsTheOwnerNoMore, and only that: clusters may have any name.
func TestWhatIsToldOfAClusterIsForgottenOnceItConcernsTheOwnerNoMore(t *testing.T) {
	t.Parallel()
	o := newOwnerState(mcreconcile.Request{}, "1")
	conflict := &ConflictError{Object: "ConfigMap a"}
	told := func() int {
		o.tellStatus(errNoStatus)
		o.tellUnclear(errPolicy)
		for _, name := range []mcreconcile.ClusterName{"status", "policy", mcreconcile.LocalCluster} {
			o.tell(name, conflict)
			o.tellReplaced(name, "2", &ReplacedError{Cluster: name})
		}
		defer func() { o.events = nil }()
		return len(o.events)
	}
	all := []Result{{Cluster: "status"}, {Cluster: "policy"}, {Cluster: mcreconcile.LocalCluster}}
	if n := told(); n != 8 {
		t.Errorf("%d events, want one of each", n)
	}
	if o.stopTelling(all); told() != 0 {
		t.Error("what goes on is told again")
	}
	o.tell("status", nil)
	if n := told(); n != 1 {
		t.Errorf("%d events after all was well in a cluster, want one", n)
	}
	o.stopTelling(all[1:])
	if n := told(); n != 2 {
		t.Errorf("%d events after the owner had nothing to do with a cluster, want its two", n)
	}
	o.tellUnclear(nil)
	if o.stopTelling(nil); len(o.told) != 1 {
		t.Errorf("%v is remembered, and concerns no cluster but for the status", o.told)
	}
}

func TestEventsWaitInBounds(t *testing.T) {
	t.Parallel()
	o := newOwnerState(mcreconcile.Request{}, "1")
	for range 2 * mostEvents {
		o.did(EventCreated, "member", strings.Repeat("x", 10))
	}
	if len(o.events) != mostEvents {
		t.Errorf("%d events wait", len(o.events))
	}
}

// TestWhatIsGoneStaysGoneUntilThatIsNoted: a later run that puts nothing there does not bring it back, and one that may does.
func TestWhatIsGoneStaysGoneUntilThatIsNoted(t *testing.T) {
	t.Parallel()
	site := record.Site{Name: "member", Identity: "1"}
	o := newOwnerState(mcreconcile.Request{}, "1")
	o.replan(&plan{owner: &corev1.ConfigMap{}, ref: mcowner.Reference{UID: "1"}}, testKeys)
	view, _ := o.begin(site.Name)
	o.report(site.Name, view, report{drop: []record.Site{site}})
	view, _ = o.begin(site.Name)
	o.report(site.Name, view, report{Result: Result{Err: errGoing}})
	if view, _ = o.in(site.Name); !slices.Equal(view.dropped, []record.Site{site}) {
		t.Errorf("after a run that has found nothing, %v are gone", view.dropped)
	}
	next := record.Site{Name: site.Name, Identity: "2"}
	o.report(site.Name, view, report{drop: []record.Site{next}})
	for range 2 { // the second run says what it was told
		if view, _ = o.in(site.Name); !slices.Equal(view.dropped, []record.Site{site, next}) {
			t.Errorf("after a run that has left the next cluster of the name, %v are gone", view.dropped)
		}
		o.report(site.Name, view, report{drop: view.dropped})
	}
	view.sites = []record.Site{site}
	o.report(site.Name, view, report{drop: []record.Site{next}})
	if view, _ = o.in(site.Name); !slices.Equal(view.dropped, []record.Site{next}) {
		t.Errorf("after a run that could not leave the first cluster again, %v are gone", view.dropped)
	}
	stray := site
	o.report(site.Name, view, report{stray: &stray})
	if view, _ = o.in(site.Name); len(view.dropped) > 0 {
		t.Errorf("with a stray there, %v are gone", view.dropped)
	}
	o.report(site.Name, view, report{drop: []record.Site{site}})
	o.replan(&plan{owner: &corev1.ConfigMap{}, ref: mcowner.Reference{UID: "1"}, targets: []mcreconcile.ClusterName{site.Name}}, testKeys)
	if view, _ = o.begin(site.Name); len(view.dropped) > 0 {
		t.Errorf("a run that may put something there believes that %v are gone", view.dropped)
	}
	if view, _ = o.in(site.Name); len(view.dropped) > 0 {
		t.Errorf("after that, %v are gone", view.dropped)
	}
}

// TestNothingIsToStayOfAnOwnerThatHasNothing, whatever it says, nor of one that nobody has read.
func TestNothingIsToStayOfAnOwnerThatHasNothing(t *testing.T) {
	t.Parallel()
	said := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{DeletionPolicyAnnotation: "Orphan"}}}
	for name, tc := range map[string]struct {
		read *unplanned
		want bool
	}{
		"nobody has read it":  {},
		"it has nothing":      {read: &unplanned{owner: said}},
		"it may have had any": {read: &unplanned{owner: said, left: true}, want: true},
	} {
		o := newOwnerState(mcreconcile.Request{}, "1")
		if tc.read != nil {
			o.isRead(*tc.read)
		}
		if _, stay := o.leavesBehind(&deletions{}); stay != tc.want {
			t.Errorf("%s: something is to stay: %t, want %t", name, stay, tc.want)
		}
	}
}

// TestWhatThePlanOfAnOwnerKeepsIsToStay when the owner is gone: what its policy keeps, and what cannot be known, as the policy makes no sense.
func TestWhatThePlanOfAnOwnerKeepsIsToStay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		plan plan
		want bool
	}{
		"it is served":            {plan: plan{}},
		"it goes":                 {plan: plan{mode: finishing, propagation: metav1.DeletePropagationBackground}},
		"it orphans":              {plan: plan{mode: finishing, propagation: metav1.DeletePropagationOrphan}, want: true},
		"its policy keeps":        {plan: plan{policy: Policy{Keep: true}}, want: true},
		"its policy has no sense": {plan: plan{mode: finishing, unclear: errUnsettled}, want: true},
	} {
		o := newOwnerState(mcreconcile.Request{}, "1")
		p := tc.plan
		p.owner = &corev1.ConfigMap{}
		o.replan(&p, testKeys)
		o.record.Sites = []record.Site{{Name: "a"}}
		if _, stay := o.leavesBehind(&deletions{}); stay != tc.want {
			t.Errorf("%s: something is to stay: %t, want %t", name, stay, tc.want)
		}
	}
}

// TestAnOwnerIsRestoredIfNothingWasWrittenMeanwhile: what was written before the API server was asked, it would have. Where dependents
// may be that the restored record does not have is noted again.
func TestAnOwnerIsRestoredIfNothingWasWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	owner := func(version string, in ...mcreconcile.ClusterName) *corev1.ConfigMap {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: version}}
		r := record.Record{Kinds: []schema.GroupVersionKind{{Version: version, Kind: "Pod"}}}
		for _, name := range in {
			r.Sites = append(r.Sites, record.Site{Name: name, Identity: "1"})
		}
		testKeys.Write(cm, r, true)
		return cm
	}
	known, restored, written := owner("v20", "kept", "new"), owner("v10", "kept"), owner("v21", "kept", "new")
	known.ResourceVersion, restored.ResourceVersion, written.ResourceVersion = "20", "10", "21"
	for name, tc := range map[string]struct {
		meanwhile client.Object
		want      client.Object
		lost      []mcreconcile.ClusterName
	}{
		"nothing was": {want: restored, lost: []mcreconcile.ClusterName{"kept", "new"}},
		"it was":      {meanwhile: written, want: written},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOwnerState(mcreconcile.Request{}, "1")
			o.replan(&plan{owner: known, ref: mcowner.Reference{UID: "1"}}, testKeys)
			before := o.owner()
			if tc.meanwhile != nil {
				o.replan(&plan{owner: tc.meanwhile, ref: mcowner.Reference{UID: "1"}}, testKeys)
			}
			o.restore(before, restored, testKeys)
			o.replan(&plan{owner: restored, ref: mcowner.Reference{UID: "1"}}, testKeys)
			if o.owner() != tc.want {
				t.Errorf("it is known in version %s", o.owner().GetResourceVersion())
			}
			lost := make([]mcreconcile.ClusterName, 0, len(tc.lost))
			for _, r := range o.lost {
				lost = append(lost, record.Names(r.Sites)...)
				if len(r.Kinds) != 1 || r.Kinds[0].Version != "v20" {
					t.Errorf("the kinds %v are to be noted", r.Kinds)
				}
			}
			if !slices.Equal(lost, tc.lost) {
				t.Errorf("there may be dependents in %v, want %v", lost, tc.lost)
			}
		})
	}
}

// TestWhatOthersWriteToAStatusLeavesNothingPending: two controllers of an owner would answer each other's statuses for ever.
func TestWhatOthersWriteToAStatusLeavesNothingPending(t *testing.T) {
	t.Parallel()
	owner := func(version, status string, replicas int32) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: version, Generation: int64(replicas)}, Spec: appsv1.DeploymentSpec{Replicas: &replicas},
			Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{Type: "Ours", Message: status}}},
		}
	}
	for name, tc := range map[string]struct {
		now     *appsv1.Deployment
		policy  Policy
		pending bool
	}{
		"its status is another": {now: owner("2", "b", 1)},
		"its spec is another":   {now: owner("2", "a", 2), pending: true},
		"its policy is another": {now: owner("2", "b", 1), policy: Policy{Suspend: true}, pending: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOwnerState(mcreconcile.Request{}, "1")
			plans := func(owner client.Object, policy Policy) {
				p := &plan{owner: owner, ref: mcowner.Reference{UID: "1"}, targets: []mcreconcile.ClusterName{"east"}, policy: policy}
				o.replan(p, testKeys)
			}
			plans(owner("1", "a", 1), Policy{})
			o.report("east", view{plan: o.plan, targeted: true}, report{})
			plans(tc.now, tc.policy)
			if is := o.plan.asked > o.parts["east"].seq; is != tc.pending {
				t.Errorf("what was done is pending: %t, want %t", is, tc.pending)
			}
		})
	}
}

// TestTheLastStateOfAnOwnerThatCannotBePlanned is what is written to: the plan goes on with what it is of, and what was done for that is pending.
func TestTheLastStateOfAnOwnerThatCannotBePlanned(t *testing.T) {
	t.Parallel()
	owner := func(version, value string, in ...mcreconcile.ClusterName) *corev1.ConfigMap {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: version}, Data: map[string]string{"value": value}}
		r := record.Record{}
		for _, name := range in {
			r.Sites = append(r.Sites, record.Site{Name: name, Identity: "1"})
		}
		testKeys.Write(cm, r, true)
		return cm
	}
	planned := func() *ownerState {
		o := newOwnerState(mcreconcile.Request{}, "1")
		o.replan(&plan{owner: owner("10", "planned", "kept"), ref: mcowner.Reference{UID: "1"}}, testKeys)
		o.report("kept", view{plan: o.plan}, report{})
		return o
	}
	read := func(o *ownerState, owner client.Object) {
		o.isRead(unplanned{owner: owner, ref: mcowner.Reference{UID: "1"}})
	}
	is := func(t *testing.T, o *ownerState, account, of string) {
		t.Helper()
		if got := o.owner().GetResourceVersion(); got != account {
			t.Errorf("version %s is written to, want %s", got, account)
		}
		if got := o.plan.owner.GetResourceVersion(); got != of {
			t.Errorf("the plan is of version %s, want %s", got, of)
		}
	}
	t.Run("its spec is another", func(t *testing.T) {
		t.Parallel()
		o := planned()
		read(o, owner("20", "wrong", "kept"))
		is(t, o, "20", "10")
		o.plan.since = time.Now().Add(-time.Hour)
		p := o.accountedLocked()
		if p.asked <= o.parts["kept"].seq {
			t.Error("what was done for the plan counts as done for what it says now")
		}
		if waits := time.Since(p.since); waits > time.Minute {
			t.Errorf("it waits for that since %s", waits)
		}
	})
	t.Run("what controllers note is another", func(t *testing.T) {
		t.Parallel()
		o := planned()
		read(o, owner("20", "planned", "kept", "new"))
		if o.accountedLocked().asked > o.parts["kept"].seq {
			t.Error("what was done is pending")
		}
	})
	t.Run("it is being deleted", func(t *testing.T) {
		t.Parallel()
		o := newOwnerState(mcreconcile.Request{}, "1")
		o.replan(&plan{owner: owner("10", "planned"), ref: mcowner.Reference{UID: "1"}, mode: finishing}, testKeys)
		read(o, owner("20", "planned"))
		if got := o.accountedLocked().owner.GetResourceVersion(); got != "10" {
			t.Errorf("version %s is written to, and what becomes of its dependents is as version 10 says", got)
		}
	})
	t.Run("it was written since it was read", func(t *testing.T) {
		t.Parallel()
		o := planned()
		read(o, owner("20", "wrong", "kept"))
		o.storedLocked(owner("21", "wrong", "kept", "new"), true)
		read(o, owner("20", "wrong", "kept"))
		is(t, o, "21", "10")
		o.replan(&plan{owner: owner("20", "wrong", "kept"), ref: mcowner.Reference{UID: "1"}}, testKeys)
		is(t, o, "21", "21")
	})
	t.Run("its cluster is restored", func(t *testing.T) {
		t.Parallel()
		o := planned()
		read(o, owner("20", "wrong", "kept"))
		o.storedLocked(owner("21", "wrong", "kept", "new"), true)
		o.recordLocked(o.readLocked(o.owner(), testKeys))
		o.restore(o.owner(), owner("15", "wrong", "kept"), testKeys)
		is(t, o, "15", "10")
		if len(o.lost) != 1 || !o.lost[0].Has("new") {
			t.Error("the cluster that was noted after the backup is forgotten")
		}
	})
}
