package dependents

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/rollout"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/sweep"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// newAccounting returns what keeps the account of an owner whose record has these clusters, none of which is in the fleet. Owners are watched.
func newAccounting(t *testing.T, cfg config, p *plan, sites ...mcreconcile.ClusterName) *accounting {
	t.Helper()
	mgr, err := mcmanager.New(&rest.Config{Host: "https://127.0.0.1:1"}, &fleettest.Provider{}, mcmanager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.ownersIn = mcowner.Clusters{Local: true}
	var r record.Record
	for _, name := range sites {
		r.Sites = append(r.Sites, record.Site{Name: name, Identity: "1"})
	}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", ResourceVersion: "1", Annotations: map[string]string{}}}
	if p.owner != nil {
		owner.Annotations = p.owner.GetAnnotations()
	}
	testKeys.Write(owner, r, true)
	p.owner, p.ref = owner, mcowner.Reference{UID: "1"}
	c := &engine{
		cfg: cfg, keys: testKeys, ledger: newLedger(), access: remote.NewAccess(mgr, "test", time.Second, true), works: &feed[work]{},
		owner: remote.Untyped(corev1.SchemeGroupVersion.WithKind("ConfigMap")),
	}
	c.deletions, c.collector = &deletions{}, &sweep.Sweeper{}
	o := c.ledger.of(mcreconcile.Request{}, "1")
	c.ledger.replan(o, p, testKeys)
	return &accounting{engine: c, o: o}
}

func (a *accounting) mustOpen(t *testing.T) {
	t.Helper()
	if !a.open() {
		t.Fatal("there is nothing to account for")
	}
}

func givingUp(names string) *plan {
	return &plan{owner: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{GiveUpAnnotation: names}}}}
}

// TestWhatIsReleasedCountsUntilThatIsStored: a placement that runs meanwhile reads the record as it is certain to be.
func TestWhatIsReleasedCountsUntilThatIsStored(t *testing.T) {
	t.Parallel()
	a := newAccounting(t, config{}, givingUp("b"), "a", "b", "c")
	a.mustOpen(t)
	a.late("b")
	a.release()
	if names := record.Names(a.record.Sites); !slices.Equal(names, []mcreconcile.ClusterName{"a", "c"}) || !a.record.GivenUp {
		t.Errorf("what is to be stored is %+v", a.record)
	}
	if names := a.o.clusters(); !slices.Equal(names, []mcreconcile.ClusterName{"a", "b", "c"}) || a.o.record.GivenUp {
		t.Errorf("what is certain is %+v", a.o.record)
	}
}

// late notes that a cluster is missed for as long as a provider may take.
func (a *accounting) late(name mcreconcile.ClusterName) {
	a.engine.ledger.missing[record.Site{Name: name}] = missed{since: time.Now().Add(-remote.ReportedLate(fleet.ErrUnknown))}
}

// TestARolloutGoesOnWithoutAClusterThatNobodyReports once its provider has had the time for that: it is looked again then.
func TestARolloutGoesOnWithoutAClusterThatNobodyReports(t *testing.T) {
	t.Parallel()
	const there = mcreconcile.LocalCluster
	p := &plan{rollout: Rollout{MaxParallel: intstr.FromInt32(1)}, targets: []mcreconcile.ClusterName{there}}
	a := newAccounting(t, config{}, p, there, "a")
	if a.o.progress.Ask(there, of(2)) == nil {
		t.Fatal("the cluster that is there needs no permit")
	}
	a.o.progress.Note(there, rollout.Other)
	for _, late := range []bool{false, true} {
		if late {
			a.late("a")
		}
		again := a.engine.takeBack(a.o)
		a.engine.advance(a.o)
		if goesOn := len(a.engine.works.early) > 0; goesOn != late || (again == 0) != late || again > remote.ReportedLate(fleet.ErrUnknown) {
			t.Errorf("late: %t; it goes on: %t, and it is looked again after %s", late, goesOn, again)
		}
	}
}

// TestAClusterThatWasBegunHasNotFailedWhileNobodyReportsIt: its provider has a while for that after a restart.
func TestAClusterThatWasBegunHasNotFailedWhileNobodyReportsIt(t *testing.T) {
	t.Parallel()
	p := &plan{rollout: Rollout{HaltAfter: 1}, targets: []mcreconcile.ClusterName{"a", "bad"}}
	a := newAccounting(t, config{}, p, "a", "bad")
	a.o.progress.Recall(record.NewFailures(p.revision.String(), []mcreconcile.ClusterName{"bad"}, "a"))
	for _, late := range []bool{false, true} {
		if late {
			a.late("a")
			a.late("bad")
		}
		again := a.engine.takeBack(a.o)
		if failed := a.o.progress.HasFailed("a"); failed != late || (again > 0) == late || !a.o.progress.HasFailed("bad") {
			t.Errorf("late: %t; it has failed: %t, and it is looked again after %s", late, failed, again)
		}
	}
}

// TestARolloutGoesOnWithoutAClusterForWhichDesiredNeedsOneThatIsAway: nobody looks at it before that is back.
func TestARolloutGoesOnWithoutAClusterForWhichDesiredNeedsOneThatIsAway(t *testing.T) {
	t.Parallel()
	const there = mcreconcile.LocalCluster
	p := &plan{rollout: Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1}, targets: []mcreconcile.ClusterName{there, "a"}}
	a := newAccounting(t, config{}, p, there, "a")
	a.late("a")
	if a.o.progress.Ask("a", of(2)) == nil {
		t.Fatal("a cluster needs no permit")
	}
	a.o.progress.Note("a", rollout.Other)
	v := view{plan: a.o.plan, targeted: true}
	needs := func(name mcreconcile.ClusterName) {
		away := &fleet.StateError{Err: fleet.ErrNotReady, Status: fleet.Status{Name: name}}
		a.o.report(there, v, failed(there, v, fmt.Errorf("finding what is desired: %w", away)))
	}
	works := func() int { return len(a.engine.works.early) }
	needs(there)
	if a.engine.advance(a.o); works() > 0 {
		t.Error("it goes on although the cluster can be used")
	}
	needs("cfg")
	if (members{a.engine}).changed("cfg", false); works() != 1 {
		t.Error("it is not looked at again as the one that is needed has changed")
	}
	if a.engine.advance(a.o); works() > 1 {
		t.Error("it goes on although the one that is needed may not be reported yet")
	}
	if a.engine.unreported(a.o) == 0 {
		t.Error("nobody comes back once it is late")
	}
	a.late("cfg")
	if a.engine.advance(a.o); works() != 2 {
		t.Error("it does not go on")
	}
	if a.o.progress.HasLookedAt(there) || a.o.progress.HasFailed(there) {
		t.Error("the cluster counts as looked at, or as failed")
	}
}

// TestAClusterIsLookedAtAgainWhereWhatWasGoneIsBack by the time that it is told: nobody else comes back for it.
func TestAClusterIsLookedAtAgainWhereWhatWasGoneIsBack(t *testing.T) {
	t.Parallel()
	of := func(err error, name mcreconcile.ClusterName) error {
		return &fleet.StateError{Err: err, Status: fleet.Status{Name: name}}
	}
	const back = mcreconcile.LocalCluster
	for name, tc := range map[string]struct {
		err   error
		again bool
	}{
		"it is back":       {of(fleet.ErrGone, back), true},
		"it is not":        {of(fleet.ErrGone, "cfg"), false},
		"it is the member": {of(fleet.ErrGone, "a"), false},
		"it was not ready": {of(fleet.ErrNotReady, back), false}, // the queue has the work wait for it
		"another is gone":  {errors.Join(of(fleet.ErrNotReady, back), of(fleet.ErrGone, "cfg")), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccounting(t, config{}, &plan{targets: []mcreconcile.ClusterName{"a"}}, "a")
			v := view{plan: a.o.plan, targeted: true}
			a.engine.report(a.o, a.engine.placing(a.o.req, "a"), v, failed("a", v, tc.err))
			if again := len(a.engine.works.early) > 1; again != tc.again { // beside the account
				t.Errorf("it is looked at again: %t", again)
			}
		})
	}
}

// TestARolloutWaitsForMembersThatCameDuringAnAccount, as the next account finds the targets first: one may be being changed. Where the targets cannot be
// found, it goes on with those before.
func TestARolloutWaitsForMembersThatCameDuringAnAccount(t *testing.T) {
	t.Parallel()
	for name, unknown := range map[string]error{"Found": nil, "Unknown": errors.New("nobody knows")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const there = mcreconcile.LocalCluster
			p := &plan{rollout: Rollout{MaxParallel: intstr.FromInt32(1)}, targets: []mcreconcile.ClusterName{there}}
			a := newAccounting(t, config{desired: func(context.Context, client.Object, Target) ([]client.Object, error) { return nil, nil }}, p, there)
			home := a.hears(t)
			if a.o.progress.Ask(there, of(2)) == nil {
				t.Fatal("the cluster needs no permit")
			}
			a.o.progress.Note(there, rollout.Other)
			a.o.wantTargets()
			if _, err := a.engine.keepAccount(t.Context(), a.o, remote.Session{Cluster: home}, unknown); err != nil {
				t.Fatal(err)
			}
			if waits := a.o.progress.HasWaiting(); waits != (unknown == nil) {
				t.Errorf("it waits: %t", waits)
			}
		})
	}
}

