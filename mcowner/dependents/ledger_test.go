package dependents

import (
	gocmp "cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestAClusterThatIsBackIsMissedAnew: each identity of a name is missed by itself, and what is back holds up owners for as long
// as at first.
func TestAClusterThatIsBackIsMissedAnew(t *testing.T) {
	t.Parallel()
	l := newLedger()
	named, one, two := record.Site{Name: "a"}, record.Site{Name: "a", Identity: "1"}, record.Site{Name: "a", Identity: "2"}
	for _, s := range []record.Site{named, one, two} {
		l.missingFor(s)
	}
	l.present(one)
	for s, want := range map[record.Site]bool{named: false, one: false, two: true} {
		if _, missing := l.missing[s]; missing != want {
			t.Errorf("%v is missed: %t, want %t", s, missing, want)
		}
	}
}

// TestClustersThatNoOwnerHasAnyMoreAreNotMissedForEver: whoever writes an owner's record may name any.
func TestClustersThatNoOwnerHasAnyMoreAreNotMissedForEver(t *testing.T) {
	t.Parallel()
	l := newLedger()
	noted := record.Site{Name: "noted", Identity: "1"}
	l.of(mcreconcile.Request{}, "1").record = record.Record{Sites: []record.Site{noted}}
	l.missingFor(noted)
	l.missingFor(record.Site{Name: noted.Name})
	since := l.missing[noted].since
	for i := range 3 * mostMissing {
		l.missingFor(record.Site{Name: mcreconcile.ClusterName(fmt.Sprint("forged-", i))})
	}
	if n := len(l.missing); n > mostMissing {
		t.Errorf("%d clusters are missed, want %d at most", n, mostMissing)
	}
	if !l.missing[noted].since.Equal(since) || l.missing[record.Site{Name: noted.Name}].since.IsZero() {
		t.Error("a cluster that an owner has is missed anew")
	}
}

// TestAReconcileThatIsLateMissesNothing: a cluster has its name again, and a reconcile of the one in between still runs. If
// it were noted, the cluster would be given up at once when the name is led away next.
func TestAReconcileThatIsLateMissesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger()
	one, two := record.Site{Name: "a", Identity: "1"}, record.Site{Name: "a", Identity: "2"}
	isMissed := func(s record.Site) bool {
		l.missingFor(s)
		_, missed := l.missing[s]
		return missed
	}
	for i, step := range []struct {
		do   func()
		site record.Site
		want bool
	}{
		{func() { l.present(two) }, one, true},
		{func() { l.present(one) }, one, false},
		{func() { l.present(two) }, one, true},
		{func() { l.present(two); l.absent("a", false) }, two, true},
	} {
		if step.do(); isMissed(step.site) != step.want {
			t.Errorf("after step %d %v is missed: %t, want %t", i, step.site, !step.want, step.want)
		}
	}
}

// TestAVisitThatIsLateNotesNothing of a name that is no member's any more.
func TestAVisitThatIsLateNotesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger()
	site := record.Site{Name: "a", Identity: "1"}
	for _, is := range []bool{true, false} {
		l.visited(site, func(mcreconcile.ClusterName) bool { return is })
		if noted := l.leading("a") != ""; noted != is {
			t.Errorf("the member is elsewhere: %t; it is noted which cluster it is: %t", is, noted)
		}
		l.absent("a", false)
	}
}

func requestFor(cluster mcreconcile.ClusterName, name string) mcreconcile.Request {
	req := mcreconcile.Request{ClusterName: cluster}
	req.Name = name
	return req
}