// TestAKindIsNotedOnceThatIsStored: something of it may be created from then on, and would not be found again if it was not stored.
func TestAKindIsNotedOnceThatIsStored(t *testing.T) {
	t.Parallel()
	pods := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	a := newAccounting(t, config{}, &plan{}, "a")
	v, _ := a.o.begin("a")
	a.o.report("a", v, report{kinds: []schema.GroupVersionKind{pods}, again: true})
	a.mustOpen(t)
	if v, _ = a.o.in("a"); len(v.noted) > 0 {
		t.Errorf("%v are noted, and not stored", v.noted)
	}
	if !slices.Contains(a.record.Kinds, pods) {
		t.Errorf("the kinds %v are to be stored", a.record.Kinds)
	}
	a.settle()
	if v, _ = a.o.in("a"); !slices.Contains(v.noted, pods) {
		t.Errorf("%v are stored, and %v noted", a.record.Kinds, v.noted)
	}
}

// heard is an apiServer that hears events.
type heard struct {
	*apiServer
	recorder.EventRecorder

	reasons []string
}

// GetEventRecorder implements cluster.Cluster.
func (h *heard) GetEventRecorder(string) recorder.EventRecorder { return h }

// Eventf implements recorder.EventRecorder.
func (h *heard) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	h.reasons = append(h.reasons, reason)
}

// hears returns the cluster of an owner.
func (a *accounting) hears(t *testing.T) *heard {
	t.Helper()
	a.engine.owners = &feed[mcreconcile.Request]{}
	return &heard{apiServer: &apiServer{t: t, owner: a.o.plan.owner.DeepCopyObject().(*corev1.ConfigMap)}} //nolint:forcetypeassert // so are all owners here
}

// TestAnOwnerThatIsLetGoWhileItsRecordIsStoredIsLookedAtOnceMore: it has got the finalizer after it was seen without.
func TestAnOwnerThatIsLetGoWhileItsRecordIsStoredIsLookedAtOnceMore(t *testing.T) {
	t.Parallel()
	for name, forgotten := range map[string]bool{"It is let go": true, "It is not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccounting(t, config{}, &plan{}, mcreconcile.LocalCluster)
			home := remote.Session{Cluster: a.hears(t)}
			if forgotten {
				a.engine.ledger.forget(a.o.req)
			}
			if _, err := a.engine.account(t.Context(), a.o, home); err != nil {
				t.Fatal(err)
			}
			if again := len(a.engine.owners.early) > 0; again != forgotten {
				t.Errorf("it is planned again: %t, want %t", again, forgotten)
			}
			if works := len(a.engine.works.early) > 0; works == forgotten {
				t.Errorf("its clusters are worked on: %t, want %t", works, !forgotten)
			}
		})
	}
}

// TestWhichClustersAreReleased, and when it is looked again.
func TestWhichClustersAreReleased(t *testing.T) {
	t.Parallel()
	const never = 0
	for name, tc := range map[string]struct {
		after   time.Duration
		plan    *plan
		missing map[mcreconcile.ClusterName]time.Duration
		left    []mcreconcile.ClusterName
		until   time.Duration // at most, and not much less
	}{
		"nobody says so":       {plan: &plan{}, missing: map[mcreconcile.ClusterName]time.Duration{"a": time.Hour}, left: []mcreconcile.ClusterName{"a", "b"}, until: never},
		"the owner says so":    {plan: givingUp(" b ,x"), missing: map[mcreconcile.ClusterName]time.Duration{"b": remote.ReportedLate(fleet.ErrUnknown)}, left: []mcreconcile.ClusterName{"a"}, until: never},
		"it may come yet":      {plan: givingUp(" b ,x"), left: []mcreconcile.ClusterName{"a", "b"}, until: remote.ReportedLate(fleet.ErrUnknown)},
		"it is missed so long": {after: time.Hour, plan: &plan{}, missing: map[mcreconcile.ClusterName]time.Duration{"a": time.Hour}, left: []mcreconcile.ClusterName{"b"}, until: time.Hour},
		"the first is next": {
			after: time.Hour, plan: &plan{}, missing: map[mcreconcile.ClusterName]time.Duration{"a": 20 * time.Minute, "b": 10 * time.Minute},
			left: []mcreconcile.ClusterName{"a", "b"}, until: 40 * time.Minute,
		},
		"the last is next": {
			after: time.Hour, plan: &plan{}, missing: map[mcreconcile.ClusterName]time.Duration{"a": 10 * time.Minute, "b": 20 * time.Minute},
			left: []mcreconcile.ClusterName{"a", "b"}, until: 40 * time.Minute,
		},
		"it is a target": {
			after: time.Hour, plan: &plan{targets: []mcreconcile.ClusterName{"a"}}, missing: map[mcreconcile.ClusterName]time.Duration{"a": time.Hour, "b": time.Hour},
			left: []mcreconcile.ClusterName{"a"}, until: never,
		},
		"the local cluster": {
			after: time.Hour, plan: givingUp(""), missing: map[mcreconcile.ClusterName]time.Duration{"": time.Hour, "b": time.Hour},
			left: []mcreconcile.ClusterName{"", "a"}, until: time.Hour,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sites := []mcreconcile.ClusterName{"a", "b"}
			if slices.Contains(tc.left, mcreconcile.LocalCluster) {
				sites = append(sites, mcreconcile.LocalCluster)
			}
			a := newAccounting(t, config{releaseAfter: tc.after}, tc.plan, sites...)
			for name, since := range tc.missing {
				a.engine.ledger.missing[record.Site{Name: name}] = missed{since: time.Now().Add(-since)}
			}
			a.mustOpen(t)
			until := a.release()
			if left := record.Names(a.record.Sites); !slices.Equal(left, tc.left) {
				t.Errorf("it still waits for %q, want %q", left, tc.left)
			}
			if until > tc.until || until < tc.until-time.Minute || (until == never) != (tc.until == never) {
				t.Errorf("it is looked again after %s, want %s", until, tc.until)
			}
			if released := len(tc.left) < len(sites); a.record.GivenUp != released || len(a.o.events) != len(sites)-len(tc.left) {
				t.Errorf("that something may be left is noted: %t, with %d events", a.record.GivenUp, len(a.o.events))
			}
		})
	}
}

// TestWhichMembersThatHaveLeftAreWaitedFor: those in which something is to be done, and of which it is not certain that they have left.
func TestWhichMembersThatHaveLeftAreWaitedFor(t *testing.T) {
	t.Parallel()
	one, two := record.Site{Name: "a", Identity: "1"}, record.Site{Name: "a", Identity: "2"}
	leaves := func(l *ledger) { l.present(one); l.absent("a", true) }
	for name, tc := range map[string]struct {
		policy LeavePolicy
		plan   plan
		known  func(*ledger) // nil is that it has left
		waits  bool
	}{
		"nothing is declared":               {},
		"as it is":                          {policy: LeaveAsIs},
		"it is a target":                    {plan: plan{targets: []mcreconcile.ClusterName{"a"}}},
		"the owner is let go":               {plan: plan{mode: retiring, propagation: metav1.DeletePropagationBackground}},
		"the owner is deleted":              {plan: plan{mode: finishing, propagation: metav1.DeletePropagationBackground}, waits: true},
		"the owner is deleted as it stays":  {plan: plan{mode: finishing, propagation: metav1.DeletePropagationOrphan}, waits: true},
		"dependents are to be deleted":      {policy: LeaveDeleted, waits: true},
		"dependents are to be released":     {policy: LeaveReleased, waits: true},
		"it was removed":                    {known: func(l *ledger) { l.present(one); l.absent("a", false) }, waits: true},
		"another one of the name has left":  {known: func(l *ledger) { l.present(two); l.absent("a", true) }, waits: true},
		"it is not known which one":         {known: func(l *ledger) { l.absent("a", true) }, waits: true},
		"it was known before":               {known: func(l *ledger) { l.missingFor(record.Site{Name: "a"}); leaves(l) }},
		"it was reported anew, and removed": {known: func(l *ledger) { leaves(l); l.present(record.Site{Name: "a"}); l.absent("a", false) }, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccounting(t, config{onMemberLeaving: tc.policy}, &tc.plan, "a")
			if tc.known == nil {
				tc.known = leaves
			}
			tc.known(a.engine.ledger)
			a.mustOpen(t)
			a.release()
			if waits := a.record.Has("a"); waits != tc.waits || a.record.GivenUp == waits || (len(a.o.events) > 0) == waits {
				t.Errorf("it waits: %t, want %t; something may be left: %t; %d events", waits, tc.waits, a.record.GivenUp, len(a.o.events))
			}
		})
	}
}

// TestWhatARestoredOwnerHasLostIsNotedAgain, once: each cluster of a name, the kinds, and that clusters were given up; also if something is done in
// a cluster before, or the owner is restored twice. What was found to have nothing is not noted.
func TestWhatARestoredOwnerHasLostIsNotedAgain(t *testing.T) {
	t.Parallel()
	a := newAccounting(t, config{}, &plan{targets: []mcreconcile.ClusterName{"a"}})
	restore := func(version string, r record.Record) {
		t.Helper()
		known := a.o.owner()
		now := known.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
		now.SetResourceVersion(version)
		testKeys.Write(now, r, true)
		a.o.restore(known, now, testKeys)
	}
	pods := []schema.GroupVersionKind{{Version: "v1", Kind: "Pod"}}
	sites := []record.Site{{Name: "a", Identity: "1"}, {Name: "a", Identity: "2"}, {Name: "b", Identity: "1"}}
	known := a.o.owner().DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	known.SetResourceVersion("9")
	emptied := record.Site{Name: "c", Identity: "1"}
	testKeys.Write(known, record.Record{Sites: append(slices.Clone(sites), emptied), Kinds: pods, GivenUp: true}, true)
	a.o.storedLocked(known, true)
	a.mustOpen(t)
	v, _ := a.o.begin("c")
	a.o.report("c", v, report{drop: []record.Site{emptied}})
	restore("5", record.Record{Sites: sites[:1]})
	v, _ = a.o.begin("a")
	a.o.report("a", v, report{again: true})
	restore("4", record.Record{})
	a.mustOpen(t)
	slices.SortFunc(a.record.Sites, func(x, y record.Site) int {
		return strings.Compare(string(x.Name)+string(x.Identity), string(y.Name)+string(y.Identity))
	})
	if !slices.Equal(a.record.Sites, sites) || !slices.Equal(a.record.Kinds, pods) || !a.record.GivenUp {
		t.Errorf("what is to be stored is %+v", a.record)
	}
	if a.o.record.Has("a") {
		t.Error("the cluster counts as noted before that is stored")
	}
	a.settle()
	if a.mustOpen(t); len(a.record.Sites) > 0 || a.record.GivenUp {
		t.Errorf("once it was stored, what others take from it is noted again: %+v", a.record)
	}
}

// TestWhenAnOwnerKeepsTheFinalizer: while clusters are waited for, and while it is to be seen how it is deleted.
func TestWhenAnOwnerKeepsTheFinalizer(t *testing.T) {
	t.Parallel()
	sites, targets := []record.Site{{Name: "a"}}, []mcreconcile.ClusterName{"a"}
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		plan    plan
		record  record.Record
		held    bool
		unnoted bool
	}{
		"nothing":                         {},
		"a cluster to be emptied":         {plan: plan{mode: finishing}, record: record.Record{Sites: sites}, held: true},
		"a target alone":                  {plan: plan{targets: targets}, held: true},
		"given up, and it lives":          {record: record.Record{GivenUp: true}, held: true},
		"given up, and it is let go":      {plan: plan{mode: retiring, propagation: metav1.DeletePropagationOrphan}, record: record.Record{GivenUp: true}},
		"given up, and it is deleted":     {plan: plan{mode: finishing, propagation: metav1.DeletePropagationBackground}, record: record.Record{GivenUp: true}},
		"given up, and it is unclear":     {plan: plan{mode: finishing, propagation: metav1.DeletePropagationBackground, unclear: errPolicy}, record: record.Record{GivenUp: true}, held: true},
		"given up, kept, and not told":    {plan: plan{mode: finishing, propagation: metav1.DeletePropagationBackground, policy: Policy{Keep: true}}, record: record.Record{GivenUp: true}, held: true, unnoted: true},
		"given up, to stay, and not told": {plan: plan{mode: finishing, propagation: metav1.DeletePropagationOrphan}, record: record.Record{GivenUp: true}, held: true, unnoted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccounting(t, config{}, &plan{})
			a.engine.tombs = &tombs{access: a.engine.access, name: "test", namespace: func() (string, error) { return "", refused }}
			a.plan, a.record = &tc.plan, tc.record
			held, err := a.hold(t.Context())
			if held != tc.held || errors.Is(err, refused) != tc.unnoted {
				t.Errorf("it is held: %t, %v, want %t", held, err, tc.held)
			}
		})
	}
}

// TestAnOwnerThatWasOrphanedIsNoted if it had dependents and there is room; it waits only where that may be noted yet.
func TestAnOwnerThatWasOrphanedIsNoted(t *testing.T) {
	t.Parallel()
	full := &corev1.ConfigMap{Data: map[string]string{"others": strings.Repeat("x", spareRoom)}}
	passing, forbidden := errors.New("passing"), apierrors.NewForbidden(configMaps, "test", nil)
	denied := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusBadRequest, Message: "a webhook denied it"}}
	for name, tc := range map[string]struct {
		mode   mode
		policy metav1.DeletionPropagation
		never  bool // had it dependents
		there  *corev1.ConfigMap
		err    error
		noted  bool
		held   bool
	}{
		"orphaned":                               {mode: finishing, policy: metav1.DeletePropagationOrphan, noted: true},
		"orphaned, and it had nothing":           {mode: finishing, policy: metav1.DeletePropagationOrphan, never: true},
		"deleted":                                {mode: finishing, policy: metav1.DeletePropagationBackground},
		"it lives, and wants nothing":            {mode: serving, policy: metav1.DeletePropagationOrphan},
		"let go":                                 {mode: retiring, policy: metav1.DeletePropagationOrphan},
		"orphaned, and there is no room":         {mode: finishing, policy: metav1.DeletePropagationOrphan, there: full},
		"orphaned, and nobody says where":        {mode: finishing, policy: metav1.DeletePropagationOrphan, err: errNoNamespace},
		"orphaned, and it is forbidden":          {mode: finishing, policy: metav1.DeletePropagationOrphan, err: forbidden},
		"orphaned, and there is an error":        {mode: finishing, policy: metav1.DeletePropagationOrphan, err: passing, held: true},
		"orphaned, and it is denied":             {mode: finishing, policy: metav1.DeletePropagationOrphan, err: denied},
		"orphaned, and it is not known who asks": {mode: finishing, policy: metav1.DeletePropagationOrphan, err: apierrors.NewUnauthorized("expired"), held: true},
		"orphaned, and a gateway answers":        {mode: finishing, policy: metav1.DeletePropagationOrphan, err: apierrors.NewGenericServerResponse(http.StatusForbidden, "get", configMaps, "", "no", 0, true), held: true},
		"orphaned, and there is a conflict":      {mode: finishing, policy: metav1.DeletePropagationOrphan, err: apierrors.NewConflict(configMaps, "test", nil), held: true},
		"orphaned, and there is much to do":      {mode: finishing, policy: metav1.DeletePropagationOrphan, err: apierrors.NewTooManyRequests("later", 1), held: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccounting(t, config{}, &plan{mode: tc.mode, propagation: tc.policy})
			a.mustOpen(t)
			if tc.never {
				testKeys.Write(a.plan.owner, record.Record{}, false)
			}
			if tc.there == nil {
				tc.there = &corev1.ConfigMap{}
			}
			a.engine.tombs = (&shelf{there: tc.there}).tombs()
			a.engine.tombs.namespace = func() (string, error) { return "fleet", tc.err }
			if held, err := a.hold(t.Context()); held != tc.held || held != (err != nil) {
				t.Errorf("it is held: %t, %v", held, err)
			}
			a.engine.tombs.namespace = func() (string, error) { return "fleet", nil }
			if noted, err := a.engine.tombs.has(t.Context(), a.plan.ref); noted != tc.noted || err != nil {
				t.Errorf("it is noted that its dependents stay: %t, %v", noted, err)
			}
		})
	}
}