// TestClaimsAreRememberedInBounds: whoever may write a dependent may name any owner.
func TestClaimsAreRememberedInBounds(t *testing.T) {
	t.Parallel()
	l := newLedger()
	for i := range mostAsked + 10 {
		l.ask(requestFor("hub", fmt.Sprint(i)), "one")
	}
	l.ask(requestFor("hub", "0"), "two") // which is known
	if len(l.asked) != mostAsked {
		t.Errorf("%d claims are remembered, want %d", len(l.asked), mostAsked)
	}
	in := l.forget(requestFor("hub", "0"))
	slices.Sort(in)
	if diff := cmp.Diff([]mcreconcile.ClusterName{"one", "two"}, in); diff != "" {
		t.Errorf("clusters with dependents of an owner that is gone (-want, +got):\n%s", diff)
	}
	l.of(requestFor("hub", "1"), "1")
	if len(l.asked) != mostAsked-2 {
		t.Errorf("%d claims are remembered of owners that are not known, want %d", len(l.asked), mostAsked-2)
	}
}

// TestNothingIsLeftOfAnOwnerThatIsForgotten, nor of those of a cluster whose name is another's.
func TestNothingIsLeftOfAnOwnerThatIsForgotten(t *testing.T) {
	t.Parallel()
	l := newLedger()
	for _, req := range []mcreconcile.Request{requestFor("hub", "a"), requestFor("hub", "b"), requestFor("other", "a")} {
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: types.UID(req.String())}}
		testKeys.Write(owner, record.Record{Sites: []record.Site{{Name: "east"}}}, true)
		l.replan(l.of(req, owner.UID), &plan{owner: owner, ref: mcowner.Reference{UID: owner.UID}, targets: []mcreconcile.ClusterName{"west"}}, testKeys)
		l.writing(req.ClusterName, owner)
		l.await(req, dependentKey{cluster: "west"})
		l.await(req, dependentKey{cluster: "west", name: types.NamespacedName{Name: req.Name}})
	}
	l.ask(requestFor("hub", "claimed"), "west")
	in := l.forget(requestFor("hub", "a"))
	slices.Sort(in)
	if diff := cmp.Diff([]mcreconcile.ClusterName{"east", "west"}, in); diff != "" {
		t.Errorf("where the owner may have dependents (-want, +got):\n%s", diff)
	}
	if n := len(l.waitingFor(dependentKey{cluster: "west"})); n != 2 || len(l.written) != 2 || len(l.all()) != 2 {
		t.Errorf("%d wait, of %d writes and %d owners it is known, want 2 of each", n, len(l.written), len(l.all()))
	}
	l.forgetOrigin("hub")
	if len(l.all()) != 1 || len(l.asked) != 0 || l.get(requestFor("other", "a")) == nil {
		t.Errorf("of the owners %v and %v are left", l.owners, l.asked)
	}
	l.settled(requestFor("other", "a"), dependentKey{cluster: "west"})
	o := l.get(requestFor("other", "a"))
	l.forget(o.req)
	l.writing(o.req.ClusterName, o.owner())(nil, errors.New("it is gone")) // by an account that goes on
	if n := len(l.awaiting.owners) + len(l.awaiting.objects) + len(l.written) + len(l.owners); n > 0 {
		t.Errorf("%d things are left of owners that are gone", n)
	}
}

// TestNothingIsAwaitedThatIsNotWanted any more, nor of a cluster that is gone, nor by an owner of which nothing is known.
func TestNothingIsAwaitedThatIsNotWanted(t *testing.T) {
	t.Parallel()
	l := newLedger()
	a, b := requestFor("hub", "a"), requestFor("hub", "b")
	key := func(in mcreconcile.ClusterName, name string) dependentKey {
		return dependentKey{cluster: in, name: types.NamespacedName{Name: name}}
	}
	l.of(a, "1")
	l.of(b, "1")
	for _, k := range []dependentKey{key("west", "x"), key("west", "y"), key("east", "x")} {
		l.await(a, k)
		l.await(b, k)
		l.await(requestFor("hub", "unknown"), k)
	}
	wait := func(k dependentKey, want ...mcreconcile.Request) {
		t.Helper()
		got := l.waitingFor(k)
		slices.SortFunc(got, func(x, y mcreconcile.Request) int { return gocmp.Compare(x.Name, y.Name) })
		if !slices.Equal(got, want) {
			t.Errorf("%v wait for %v, want %v", got, k, want)
		}
	}
	l.awaitOnly(a, "west", map[dependentKey]bool{key("west", "y"): true})
	wait(key("west", "x"), b)
	wait(key("west", "y"), a, b)
	wait(key("east", "x"), a, b)
	l.absent("west", false)
	wait(key("west", "x"))
	wait(key("west", "y"))
	wait(key("east", "x"), a, b)
	l.awaitOnly(a, "east", nil)
	l.settled(b, key("east", "x"))
	if n := len(l.awaiting.owners) + len(l.awaiting.objects); n > 0 {
		t.Errorf("%d things are left that nobody awaits", n)
	}
}