// TestAnOwnerIsLetGoOnceItIsNotedThatItsDependentsAreToStay: nobody may see how it is deleted, and it may be the controller's again.
func TestAnOwnerIsLetGoOnceItIsNotedThatItsDependentsAreToStay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg     config
		plan    plan
		says    metav1.DeletionPropagation
		givenUp bool // where it has dependents, before it is let go
		noted   bool
		left    bool
	}{
		"as they are":                            {says: metav1.DeletePropagationOrphan, noted: true, left: true},
		"as they are, by a controller that goes": {cfg: config{retire: LeaveAsIs}, says: metav1.DeletePropagationOrphan, noted: true, left: true},
		"as they are, and they are not to stay":  {left: true},
		"released, but for a cluster":            {plan: plan{propagation: metav1.DeletePropagationOrphan}, says: metav1.DeletePropagationOrphan, givenUp: true, noted: true, left: true},
		"deleted, but for a cluster":             {plan: plan{propagation: metav1.DeletePropagationBackground}, says: metav1.DeletePropagationOrphan, givenUp: true, noted: true, left: true},
		"all released":                           {plan: plan{propagation: metav1.DeletePropagationOrphan}, says: metav1.DeletePropagationOrphan},
		"deleted, and the rest is not to stay":   {plan: plan{propagation: metav1.DeletePropagationBackground}, givenUp: true, left: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.plan.mode = retiring
			tc.plan.owner = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{DeletionPolicyAnnotation: string(tc.says)}}}
			a := newAccounting(t, tc.cfg, &tc.plan, "a")
			if tc.plan.propagation != "" {
				testKeys.Write(a.o.plan.owner, record.Record{GivenUp: tc.givenUp}, true)
			}
			a.engine.tombs = (&shelf{there: &corev1.ConfigMap{}}).tombs()
			a.mustOpen(t)
			a.release()
			if held, err := a.hold(t.Context()); held || err != nil || a.record.GivenUp != tc.left {
				t.Errorf("it is held: %t, %v; there are dependents left: %t", held, err, a.record.GivenUp)
			}
			if noted, err := a.engine.tombs.has(t.Context(), a.plan.ref); noted != tc.noted || err != nil {
				t.Errorf("it is noted that they stay: %t, %v", noted, err)
			}
		})
	}
}

// TestWhatTheOwnerIsToldOfItsClusters: what is not done yet is pending, what has failed says so, and what is away is away.
func TestWhatTheOwnerIsToldOfItsClusters(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	a := newAccounting(t, config{}, &plan{targets: []mcreconcile.ClusterName{mcreconcile.LocalCluster, "away"}})
	a.mustOpen(t)
	a.plan.since = begun
	local := func() Result { return a.results()[0] }
	if got := local(); !errors.Is(got.Err, ErrPending) || !got.Targeted || !got.Since.Equal(begun) {
		t.Errorf("before anything was done it is %+v", got)
	}
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		seq  uint64
		err  error
		want error
	}{
		"done":                       {seq: a.plan.seq},
		"done for the plan before":   {seq: a.plan.seq - 1, want: ErrPending},
		"failed":                     {seq: a.plan.seq, err: refused, want: refused},
		"failed for the plan before": {seq: a.plan.seq - 1, err: refused, want: refused},
	} {
		a.o.report(mcreconcile.LocalCluster, view{plan: &plan{seq: tc.seq}}, report{Result: Result{Targeted: true, Err: tc.err}})
		if got := local(); !errors.Is(got.Err, tc.want) || (got.Err == nil) != (tc.want == nil) || !got.Targeted {
			t.Errorf("%s: it is %+v, want %v", name, got, tc.want)
		}
	}
	if got := a.results()[1]; got.Cluster != "away" || !errors.Is(got.Err, fleet.ErrUnknown) || !got.Targeted {
		t.Errorf("a cluster that is not in the fleet is %+v", got)
	}
	if got := awaySince(&fleet.StateError{Err: fleet.ErrNotReady, Status: fleet.Status{Since: begun}}, time.Time{}); !got.Equal(begun) {
		t.Errorf("it is away since %s", got)
	}
	if got := awaySince(&fleet.StateError{Err: fleet.ErrUnknown}, begun); !got.Equal(begun) {
		t.Errorf("one that the fleet does not know is away since %s", got)
	}
}

// TestWhichClustersAreWorkedOn after the account: those that have something to do, and no others.
func TestWhichClustersAreWorkedOn(t *testing.T) {
	t.Parallel()
	const here = mcreconcile.LocalCluster
	for name, tc := range map[string]struct {
		change     func(*accounting, *part)
		now, later int
		missing    bool // the cluster is not in the fleet
	}{
		"nothing is to be done":    {change: func(*accounting, *part) {}},
		"it was never done":        {change: func(_ *accounting, p *part) { p.done = false }, now: 1},
		"it was for another plan":  {change: func(_ *accounting, p *part) { p.seq++ }, now: 1},
		"it was no target":         {change: func(_ *accounting, p *part) { p.result.Targeted = false }, now: 1},
		"it is in the record now":  {change: func(a *accounting, _ *part) { a.again[here] = true }, now: 1},
		"it has asked for that":    {change: func(a *accounting, _ *part) { a.asked[here] = true }, later: 1},
		"another cluster has that": {change: func(a *accounting, _ *part) { a.asked["b"], a.again["b"] = true, true }},
		"it is not in the fleet":   {change: func(_ *accounting, p *part) { p.done = false }, missing: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := here
			if tc.missing {
				in = "a"
			}
			a := newAccounting(t, config{}, &plan{targets: []mcreconcile.ClusterName{in}}, in)
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[work]())
			defer queue.ShutDown()
			if err := a.engine.works.Start(t.Context(), queue); err != nil {
				t.Fatal(err)
			}
			a.o.report(in, view{plan: a.o.plan}, report{Result: Result{Targeted: true}})
			a.mustOpen(t)
			tc.change(a, a.o.parts[in])
			a.o.partLocked("gone")
			a.o.partLocked("stray").stray = &record.Site{Name: "stray"}
			a.o.partLocked("left").drop = []record.Site{{Name: "left"}}
			a.distribute()
			if n := queue.Len(); n != tc.now {
				t.Fatalf("%d pieces of work are to be done now, want %d", n, tc.now)
			}
			if tc.now+tc.later > 0 {
				if w, _ := queue.Get(); w.in != in || w.task != place {
					t.Errorf("%s is to be done", w)
				}
			}
			if a.o.parts["gone"] != nil || a.o.parts["stray"] == nil || a.o.parts["left"] == nil || a.o.parts[in] == nil {
				t.Errorf("the parts are %v", a.o.parts)
			}
		})
	}
}

// TestWhatIsGoingInAClusterStaysKnown, as it is seen once more, but not in a cluster that is gone, nor what was desired in one that was given up.
func TestWhatIsGoingInAClusterStaysKnown(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in     mcreconcile.ClusterName
		result Result
		stays  bool
	}{
		"it is going":         {in: mcreconcile.LocalCluster, result: Result{Objects: make([]ObjectResult, 1)}, stays: true},
		"all is gone":         {in: mcreconcile.LocalCluster},
		"it was desired":      {in: mcreconcile.LocalCluster, result: Result{Targeted: true, Objects: make([]ObjectResult, 1)}},
		"the cluster is gone": {in: "a", result: Result{Objects: make([]ObjectResult, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccounting(t, config{}, &plan{})
			a.o.report(tc.in, view{plan: a.o.plan}, report{Result: tc.result})
			a.mustOpen(t)
			a.distribute()
			if stays := a.o.parts[tc.in] != nil; stays != tc.stays {
				t.Errorf("the cluster is known: %t", stays)
			}
		})
	}
}

// TestNewsAreInTheRecordOnce: those that came while it was stored stay for the next time.
func TestNewsAreInTheRecordOnce(t *testing.T) {
	t.Parallel()
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	site, stray := record.Site{Name: "a", Identity: "1"}, record.Site{Name: "s", Identity: "2"}
	news := report{drop: []record.Site{site}, givenUp: true, kinds: []schema.GroupVersionKind{pod, pod}, again: true}
	a := newAccounting(t, config{}, &plan{}, "a", "b")
	a.o.report("a", view{plan: a.o.plan}, news)
	a.o.report("s", view{plan: a.o.plan}, report{stray: &stray})
	a.mustOpen(t)
	if names := record.Names(a.record.Sites); !slices.Equal(names, []mcreconcile.ClusterName{"b", "s"}) || !a.record.GivenUp ||
		!slices.Equal(a.record.Kinds, []schema.GroupVersionKind{pod}) || !a.asked["a"] || a.asked["s"] {
		t.Errorf("what is to be stored is %+v", a.record)
	}
	if names := a.o.clusters(); !slices.Equal(names, []mcreconcile.ClusterName{"b"}) {
		t.Errorf("before that is stored there may be something in %q", names)
	}
	for _, late := range []bool{true, false} {
		s := &apiServer{t: t, owner: a.plan.owner.DeepCopyObject().(*corev1.ConfigMap)} //nolint:forcetypeassert // so are all owners here
		a.home = remote.Session{Cluster: s}
		if late {
			a.o.report("a", view{plan: a.o.plan}, news)
		}
		if err := a.keep(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if p := a.o.parts["a"]; (p.drop != nil) != late || (p.kinds != nil) != late || p.givenUp != late || p.again != late {
			t.Errorf("after storing, with news that came meanwhile: %t, the news are %+v", late, p)
		}
		if names := a.o.clusters(); !slices.Equal(names, []mcreconcile.ClusterName{"b", "s"}) {
			t.Errorf("after storing there may be something in %q", names)
		}
		if late && a.o.parts["s"].stray != nil {
			t.Error("what was stored is news again")
		}
		a.mustOpen(t)
	}
}

// TestWhatTheRecordBeginsWith: a cluster that is noted is not noted again, and an owner that is let go as it is keeps nothing.
func TestWhatTheRecordBeginsWith(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		plan  plan
		stray record.Site
		want  []record.Site
	}{
		"a stray that is noted":      {stray: record.Site{Name: "a", Identity: "1"}, want: []record.Site{{Name: "a", Identity: "1"}}},
		"one of another cluster":     {stray: record.Site{Name: "a", Identity: "2"}, want: []record.Site{{Name: "a", Identity: "1"}, {Name: "a", Identity: "2"}}},
		"an owner that is let go":    {plan: plan{mode: retiring}},
		"one with dependents to end": {plan: plan{mode: retiring, propagation: metav1.DeletePropagationBackground}, want: []record.Site{{Name: "a", Identity: "1"}}},
	} {
		a := newAccounting(t, config{}, &tc.plan, "a")
		if tc.stray != (record.Site{}) {
			a.o.report("a", view{plan: a.o.plan}, report{stray: &tc.stray})
		}
		a.mustOpen(t)
		a.release()
		if !slices.Equal(a.record.Sites, tc.want) {
			t.Errorf("%s: the record begins with %v, want %v", name, a.record.Sites, tc.want)
		}
	}
}

// TestAnAccountOfManyClustersWaits for what else there is.
func TestAnAccountOfManyClustersWaits(t *testing.T) {
	t.Parallel()
	for targets, want := range map[int]time.Duration{
		0: 0, remote.AtOnce: 0, remote.AtOnce + 1: 100 * time.Millisecond, 100: 100 * time.Millisecond, 101: time.Second,
	} {
		if got := accountDelay(targets); got != want {
			t.Errorf("that of %d clusters waits for %s, want %s", targets, got, want)
		}
	}
}

// delays are how long what was added to a queue waits there.
type delays struct {
	workqueue.TypedRateLimitingInterface[work]

	of map[work]time.Duration
}

// Add implements workqueue.TypedInterface.
func (d *delays) Add(w work) { d.of[w] = 0 }

// AddAfter implements workqueue.TypedDelayingInterface.
func (d *delays) AddAfter(w work, after time.Duration) { d.of[w] = after }

// TestChangesOfManyMembersAreGathered for the account of an owner with many clusters, as when a link breaks: each account tells of what it has seen.
// Members of which the owner has nothing hasten it not.
func TestChangesOfManyMembersAreGathered(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		mode     mode
		clusters int
		member   mcreconcile.ClusterName
		after    time.Duration
	}{
		"one":                      {serving, 1, "m-000", 0},
		"many":                     {serving, 101, "m-000", time.Second},
		"many, and it is deleted":  {finishing, 101, "m-000", time.Second},
		"many, of a member beside": {serving, 101, "other", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			names := make([]mcreconcile.ClusterName, tc.clusters)
			for n := range names {
				names[n] = mcreconcile.ClusterName(fmt.Sprintf("m-%03d", n))
			}
			p := &plan{mode: tc.mode}
			if tc.mode == serving {
				p.targets = names
			}
			a := newAccounting(t, config{}, p, names...)
			members{a.engine}.changed(tc.member, true)
			d := &delays{of: map[work]time.Duration{}}
			if err := a.engine.works.Start(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			if after, is := d.of[accountOf(a.o.req)]; !is || after != tc.after {
				t.Errorf("the account is kept (%t) after %s, want %s", is, after, tc.after)
			}
		})
	}
}

// TestAClusterThatIsNotDoneIsWorkedOnAgain: nothing was left in it, which is not stored yet, since slices are written later. Then the
// cache shows a dependent that is about to go, and then none.
func TestAClusterThatIsNotDoneIsWorkedOnAgain(t *testing.T) {
	t.Parallel()
	a := newAccounting(t, config{}, &plan{mode: finishing}, mcreconcile.LocalCluster)
	site := record.Site{Name: mcreconcile.LocalCluster, Identity: "1"}
	look := func(seen bool) {
		v, _ := a.o.begin(site.Name)
		var r report
		switch {
		case seen:
			r.stray, r.again = &site, true
		case len(v.sites) > 0:
			r.drop = v.sites
		default:
			r.drop = v.dropped
		}
		a.o.report(site.Name, v, r)
	}
	look(false)
	a.mustOpen(t)
	a.lingers = true
	a.settle()
	look(true)
	look(false)
	a.mustOpen(t)
	if !slices.Contains(a.record.Sites, site) {
		t.Fatalf("the record is %+v: it is not what this is about", a.record)
	}
	a.settle()
	a.distribute()
	if len(a.engine.works.early) == 0 {
		t.Error("nobody looks again at a cluster that the record has")
	}
}

// TestTargetsAreFoundAnewOfAPlanThatWasMadeMeanwhile: members have changed after its targets were found, and the account was kept before the
// plan held.
func TestTargetsAreFoundAnewOfAPlanThatWasMadeMeanwhile(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} { // the owner had no plan before
		a := newAccounting(t, config{}, &plan{})
		asked := 0
		a.engine.cfg.targets = func(context.Context, client.Object) ([]mcreconcile.ClusterName, error) {
			asked++
			return []mcreconcile.ClusterName{"found"}, nil
		}
		before := a.o.plan
		next := &plan{owner: before.owner, ref: before.ref}
		if first {
			a.o.plan = nil
		}
		a.o.retargeting(next)
		a.o.wantTargets()
		if err := a.engine.retargeted(t.Context(), a.o); err != nil {
			t.Error(err)
		}
		asked = 0
		a.engine.ledger.replan(a.o, next, testKeys)
		if err := a.engine.retargeted(t.Context(), a.o); err != nil || asked != 1 || len(a.o.plan.targets) != 1 {
			t.Errorf("the first plan: %t: it was asked %d times, with the targets %q then: %v", first, asked, a.o.plan.targets, err)
		}
	}
}

// TestTargetsAreFoundAnewOnce after members have changed, for the plan that there is then; and again if that fails, or if there is
// another plan, of which nobody knows whether its targets were found before that.
func TestTargetsAreFoundAnewOnce(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		wanted, again bool // once more, while they are found
		mode          mode
		replanned     bool // while they are found
		err           error
		asked         int
		left          bool // to be found anew
		has           bool // the plan has what was found
	}{
		"nothing has changed":       {},
		"members have changed":      {wanted: true, asked: 1, has: true},
		"and again meanwhile":       {wanted: true, again: true, asked: 1, left: true, has: true},
		"it fails":                  {wanted: true, err: refused, asked: 1, left: true},
		"the owner is let go":       {wanted: true, mode: retiring},
		"there is another plan now": {wanted: true, replanned: true, asked: 1, left: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccounting(t, config{}, &plan{mode: tc.mode})
			asked := 0
			a.engine.cfg.targets = func(context.Context, client.Object) ([]mcreconcile.ClusterName, error) {
				if asked++; tc.again {
					a.o.wantTargets()
				}
				if tc.replanned {
					a.engine.ledger.replan(a.o, &plan{owner: a.o.plan.owner, ref: a.o.plan.ref}, testKeys)
				}
				return []mcreconcile.ClusterName{"found"}, tc.err
			}
			if tc.wanted {
				a.o.wantTargets()
			}
			if err := a.engine.retargeted(t.Context(), a.o); !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Errorf("it ends with %v, want %v", err, tc.err)
			}
			if left := a.o.hasOldTargetsLocked(); asked != tc.asked || left != tc.left || (len(a.o.plan.targets) == 1) != tc.has {
				t.Errorf("it was asked %d times, with the targets %q then, and is to be asked again: %t; want %+v", asked, a.o.plan.targets, left, tc)
			}
		})
	}
}

// TestWhatADeletionAsksForIsWrittenDown, as the finalizer that says it may be gone soon. Nothing is written that is there.
func TestWhatADeletionAsksForIsWrittenDown(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mode   mode
		policy metav1.DeletionPropagation
		want   string
	}{
		{finishing, metav1.DeletePropagationForeground, "Foreground"},
		{finishing, metav1.DeletePropagationOrphan, "Orphan"},
		{finishing, metav1.DeletePropagationBackground, ""},
		{retiring, metav1.DeletePropagationOrphan, ""},
	} {
		a := newAccounting(t, config{}, &plan{mode: tc.mode, propagation: tc.policy}, "a")
		s := &apiServer{t: t, owner: a.o.plan.owner.DeepCopyObject().(*corev1.ConfigMap)} //nolint:forcetypeassert // so are all owners here
		a.home = remote.Session{Cluster: s}
		for range 2 {
			a.mustOpen(t)
			if err := a.keep(t.Context(), true); err != nil {
				t.Fatal(err)
			}
		}
		wants := "1"
		if tc.want != "" {
			wants = "2" // it was written once
		}
		if got := s.owner.Annotations[DeletionPolicyAnnotation]; got != tc.want || s.owner.ResourceVersion != wants {
			t.Errorf("%+v: the owner says %q in version %s, want %q in %s", tc, got, s.owner.ResourceVersion, tc.want, wants)
		}
	}
}