// nameless is a cluster that a provider made, of which a test needs nothing.
type nameless struct{ cluster.Cluster }

// engage has the member a be engaged with a cluster of this identity.
func engage(t *testing.T, f fleettest.Running, identity string) *fleet.Engagement {
	t.Helper()
	if err := f.Set(fleet.Member{Name: "a", Cluster: nameless{}, Identity: identity}); err != nil {
		t.Fatal(err)
	}
	for range f.Changes(t.Context()) {
		if e, err := f.Engagement("a"); err == nil && e.Identity() == identity {
			return e
		}
	}
	t.Fatal("the member is not engaged")
	return nil
}

// TestOwnersOfTheClusterThatHasTheNameNowAreNotForgotten: they may be planned before it is seen that it is another cluster.
func TestOwnersOfTheClusterThatHasTheNameNowAreNotForgotten(t *testing.T) {
	t.Parallel()
	f, _ := fleettest.Run(t, fleet.Options{})
	l := newLedger()
	planned := func(name string, home *fleet.Engagement) mcreconcile.Request {
		req := requestFor("a", name)
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: types.UID(name)}}
		l.replan(l.of(req, owner.UID), &plan{owner: owner, home: remote.Session{Engagement: home}, ref: mcowner.Reference{UID: owner.UID}}, testKeys)
		return req
	}
	l.inTenure("a", 1)
	before := planned("before", engage(t, f, "1"))
	now := planned("now", engage(t, f, "2"))
	l.forgetOrigin("a")
	if l.get(before) != nil || l.get(now) == nil {
		t.Errorf("of the cluster before is known: %t, of the one now: %t; want the latter alone", l.get(before) != nil, l.get(now) != nil)
	}
	if l.inTenure("a", 1); l.get(now) == nil {
		t.Error("an owner that is known is forgotten in the same tenure")
	}
	<-f.Remove("a")
	if l.forgetOrigin("a"); len(l.all()) > 0 {
		t.Errorf("%d owners of a member that was removed are known", len(l.all()))
	}
}

// TestAnOwnerThatIsPlannedWhileItsClusterIsSwappedIsNotForgotten: it may be in planning while the swap is seen, and be known after that.
func TestAnOwnerThatIsPlannedWhileItsClusterIsSwappedIsNotForgotten(t *testing.T) {
	t.Parallel()
	l, req := newLedger(), requestFor("a", "x")
	l.inTenure("a", 7) // it is about to be planned
	l.forgetOrigin("a")
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	l.replan(l.of(req, "1"), &plan{owner: owner, ref: mcowner.Reference{UID: owner.UID}}, testKeys)
	if l.inTenure("a", 7); l.get(req) == nil {
		t.Error("it is forgotten before its account is kept")
	}
}