// TestTheSoonerOfTwo comes first, and zero never.
func TestTheSoonerOfTwo(t *testing.T) {
	t.Parallel()
	for _, tc := range [][3]time.Duration{{0, 0, 0}, {1, 0, 1}, {0, 1, 1}, {1, 2, 1}, {2, 1, 1}} {
		if got := sooner(tc[0], tc[1]); got != tc[2] {
			t.Errorf("of %d and %d, %d is sooner, want %d", tc[0], tc[1], got, tc[2])
		}
	}
}

// TestWhatAnAccountEndsWith: what it waits for, what is told, and whether the owner is known after that.
func TestWhatAnAccountEndsWith(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	status := func(_ context.Context, owner client.Object, _ []Result) error {
		owner.SetLabels(map[string]string{"status": "new"})
		return nil
	}
	newOwner := func() client.Object { return &corev1.ConfigMap{} }
	gone := &fleet.StateError{Err: fleet.ErrGone, Status: fleet.Status{Name: "needed"}}
	away := &fleet.StateError{Err: fleet.ErrNotReady, Status: fleet.Status{Name: mcreconcile.LocalCluster}}
	lacksTargets := func(context.Context, client.Object) ([]mcreconcile.ClusterName, error) { return nil, gone }
	statusFails := func(why error) func(context.Context, client.Object, []Result) error {
		return func(context.Context, client.Object, []Result) error { return why }
	}
	for name, tc := range map[string]struct {
		cfg     config
		plan    plan
		sites   []mcreconcile.ClusterName
		givenUp bool
		leaving bool
		want    error
		again   time.Duration // at most
		events  []string
		known   bool
	}{
		"it lives, and has nothing":          {known: true},
		"it waits for a cluster":             {plan: plan{mode: finishing}, sites: []mcreconcile.ClusterName{"a"}, known: true, events: []string{EventClusterNotReady}},
		"it waits for so long":               {cfg: config{releaseAfter: time.Hour}, plan: plan{mode: finishing}, sites: []mcreconcile.ClusterName{"a"}, known: true, again: time.Hour, events: []string{EventClusterNotReady}},
		"nothing is left of it":              {plan: plan{mode: finishing, propagation: metav1.DeletePropagationBackground}, events: []string{EventCreated}},
		"its cluster leaves, and it waits":   {plan: plan{mode: finishing}, sites: []mcreconcile.ClusterName{"a"}, leaving: true, want: errHeld, known: true, events: []string{EventClusterNotReady}},
		"its cluster leaves, and it is left": {plan: plan{mode: retiring}, sites: []mcreconcile.ClusterName{"a"}, leaving: true},
		"its cluster leaves, and it is late": {sites: []mcreconcile.ClusterName{"a"}, leaving: true, known: true, events: []string{EventClusterNotReady}},
		"its cluster leaves, and its kind has no status": {
			cfg: config{status: status, newOwner: newOwner}, plan: plan{mode: finishing}, sites: []mcreconcile.ClusterName{"a"}, leaving: true,
			want: errHeld, known: true, events: []string{EventFailed, EventClusterNotReady},
		},
		"it waits for so long, and its kind has no status": {
			cfg:  config{releaseAfter: time.Hour, status: status, newOwner: newOwner},
			plan: plan{mode: finishing}, sites: []mcreconcile.ClusterName{"a"}, known: true, again: time.Hour, events: []string{EventFailed, EventClusterNotReady},
		},
		"it cannot be noted that they stay": {
			plan: plan{mode: finishing, propagation: metav1.DeletePropagationOrphan}, givenUp: true, want: refused, known: true, events: []string{EventFailed},
		},
		"its targets need a cluster that is gone": {
			cfg: config{targets: lacksTargets}, sites: []mcreconcile.ClusterName{"a"}, known: true, again: mostPause,
			events: []string{EventClusterNotReady, EventClusterNotReady},
		},
		"and it waits for less": {
			cfg: config{targets: lacksTargets, releaseAfter: time.Second}, sites: []mcreconcile.ClusterName{"a"}, known: true, again: time.Second,
			events: []string{EventClusterNotReady, EventClusterNotReady},
		},
		"its status needs a cluster that is gone": {
			cfg:   config{status: statusFails(gone), newOwner: newOwner, releaseAfter: time.Second},
			sites: []mcreconcile.ClusterName{"a"}, known: true, again: time.Second, events: []string{EventClusterNotReady},
		},
		"its status needs one, and its cluster leaves": {
			cfg: config{status: statusFails(gone), newOwner: newOwner}, leaving: true, want: gone, known: true,
		},
		"its status is refused": {
			cfg: config{status: statusFails(refused), newOwner: newOwner}, want: refused, known: true, events: []string{EventFailed},
		},
		"its status needs its own cluster": {cfg: config{status: statusFails(away), newOwner: newOwner}, want: away, known: true},
		"it is unclear what becomes of them": {
			plan: plan{mode: finishing, unclear: errPolicy}, givenUp: true, known: true, events: []string{EventInvalidPolicy},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccounting(t, tc.cfg, &tc.plan, tc.sites...)
			a.engine.deletions = &deletions{seen: map[mcreconcile.Request]map[types.UID]deletion{a.o.req: {"1": {}}}}
			a.engine.tombs = &tombs{access: a.engine.access, name: "test", namespace: func() (string, error) { return "", refused }}
			home := a.hears(t)
			if tc.givenUp {
				testKeys.Write(a.o.plan.owner, record.Record{GivenUp: true}, true)
				home.owner = a.o.plan.owner.DeepCopyObject().(*corev1.ConfigMap) //nolint:forcetypeassert // so are all owners here
			}
			if name == "nothing is left of it" {
				a.o.did(EventCreated, "a", "ConfigMap a")
			}
			if tc.cfg.targets != nil {
				a.o.wantTargets()
			}
			ctx := t.Context()
			if tc.leaving {
				ctx = mcreconcile.WithLeaving(ctx)
			}
			result, err := a.engine.account(ctx, a.o, remote.Session{Cluster: home})
			if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) || result.RequeueAfter > tc.again || (result.RequeueAfter == 0) != (tc.again == 0) {
				t.Errorf("it ends with %+v, %v, want %v", result, err, tc.want)
			}
			if !slices.Equal(home.reasons, tc.events) {
				t.Errorf("the events are %q, want %q", home.reasons, tc.events)
			}
			if known := a.engine.ledger.get(a.o.req) != nil; known != tc.known {
				t.Errorf("it is known: %t", known)
			}
			owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
			a.engine.deletions.predicate(mcreconcile.LocalCluster, home).Delete(event.DeleteEvent{Object: owner})
			if settled := len(a.engine.deletions.seen) == 0; settled != (tc.plan.mode == finishing && !tc.known) {
				t.Errorf("how it was deleted matters no more: %t", settled)
			}
		})
	}
}

// TestAnAccountIsNotKeptInAnotherCluster that has the name of the owner's now: its owners are others.
func TestAnAccountIsNotKeptInAnotherCluster(t *testing.T) {
	t.Parallel()
	for now, kept := range map[types.UID]bool{"1": true, "": true, "2": false} {
		a := newAccounting(t, config{}, &plan{})
		a.o.plan.ref.ClusterUID = "1"
		a.o.did(EventCreated, "a", "ConfigMap a")
		home := a.hears(t)
		_, err := a.engine.account(t.Context(), a.o, remote.Session{ID: mcowner.ClusterID{UID: now}, Cluster: home})
		if err != nil || len(home.reasons) > 0 != kept {
			t.Errorf("in cluster %q it has the events %q, and ends with %v", now, home.reasons, err)
		}
	}
}

// TestAStatusThatGetsAPageIsWrittenAgain unless the API server says that the kind has none: a gateway may have answered.
func TestAStatusThatGetsAPageIsWrittenAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		has, away bool
		defined   bool // by a CustomResourceDefinition, whose API server names the owner
		again     bool
		events    []string
	}{
		"the kind has no status":  {events: []string{EventFailed}},
		"nor has its definition":  {defined: true, events: []string{EventFailed}},
		"the owner is gone":       {has: true, defined: true},
		"it has":                  {has: true, again: true},
		"a gateway answers still": {away: true, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccounting(t, config{
				newOwner: func() client.Object { return &corev1.ConfigMap{} },
				status: func(_ context.Context, owner client.Object, _ []Result) error {
					owner.SetLabels(map[string]string{"status": "new"})
					return nil
				},
			}, &plan{})
			home := a.hears(t)
			home.hasStatus, home.away, home.defined = tc.has, tc.away, tc.defined
			if _, err := a.engine.account(t.Context(), a.o, remote.Session{Cluster: home}); (err != nil) != tc.again {
				t.Errorf("the account ends with %v", err)
			}
			if !slices.Equal(home.reasons, tc.events) {
				t.Errorf("the events are %q, want %q", home.reasons, tc.events)
			}
		})
	}
}

// TestAConflictIsTriedAgainLaterEachTime, and many in a row are told once, unless the owner's cluster leaves, which waits for errors alone.
func TestAConflictIsTriedAgainLaterEachTime(t *testing.T) {
	t.Parallel()
	a := newAccounting(t, config{}, &plan{mode: finishing})
	a.engine.cfg.ownersIn.Local = true
	home := a.hears(t)
	home.owner.ResourceVersion = "2" // somebody has written to it
	at := remote.Session{Cluster: home}
	for i := range contended + 1 {
		want := 100 * time.Millisecond << i
		if result, err := a.engine.account(t.Context(), a.o, at); err != nil || result.RequeueAfter != want {
			t.Errorf("conflict %d ends with %+v, %v, want a pause of %s", i+1, result, err, want)
		}
		if read := len(a.engine.owners.early) > 0; read != (i > 0) {
			t.Errorf("after conflict %d the owner is to be read: %t", i+1, read)
		}
		if told := len(home.reasons) > 0; told != (i+1 >= contended) {
			t.Errorf("after conflict %d it is told: %t", i+1, told)
		}
	}
	if want := []string{EventContended}; !slices.Equal(home.reasons, want) {
		t.Errorf("the events are %q, want %q", home.reasons, want)
	}
	if _, err := a.engine.account(mcreconcile.WithLeaving(t.Context()), a.o, at); !apierrors.IsConflict(err) {
		t.Errorf("while the cluster leaves, a conflict ends with %v", err)
	}
	a.engine.ledger.replan(a.o, &plan{owner: home.read(false), ref: a.o.plan.ref}, testKeys)
	if _, err := a.engine.account(t.Context(), a.o, at); err != nil || a.o.conflicts != 0 {
		t.Errorf("after %d conflicts in a row the record is stored: %v", a.o.conflicts, err)
	}
}

// TestAnOwnerThatIsNotWatchedIsReadAgain as long as it is known, also after a conflict while its cluster leaves.
func TestAnOwnerThatIsNotWatchedIsReadAgain(t *testing.T) {
	t.Parallel()
	waiting := []mcreconcile.ClusterName{"a"}
	for name, tc := range map[string]struct {
		plan              plan
		sites             []mcreconcile.ClusterName
		watched, conflict bool
		read              int // asked for, after a conflict soon, and after a while
	}{
		"it is watched":             {plan: plan{mode: finishing}, sites: waiting, watched: true},
		"it is not":                 {plan: plan{mode: finishing}, sites: waiting, read: 1},
		"it is let go":              {plan: plan{mode: retiring}},
		"others have changed it":    {plan: plan{mode: retiring}, conflict: true, read: 2},
		"and the watch tells of it": {plan: plan{mode: retiring}, conflict: true, watched: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccounting(t, config{}, &tc.plan, tc.sites...)
			home := a.hears(t)
			a.engine.cfg.ownersIn.Local = tc.watched
			ctx := t.Context()
			if tc.conflict {
				home.owner.ResourceVersion = "2"
				ctx = mcreconcile.WithLeaving(ctx)
			}
			if _, err := a.engine.account(ctx, a.o, remote.Session{Cluster: home}); apierrors.IsConflict(err) != tc.conflict {
				t.Errorf("the account ends with %v", err)
			}
			if read := len(a.engine.owners.early); read != tc.read {
				t.Errorf("it is to be read %d times, want %d", read, tc.read)
			}
		})
	}
}

// TestWhenAnOwnerThatIsLetGoGoesOnAsItIs, which saves looks at its clusters: if nothing has changed about it.
func TestWhenAnOwnerThatIsLetGoGoesOnAsItIs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		plan   plan
		change func(*corev1.ConfigMap)
		goes   bool
	}{
		"it is as it was":         {plan: plan{mode: retiring}, goes: true},
		"so it is, being deleted": {plan: plan{mode: finishing}, goes: true},
		"it was not let go":       {plan: plan{mode: serving}},
		"its policy was unclear":  {plan: plan{mode: finishing, unclear: errPolicy}},
		"it was changed":          {plan: plan{mode: retiring}, change: func(cm *corev1.ConfigMap) { cm.ResourceVersion = "2" }},
		"it is another one":       {plan: plan{mode: retiring}, change: func(cm *corev1.ConfigMap) { cm.UID = "2" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccounting(t, config{}, &tc.plan, "a")
			now := a.o.plan.owner.DeepCopyObject().(*corev1.ConfigMap) //nolint:forcetypeassert // so are all owners here
			if tc.change != nil {
				tc.change(now)
			}
			if goes := a.o.goesAs(remote.Session{}, now); goes != tc.goes {
				t.Errorf("it goes on: %t", goes)
			}
			if a.o.goesAs(remote.Session{Engagement: &fleet.Engagement{}}, now) {
				t.Error("its cluster is connected anew, and it goes on")
			}
		})
	}
}

// TestAClusterThatIsNoTargetWaitsForTheTargets if it has asked to be worked on, while targets go on.
func TestAClusterThatIsNoTargetWaitsForTheTargets(t *testing.T) {
	t.Parallel()
	const target, other = mcreconcile.ClusterName("target"), mcreconcile.ClusterName("other")
	a := newAccounting(t, config{}, &plan{targets: []mcreconcile.ClusterName{target}}, target, other)
	for _, name := range []mcreconcile.ClusterName{target, other} {
		a.o.report(name, view{plan: a.o.plan}, report{again: true})
	}
	a.unknown = errors.New("the placement service does not answer")
	a.mustOpen(t)
	a.settle()
	if !a.asked[target] || a.asked[other] {
		t.Errorf("without the targets, clusters have asked: %v", a.asked)
	}
	a.unknown = nil
	a.mustOpen(t)
	a.settle()
	if a.asked[target] || !a.asked[other] || a.o.parts[other].again {
		t.Errorf("once they are known, clusters have asked: %v", a.asked)
	}
}

// TestARecordThatCannotBeReadMeansEveryCluster: there may be dependents in any, also in one that is not in the fleet, and what is stored is
// what can be read again.
func TestARecordThatCannotBeReadMeansEveryCluster(t *testing.T) {
	t.Parallel()
	a := newAccounting(t, config{dependentsIn: mcowner.Clusters{Local: true}}, &plan{}, "a")
	a.o.plan.owner.GetAnnotations()[testKeys.Clusters] = "{"
	a.mustOpen(t)
	if want := []record.Site{{Name: mcreconcile.LocalCluster}}; !slices.Equal(a.record.Sites, want) || !slices.Equal(a.o.record.Sites, want) {
		t.Errorf("there may be dependents in %v, want %v", a.record.Sites, want)
	}
	if !a.record.GivenUp || !a.o.record.GivenUp {
		t.Error("nothing says that there may be dependents elsewhere")
	}
}

// TestATargetThatCannotBeUsedIsNotNoted: nothing can be created there before it is.
func TestATargetThatCannotBeUsedIsNotNoted(t *testing.T) {
	t.Parallel()
	a := newAccounting(t, config{}, &plan{targets: []mcreconcile.ClusterName{"unknown"}}, "a")
	a.engine.cfg.desired = func(context.Context, client.Object, Target) ([]client.Object, error) { return nil, nil }
	a.mustOpen(t)
	a.addTargets(t.Context())
	if names := record.Names(a.record.Sites); !slices.Equal(names, []mcreconcile.ClusterName{"a"}) || len(a.again) > 0 {
		t.Errorf("the record has %q, and %v are to be worked on", names, a.again)
	}
}

// TestAClusterNotedOnAStateThatCannotBePlannedCouldBeUsed when the targets were found: what is there is removed once it is none.
func TestAClusterNotedOnAStateThatCannotBePlannedCouldBeUsed(t *testing.T) {
	t.Parallel()
	none := func(context.Context, client.Object) ([]mcreconcile.ClusterName, error) { return nil, nil }
	a := newAccounting(t, config{targets: none}, &plan{})
	noted := a.o.plan.owner.DeepCopyObject().(*corev1.ConfigMap)
	noted.ResourceVersion = "2"
	a.o.isRead(unplanned{owner: noted, ref: mcowner.Reference{UID: "1"}})
	noted = noted.DeepCopy()
	noted.ResourceVersion = "3"
	testKeys.Write(noted, record.Record{Sites: []record.Site{{Name: mcreconcile.LocalCluster}}}, true)
	a.o.storedLocked(noted, true)
	a.o.recordLocked(a.o.readLocked(a.o.owner(), testKeys))
	p := *a.o.plan
	if err := a.engine.aim(t.Context(), a.o, &p); err != nil {
		t.Fatal(err)
	}
	if _, is := p.usable[mcreconcile.LocalCluster]; !is {
		t.Error("it counts as one that could not be used")
	}
}