// TestOwnWritesAreKnownByTheirVersion, or, before the answer, by what was written. Somebody else's are not, even if they lead
// back to what was.
func TestOwnWritesAreKnownByTheirVersion(t *testing.T) {
	t.Parallel()
	owner := func(version, value string) *corev1.ConfigMap {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: version}, Data: map[string]string{"value": value}}
		testKeys.Write(cm, record.Record{Sites: []record.Site{{Name: "east"}}}, true)
		return cm
	}
	refused := apierrors.NewConflict(schema.GroupResource{}, "a", nil)
	type see struct {
		cm   *corev1.ConfigMap
		pass bool
	}
	undone := owner("13", "1")
	delete(undone.Annotations, testKeys.Clusters)
	cases := map[string]struct {
		before []see // the answer
		stored *corev1.ConfigMap
		err    error
		missed bool // it is to be planned anew
		after  []see
	}{
		"The event is first":        {before: []see{{owner("11", "1"), false}}, stored: owner("11", "1"), after: []see{{owner("12", "2"), true}, {owner("13", "1"), true}}},
		"The answer is first":       {stored: owner("11", "1"), after: []see{{owner("11", "1"), false}, {owner("12", "2"), true}, {owner("13", "1"), true}}},
		"The event never comes":     {stored: owner("11", "1"), after: []see{{owner("13", "1"), true}}},
		"All come before":           {before: []see{{owner("11", "1"), false}, {owner("12", "2"), true}, {owner("13", "1"), true}}, stored: owner("11", "1")},
		"Others were quicker":       {stored: owner("11", "2"), after: []see{{owner("11", "2"), true}}},
		"It was refused":            {err: refused, stored: owner("10", "1"), after: []see{{owner("11", "1"), true}}},
		"The answer is lost":        {before: []see{{owner("11", "1"), false}}, err: errors.New("lost"), missed: true, after: []see{{owner("12", "2"), true}}},
		"Others wrote the same":     {before: []see{{owner("11", "1"), false}}, err: refused, stored: owner("10", "1"), missed: true},
		"Others edit the record":    {stored: owner("11", "1"), after: []see{{owner("11", "1"), false}, {undone, true}}},
		"Another change of its own": {before: []see{{owner("11", "2"), true}, {owner("12", "1"), false}}, stored: owner("12", "1")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger()
			passes := l.predicate("hub")
			look := func(all []see) {
				for i, s := range all {
					if got := passes.Update(event.UpdateEvent{ObjectOld: owner("10", "0"), ObjectNew: s.cm}); got != s.pass {
						t.Errorf("event %d of version %s passes: %t, want %t", i, s.cm.ResourceVersion, got, s.pass)
					}
				}
			}
			answered := l.writing("hub", owner("10", "1"))
			look(tc.before)
			if missed := answered(tc.stored, tc.err); missed != tc.missed {
				t.Errorf("an event is known that should have passed: %t, want %t", missed, tc.missed)
			}
			look(tc.after)
			if !passes.Update(event.UpdateEvent{ObjectOld: owner("11", "1"), ObjectNew: owner("11", "1")}) {
				t.Error("a resync does not pass")
			}
			for range 3 * mostWritten {
				l.writing("hub", owner("10", "1"))
			}
			if len(l.written[origin{"hub", "1"}]) > mostWritten {
				t.Errorf("%d writes are remembered", len(l.written[origin{"hub", "1"}]))
			}
			delete(l.written, origin{"hub", "1"})
			if l.writing("hub", owner("10", "1"))(nil, refused); len(l.written[origin{"hub", "1"}]) > 0 {
				t.Error("a write that was refused is remembered")
			}
		})
	}
}

// TestWhatIsFedBeforeTheStartIsKept, in its order.
func TestWhatIsFedBeforeTheStartIsKept(t *testing.T) {
	t.Parallel()
	f := &feed[string]{name: "test"}
	f.add("a")
	f.addAfter("b", time.Nanosecond)
	f.addLow("c")
	q := priorityqueue.New[string]("test-feed")
	defer q.ShutDown()
	if err := f.Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	f.add("d")
	f.addLow("e")
	got := map[string]int{}
	for range 5 {
		req, priority, _ := q.GetWithPriority()
		got[req] = priority
		q.Done(req)
	}
	if len(got) != 5 || got["c"] >= got["a"] || got["e"] != got["c"] || got["d"] != got["a"] {
		t.Errorf("the priorities are %v", got)
	}
	plain := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer plain.ShutDown()
	f = &feed[string]{}
	if err := f.Start(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	f.addLow("f")
	if req, _ := plain.Get(); req != "f" {
		t.Errorf("a queue without priorities has %q", req)
	}
}

// TestWhenWorkIsTriedAgain: what is waited for is no error, and what others write against is told in the end.
func TestWhenWorkIsTriedAgain(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{}, "a", nil)
	away := &fleet.StateError{Err: fleet.ErrNotReady}
	refused := errors.New("refused")
	again := [2]time.Duration{lookAgain, lookAgain + lookAgain/3}
	released := [2]time.Duration{59 * time.Minute, time.Hour} // the cluster that had the name
	cases := map[string]struct {
		err      error
		leaving  bool
		outdated bool
		awaits   bool
		free     bool // no cluster that had the name holds up the owner
		look     *kindsLook
		after    [2]time.Duration
		want     error
		before   bool // it is looked at again before what is away is back
	}{
		"Nothing":         {after: released},
		"Nothing, free":   {free: true},
		"Outdated":        {outdated: true, after: [2]time.Duration{comingPause, comingPause}},
		"Waits, outdated": {err: ErrWaiting, outdated: true, after: [2]time.Duration{comingPause, comingPause}},
		"Not known yet":   {err: ErrWaiting, awaits: true, after: [2]time.Duration{100 * time.Millisecond, 134 * time.Millisecond}},
		"More to look at": {err: errUnlooked, look: &kindsLook{more: true}, after: [2]time.Duration{comingPause, comingPause}},
		"Nothing to see":  {err: errUnlooked, after: [2]time.Duration{mostPause, mostPause + mostPause/3}},
		"Pending":         {err: ErrPending, after: released},
		"It leaves":       {err: ErrLeaving, after: released},
		"Changed by some": {err: conflict, after: [2]time.Duration{100 * time.Millisecond, 100 * time.Millisecond}},
		"A conflict":      {err: &ConflictError{}, after: again},
		"It is going":     {err: fmt.Errorf("%w", errGoing), after: again},
		"Replaced":        {err: &ReplacedError{}, after: released},
		"Away":            {err: away, want: away, before: true},
		"Away, free":      {err: away, want: away, free: true},
		"Away, outdated":  {err: away, want: away, free: true, outdated: true, before: true},
		"Unnoted":         {err: errUnnoted, want: errUnnoted},
		"Unclear":         {err: errPolicy, after: released},
		"Unclear, leaves": {err: fmt.Errorf("%w: %w", errPolicy, errUnsettled), want: errUnsettled},
		"Refused":         {err: refused, want: refused},
		"Two conflicts":   {err: together(&ConflictError{}, &ConflictError{}), after: again},
		"A wait":          {err: fmt.Errorf("%w: for others", ErrWaiting), after: [2]time.Duration{mostPause, mostPause + mostPause/3}},
		"It closes":       {err: errClosing, after: again},
		"Refused and so":  {err: together(&ConflictError{}, refused), want: refused},
		"Refused, waits":  {err: together(fmt.Errorf("%w: for others", ErrWaiting), refused), want: refused},
		"Refused, going":  {err: together(errGoing, refused), want: refused},
		"Going, leaves":   {err: fmt.Errorf("%w", errGoing), leaving: true, want: errUnsettled},
		"Closing, leaves": {err: errClosing, leaving: true, want: errUnsettled},
		"Changed, leaves": {err: conflict, leaving: true, want: errUnsettled},
		"Undone, leaves":  {err: errRestored, leaving: true, want: errUnsettled},
		"Target, leaves":  {err: ErrLeaving, leaving: true, after: released},
		"Refused, leaves": {err: refused, leaving: true, want: refused},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &engine{ledger: newLedger(), cfg: config{releaseAfter: time.Hour}, works: &feed[work]{}}
			p := &placement{engine: c, leaving: tc.leaving, o: newOwnerState(mcreconcile.Request{}, "1"), at: remote.Session{ID: mcowner.ClusterID{Name: "a", UID: "2"}}}
			p.outdated, p.awaits = tc.outdated, tc.awaits
			if !tc.free {
				p.held = []record.Site{{Name: "a", Identity: "1"}}
			}
			done := report{Result: Result{Err: tc.err}, look: tc.look}
			got, err := p.conclude(&done)
			if got.RequeueAfter < tc.after[0] || got.RequeueAfter > tc.after[1] || !errors.Is(err, tc.want) {
				t.Errorf("it is tried again after %s (%v), want %v (%v)", got.RequeueAfter, err, tc.after, tc.want)
			}
			if before := len(c.works.early) > 0; before != tc.before {
				t.Errorf("it is tried again before what is away is back: %t", before)
			}
		})
	}
	p := &placement{engine: &engine{ledger: newLedger()}, o: newOwnerState(mcreconcile.Request{}, "1")}
	var last time.Duration
	for i := 1; i <= contended; i++ {
		done := report{Result: Result{Err: conflict}}
		got, err := p.conclude(&done)
		if told := errors.Is(done.Err, errContended); told != (i == contended) || err != nil || got.RequeueAfter <= last {
			t.Errorf("after %d attempts it is told: %t, and tried again after %s, before %s; %v", i, told, got.RequeueAfter, last, err)
		}
		last = got.RequeueAfter
		if reason := reasonOf(done.Err); (reason == EventContended) != (i == contended) {
			t.Errorf("after %d attempts the event is %q", i, reason)
		}
	}
	if _, err := p.conclude(&report{}); err != nil || p.o.retried("", true) != 1 {
		t.Error("it is as desired, and still counts as contended")
	}
}