// TestAClusterThatIsATargetAgainIsPending until it was looked at as one: what was done there was to remove all.
func TestAClusterThatIsATargetAgainIsPending(t *testing.T) {
	t.Parallel()
	a := newAccounting(t, config{}, &plan{targets: []mcreconcile.ClusterName{mcreconcile.LocalCluster}})
	a.mustOpen(t)
	for _, targeted := range []bool{false, true} {
		a.o.report(mcreconcile.LocalCluster, view{plan: a.o.plan, targeted: targeted}, report{Result: Result{Targeted: targeted}})
		if results := a.results(); len(results) != 1 || (results[0].Err == nil) != targeted {
			t.Errorf("looked at as a target: %t, the results are %v", targeted, results)
		}
	}
}

// TestWhatAClusterWaitsForIsNotToldOfAChangedOwner before it was looked at again; what is wrong there is.
func TestWhatAClusterWaitsForIsNotToldOfAChangedOwner(t *testing.T) {
	t.Parallel()
	halted, refused := fmt.Errorf("%w: %w", ErrWaiting, ErrHalted), errors.New("refused")
	for err, want := range map[error]error{nil: ErrPending, halted: ErrPending, refused: refused} {
		a := newAccounting(t, config{}, &plan{seq: 2, asked: 1, targets: []mcreconcile.ClusterName{mcreconcile.LocalCluster}})
		p := a.o.partLocked(mcreconcile.LocalCluster)
		p.done, p.seq, p.result = true, 1, Result{Targeted: true, Err: err}
		a.mustOpen(t)
		if got := a.results()[0].Err; !errors.Is(got, err) {
			t.Errorf("%v: the result is %v", err, got)
		}
		a.plan.asked = 2
		if got := a.results()[0].Err; !errors.Is(got, want) {
			t.Errorf("%v: once the owner was changed, the result is %v", err, got)
		}
	}
}

// TestAnOwnerWhoseRecordCannotBeReadIsAskedForItsTargets where there are owners; elsewhere anybody may name one.
func TestAnOwnerWhoseRecordCannotBeReadIsAskedForItsTargets(t *testing.T) {
	t.Parallel()
	targets := func(context.Context, client.Object) ([]mcreconcile.ClusterName, error) {
		return []mcreconcile.ClusterName{"east"}, nil
	}
	a := newAccounting(t, config{targets: targets}, &plan{})
	for in, want := range map[mcreconcile.ClusterName]int{mcreconcile.LocalCluster: 1, "west": 0} {
		read := &unplanned{owner: a.o.plan.owner, ref: mcowner.Reference{Cluster: in, UID: "1"}}
		if p := a.engine.planUnread(t.Context(), read); len(p.targets) != want {
			t.Errorf("in %q it has the targets %v", in, p.targets)
		}
	}
}

// TestATargetThatComesLateIsNotStuckForThat: it is pending since it was asked for, however long its owner has been at rest.
func TestATargetThatComesLateIsNotStuckForThat(t *testing.T) {
	t.Parallel()
	a := newAccounting(t, config{}, &plan{rollout: Rollout{ProgressDeadline: time.Minute}})
	a.o.plan.since = time.Now().Add(-time.Hour)
	a.engine.cfg.targets = func(context.Context, client.Object) ([]mcreconcile.ClusterName, error) {
		return []mcreconcile.ClusterName{mcreconcile.LocalCluster}, nil
	}
	a.o.wantTargets()
	if err := a.engine.retargeted(t.Context(), a.o); err != nil {
		t.Fatal(err)
	}
	a.mustOpen(t)
	a.noteAsked()
	first := a.results()[0]
	if !errors.Is(first.Err, ErrPending) || first.Stuck || time.Since(first.Since) > time.Minute {
		t.Errorf("it is %+v", first)
	}
	a.noteAsked()
	if again := a.results()[0]; !again.Since.Equal(first.Since) {
		t.Errorf("it is pending since %s, then since %s", first.Since, again.Since)
	}
}

// TestAClusterIsAskedSinceItCanBeUsed: what it was asked for before that does not count.
func TestAClusterIsAskedSinceItCanBeUsed(t *testing.T) {
	t.Parallel()
	a := newAccounting(t, config{}, &plan{targets: []mcreconcile.ClusterName{mcreconcile.LocalCluster, "away"}})
	a.mustOpen(t)
	a.o.partLocked("away").asked = time.Now().Add(-time.Hour)
	a.noteAsked()
	if since := a.o.parts["away"].asked; !since.IsZero() {
		t.Errorf("one that cannot be used is asked since %s", since)
	}
	since := a.o.parts[mcreconcile.LocalCluster].asked
	if a.noteAsked(); since.IsZero() || !a.o.parts[mcreconcile.LocalCluster].asked.Equal(since) {
		t.Errorf("one that can be used is asked since %s", since)
	}
	v, _ := a.o.begin(mcreconcile.LocalCluster)
	a.o.report(mcreconcile.LocalCluster, v, report{Result: Result{Targeted: true, Err: ErrWaiting}})
	p := a.o.parts[mcreconcile.LocalCluster]
	p.away, p.result.Since = true, time.Now().Add(-time.Hour)
	if a.noteAsked(); p.away || time.Since(p.result.Since) > time.Minute {
		t.Errorf("one that is back waits since %s", p.result.Since)
	}
	if a.noteAsked(); !a.o.parts[mcreconcile.LocalCluster].asked.IsZero() {
		t.Error("one in which all was done is asked for something")
	}
}

// TestAStatusThatSaysTheSameIsNotWritten, and one that cannot be found is an error.
func TestAStatusThatSaysTheSameIsNotWritten(t *testing.T) {
	t.Parallel()
	var why error
	a := newAccounting(t, config{status: func(context.Context, client.Object, []Result) error { return why }}, &plan{})
	a.mustOpen(t)
	a.home = remote.Session{Cluster: a.hears(t)} // which would not take a status
	if err := a.writeStatus(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if why = errors.New("refused"); !errors.Is(a.writeStatus(t.Context(), nil), why) {
		t.Error("the error of the function is lost")
	}
}

// TestAClusterThatIsReportedNowKeepsItsFailure until the targets are found anew: it may be one.
func TestAClusterThatIsReportedNowKeepsItsFailure(t *testing.T) {
	t.Parallel()
	const reported = mcreconcile.LocalCluster
	p := &plan{rollout: Rollout{HaltAfter: 1}, targets: []mcreconcile.ClusterName{"a"}}
	a := newAccounting(t, config{}, p, "a", reported)
	a.o.progress.Recall(record.NewFailures(p.revision.String(), []mcreconcile.ClusterName{reported}))
	a.o.wantTargets()
	if a.engine.takeBack(a.o); !a.o.progress.HasFailed(reported) {
		t.Error("it counts as failed no more, and the rollout goes on")
	}
}

// TestWhatIsDoneAlthoughTheRecordCannotBeStored: the status is written, and what an owner that is being deleted has is removed. What waits for the
// record is not asked for again and again, nor is anything said of an owner that waits for nothing.
func TestWhatIsDoneAlthoughTheRecordCannotBeStored(t *testing.T) {
	t.Parallel()
	const here = mcreconcile.LocalCluster
	for name, tc := range map[string]struct {
		mode     mode
		asked    bool // the cluster has been worked on, and waits for the record
		unheld   bool
		unread   bool // it is not known what the record has
		nowhere  bool // of no cluster is known that the owner has something there
		why      error
		reported bool
		works    int
	}{
		"it lives":                {mode: serving, why: errKept, reported: true},
		"it is being deleted":     {mode: finishing, why: errKept, reported: true, works: 1},
		"and waits for that":      {mode: finishing, asked: true, why: errKept, reported: true},
		"nothing is left of it":   {mode: finishing, unheld: true, why: errKept},
		"another one has written": {mode: finishing, why: record.ErrOutdated},
		"it cannot be read":       {mode: finishing, unread: true, why: errKept, reported: true},
		"nor where it is":         {mode: finishing, unread: true, nowhere: true, why: errKept},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reported := false
			status := func(context.Context, client.Object, []Result) error { reported = true; return nil }
			a := newAccounting(t, config{status: status}, &plan{mode: tc.mode}, here)
			synctest.Test(t, func(t *testing.T) {
				queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[work]())
				defer queue.ShutDown()
				if err := a.engine.works.Start(t.Context(), queue); err != nil {
					t.Fatal(err)
				}
				if tc.asked {
					a.o.report(here, view{plan: a.o.plan}, report{again: true})
				}
				a.mustOpen(t)
				if tc.unread {
					a.unread = Result{Err: tc.why}
				}
				if tc.nowhere {
					a.record.Sites = nil
				}
				a.goOnUnkept(t.Context(), !tc.unheld, tc.why)
				<-time.After(time.Second)
				if reported != tc.reported || queue.Len() != tc.works {
					t.Errorf("the status is written: %t, and %d pieces of work are to be done, want %t and %d", reported, queue.Len(), tc.reported, tc.works)
				}
			})
		})
	}
}