// TestWhatAnOwnerNotesIsBounded, however often a name is led to another cluster, and whatever that says that it is.
func TestWhatAnOwnerNotesIsBounded(t *testing.T) {
	t.Parallel()
	o := newOwnerState(mcreconcile.Request{}, "1")
	a := &accounting{o: o}
	var sites []record.Site
	for i := range 10 * record.MostSites {
		sites = a.withinBounds(append(sites, record.Site{Name: "member", Identity: types.UID(fmt.Sprint(i))}))
	}
	if len(sites) != record.MostSites || sites[len(sites)-1].Identity != types.UID(fmt.Sprint(10*record.MostSites-1)) || !a.record.GivenUp {
		t.Errorf("%v are noted, want the last %d", sites, record.MostSites)
	}
	about := map[string]bool{}
	for _, e := range o.events {
		about[e.about.FieldPath] = true
	}
	if len(about) != 9*record.MostSites {
		t.Errorf("%d clusters were told of that were given up, want %d", len(about), 9*record.MostSites)
	}
}

// TestEachClusterThatIsGivenUpIsToldOf: events about the same thing, for the same reason, would be one with the first text.
func TestEachClusterThatIsGivenUpIsToldOf(t *testing.T) {
	t.Parallel()
	l := newLedger()
	p := &placement{engine: &engine{ledger: l, cfg: config{releaseAfter: time.Hour}}, o: newOwnerState(mcreconcile.Request{}, "1")}
	p.asked.plan = &plan{owner: &corev1.ConfigMap{}}
	long, short := record.Site{Name: "member", Identity: "1"}, record.Site{Name: "member", Identity: "2"}
	l.missing[long], l.missing[record.Site{Name: "member", Identity: "3"}] = missed{}, missed{}
	held, released := p.unreleased([]record.Site{long, short, {Name: "member", Identity: "3"}})
	if !slices.Equal(held, []record.Site{short}) || len(released) != 2 {
		t.Errorf("%v still hold up the owner, and %v do not", held, released)
	}
	about := make([]string, len(p.o.events))
	for i, e := range p.o.events {
		about[i] = e.about.Name + " " + e.about.FieldPath
	}
	if diff := cmp.Diff([]string{"member 1", "member 3"}, about); diff != "" {
		t.Errorf("events are about (-want, +got):\n%s", diff)
	}
	p.asked.owner.SetAnnotations(map[string]string{GiveUpAnnotation: "other, member"})
	if held, _ := p.unreleased([]record.Site{short}); len(held) > 0 {
		t.Errorf("the owner has given up %v", held)
	}
}

// TestAWatchThatEndsIsNotTakenForOne: whoever needs it in this very moment begins another.
func TestAWatchThatEndsIsNotTakenForOne(t *testing.T) {
	t.Parallel()
	e := newVisitWatches(&engine{ledger: newLedger()})
	kind := remote.Untyped(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	ended := 0
	w := &visitWatch{all: e, in: "member", kind: kind, end: func() { ended++ }}
	key := watchKey{"member", kind.GroupVersionKind}
	e.watched[key] = w
	for i, want := range []struct{ ended, left int }{{0, 1}, {1, 0}, {1, 0}} {
		e.endIdle(time.Now())
		if ended != want.ended || len(e.watched) != want.left {
			t.Errorf("after look %d, %d watches have ended, and %d are left, want %+v", i+1, ended, len(e.watched), want)
		}
	}
}

// TestAWatchIsOfTheEngagementThatGoesOn, whatever work that began in the one before asks for.
func TestAWatchIsOfTheEngagementThatGoesOn(t *testing.T) {
	t.Parallel()
	f, _ := fleettest.Run(t, fleet.Options{})
	w := newWatches("fleet", "controller", nil, newLedger())
	kind := remote.Untyped(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	ask := func(e *fleet.Engagement) {
		w.ask(remote.Session{ID: mcowner.ClusterID{Name: "a"}, Engagement: e}, kind)
	}
	before, now := engage(t, f, "1"), engage(t, f, "2")
	ask(now)
	if ask(before); !w.isWatched("a", kind.GroupVersionKind) {
		t.Error("the kind does not count as watched any more")
	}
}

// TestWhatWasWatchedIsReleasedInTheEngagementAfter, as the cache of that lists what the one before had; but not what work there asks for.
func TestWhatWasWatchedIsReleasedInTheEngagementAfter(t *testing.T) {
	t.Parallel()
	f, _ := fleettest.Run(t, fleet.Options{})
	w := newWatches("fleet", "controller", nil, newLedger())
	ask := func(e *fleet.Engagement, kind string) watchKey {
		k := remote.Untyped(schema.GroupVersionKind{Version: "v1", Kind: kind})
		w.ask(remote.Session{ID: mcowner.ClusterID{Name: "a"}, Cluster: e.Cluster(), Engagement: e}, k)
		return watchKey{"a", k.GroupVersionKind}
	}
	before := engage(t, f, "1")
	needed, needless := ask(before, "Pod"), ask(before, "Secret")
	now := engage(t, f, "2")
	w.wanted[needless].unwatch = true
	late := *w.wanted[needless]
	late.at.Cluster = ofCache{}
	w.release(t.Context(), needless, late)
	w.next = func(mcreconcile.ClusterName) (*fleet.Engagement, bool) { return nil, true }
	if all := w.all(); len(all) > 0 {
		t.Errorf("%v are watched in an engagement that is over", all)
	}
	ask(now, "Pod")
	w.next = nextIn(f.Fleet)
	for range 2 {
		all := w.all()
		if is := all[needed]; is.at.Engagement != now || is.unwatch {
			t.Errorf("what is asked for anew is %+v", is)
		}
		if is := all[needless]; is.at.Engagement != now || is.at.Cluster != now.Cluster() || !is.unwatch {
			t.Errorf("what is not asked for anew is %+v", is)
		}
	}
	<-f.Remove("a")
	if all := w.all(); len(all) > 0 || len(w.over) > 0 {
		t.Errorf("%v and %v are left of a member that is gone", all, w.over)
	}
}
