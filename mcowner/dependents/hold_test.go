package dependents

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestAMemberLeavesNotBeforeItsWorkersHaveTheWait: a source of theirs that has not started may hold it back.
func TestAMemberLeavesNotBeforeItsWorkersHaveTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAccounting(t, config{}, &plan{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := (members{a.engine}).Replay(ctx, &fleet.Engagement{}); !errors.Is(err, context.Canceled) {
			t.Errorf("before the start, Replay() = %v", err)
		}
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[work]())
		defer queue.ShutDown()
		done := make(chan error, 1)
		go func() { done <- members{a.engine}.Replay(t.Context(), &fleet.Engagement{}) }()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("the controller has not started, and Replay() is over")
		}
		if err := a.engine.works.Start(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || queue.Len() != 1 {
			t.Errorf("Replay() = %v, and %d pieces of work are queued, want one", err, queue.Len())
		}
	})
}

// withMembers is a hub that has members.
type withMembers struct{ hubOf }

// GetProvider implements mcmanager.Manager.
func (*withMembers) GetProvider() fleet.Provider { return &fleettest.Provider{} }

// TestAMemberLeavesOnceItIsStoredThatAnOwnerHasNothingThere, and not once that is known: after a restart the owner would
// wait for the member.
func TestAMemberLeavesOnceItIsStoredThatAnOwnerHasNothingThere(t *testing.T) {
	t.Parallel()
	f, _ := fleettest.Run(t, fleet.Options{})
	a := newAccounting(t, config{}, &plan{}, "a")
	a.engine.cfg.ownersIn = mcowner.Clusters{Members: labels.Nothing()}
	a.engine.access = remote.NewAccess(&withMembers{hubOf{fleet: f.Fleet}}, "test", time.Second, true)
	leaving := mcreconcile.WithLeaving(mcreconcile.WithCluster(t.Context(), "a", engage(t, f, "1").Cluster()))
	holds := func(why string) {
		t.Helper()
		if err := a.engine.holdUp(leaving); !errors.Is(err, errOwnersElsewhere) {
			t.Errorf("while %s, holdUp() = %v", why, err)
		}
	}
	holds("the record has the member")
	v, _ := a.o.in("a")
	a.o.report("a", v, report{drop: v.sites})
	a.mustOpen(t)
	holds("the record is being stored without it")
	if a.settle(); a.engine.holdUp(leaving) != nil {
		t.Error("the record is stored without the member, and it does not leave")
	}
}

// slowly serves no kind, and takes a second to say so.
type slowly struct{ servesNothing }

func (c *slowly) GetRESTMapper() meta.RESTMapper { return c }

func (c *slowly) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	<-time.After(time.Second)
	return c.servesNothing.RESTMapping(kind, versions...)
}

// holding is the engine of a controller with owners in members that leaves have to wait for. Each owner has a target, and as many kinds as it
// can note.
func holding(t *testing.T, targets ...mcreconcile.ClusterName) *engine {
	t.Helper()
	c := newAccounting(t, config{}, &plan{}).engine
	c.cfg.ownersIn, c.watches = mcowner.Clusters{Members: labels.Nothing()}, newWatches("", "", nil, nil)
	all := numberedKinds(len(targets) * record.MostKinds)
	for i, target := range targets {
		owner := ownerWith(record.Record{Kinds: all[i*record.MostKinds : (i+1)*record.MostKinds]}, true)
		p := &plan{owner: owner, ref: mcowner.Reference{UID: "1"}, targets: []mcreconcile.ClusterName{target}}
		c.ledger.replan(c.ledger.of(mcreconcile.Request{ClusterName: mcreconcile.ClusterName(fmt.Sprint(i))}, "1"), p, testKeys)
	}
	return c
}

// TestAMemberThatLeavesIsLookedAtForAsManyKindsAsAnOwnerCanNote, and for none of owners that have nothing to do with it, but for what is watched.
func TestAMemberThatLeavesIsLookedAtForAsManyKindsAsAnOwnerCanNote(t *testing.T) {
	t.Parallel()
	c := holding(t, "a", "a", "b")
	c.watches.locally[schema.GroupVersionKind{Version: "v1", Kind: "Watched"}] = true
	for name, want := range map[mcreconcile.ClusterName]int{"a": record.MostKinds + 1, "b": record.MostKinds + 1, "c": 1} {
		kinds, err := c.kindsIn(t.Context(), remote.Session{ID: mcowner.ClusterID{Name: name}})
		if err != nil || len(kinds) != want {
			t.Errorf("it is %d kinds in cluster %s, want %d: %v", len(kinds), name, want, err)
		}
	}
}

// sharing is a replica's hub with owners, which others work on.
type sharing struct {
	withMembers
	cache.Cache

	owners []corev1.ConfigMap
}

// GetCache implements cluster.Cluster.
func (s *sharing) GetCache() cache.Cache { return s }

// List implements cache.Cache.
func (s *sharing) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.ConfigMapList).Items = s.owners //nolint:forcetypeassert // of nothing else
	return nil
}

// TestAMemberThatLeavesIsLookedAtForKindsOfOwnersThatNameItFirst: of others it is not known whether they have something there.
func TestAMemberThatLeavesIsLookedAtForKindsOfOwnersThatNameItFirst(t *testing.T) {
	t.Parallel()
	names := *ownerWith(record.Record{Kinds: []schema.GroupVersionKind{{Version: "v1", Kind: "Named"}}, Sites: []record.Site{{Name: "a"}}}, true)
	others := *ownerWith(record.Record{Kinds: numberedKinds(record.MostKinds), Slices: &record.Slices{}}, true)
	c := holding(t, "a")
	c.owner = remote.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Proto: &corev1.ConfigMap{}}
	c.cfg.ownersIn.Local = true
	f := fleet.New(fleet.Options{Ownership: struct{ fleet.Ownership }{}})
	hub := &sharing{withMembers: withMembers{hubOf{fleet: f}}, owners: []corev1.ConfigMap{others, names}}
	c.access = remote.NewAccess(hub, "test", time.Second, true)
	kinds, err := c.kindsIn(t.Context(), remote.Session{ID: mcowner.ClusterID{Name: "a"}})
	if err != nil || len(kinds) != record.MostKinds || kinds[0].Kind != "Named" {
		t.Errorf("it is looked at for %d kinds, the first is %v: %v", len(kinds), kinds[:min(1, len(kinds))], err)
	}
}

// TestALookAtManyKindsLetsOthersHaveTheWorker, and goes on where it was: each kind is asked for once.
func TestALookAtManyKindsLetsOthersHaveTheWorker(t *testing.T) {
	t.Parallel()
	c := holding(t, "a")
	synctest.Test(t, func(t *testing.T) {
		c.access.Timeout = 10 * time.Second
		nowhere := &slowly{}
		at := remote.Session{ID: mcowner.ClusterID{Name: "a"}, Cluster: nowhere}
		for may := true; may; {
			begun, asked := time.Now(), nowhere.asked
			if asked > record.MostKinds {
				t.Fatalf("the cluster was asked %d times, and the look is not over", asked)
			}
			var err error
			if may, err = c.hasDependents(t.Context(), at, nil); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > c.access.Timeout+2*time.Second || nowhere.asked == asked {
				t.Fatalf("it took %s, for %d kinds", took, nowhere.asked-asked)
			}
		}
		if nowhere.asked != record.MostKinds {
			t.Errorf("the cluster was asked %d times for %d kinds", nowhere.asked, record.MostKinds)
		}
		if look, _ := c.leaves.Get(at, nil); len(look.lacks) > 0 {
			t.Errorf("of %d kinds it is remembered that they were looked at", len(look.lacks))
		}
	})
}

// TestAMemberThatStaysAfterAllIsLookedAtAnewWhenItLeaves: there may be something meanwhile of what was gone.
func TestAMemberThatStaysAfterAllIsLookedAtAnewWhenItLeaves(t *testing.T) {
	t.Parallel()
	c := holding(t, "a")
	synctest.Test(t, func(t *testing.T) {
		c.access.Timeout = 10 * time.Second
		nowhere := &slowly{}
		at := remote.Session{ID: mcowner.ClusterID{Name: "a"}, Cluster: nowhere}
		if may, err := c.hasDependents(t.Context(), at, nil); !may || err != nil {
			t.Fatalf("the look is over: %t, %v", !may, err)
		}
		<-time.After(c.access.Timeout) // for so long it is remembered what is not served, and kinds come in any order
		before := nowhere.asked
		look, _ := c.leaves.Get(at, nil)
		look.times.Add(1)
		for may, err := true, error(nil); may; {
			if may, err = c.hasDependents(t.Context(), at, nil); err != nil {
				t.Fatal(err)
			}
		}
		if n := nowhere.asked - before; n != record.MostKinds {
			t.Errorf("the cluster was asked %d times for %d kinds", n, record.MostKinds)
		}
	})
}

// TestWhatAMemberLackedIsForgottenWhenItLeavesOnceMore: it has stayed after all, and there may be something meanwhile.
func TestWhatAMemberLackedIsForgottenWhenItLeavesOnceMore(t *testing.T) {
	t.Parallel()
	f, _ := fleettest.Run(t, fleet.Options{})
	c, e := holding(t, "a"), engage(t, f, "1")
	look, err := c.leaves.Get(remote.Session{Engagement: e}, newLeaveLook)
	if err != nil {
		t.Fatal(err)
	}
	look.lacks[schema.GroupKind{Kind: "ConfigMap"}] = true
	if look.begin(); len(look.lacks) == 0 {
		t.Error("it is forgotten while the member leaves")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no queue has started, and nobody waits for one
	if err := (members{c}).Replay(ctx, e); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if look.begin(); len(look.lacks) > 0 {
		t.Error("it is known still")
	}
}

// TestWhatPassesByItselfIsWaitedFor: an owner whose planning has failed for that is planned soon.
func TestWhatPassesByItselfIsWaitedFor(t *testing.T) {
	t.Parallel()
	req := mcreconcile.Request{ClusterName: "east"}
	for name, tc := range map[string]struct {
		err  error
		vain bool
	}{
		"it is planned":                        {},
		"its targets are not known":            {errors.New("nobody knows"), true},
		"its cluster is not known":             {fmt.Errorf("cluster: %w", mcmanager.ErrNoIdentity), true},
		"the one before it cannot be noted":    {fmt.Errorf("noting: %w", errNoNamespace), true},
		"its cluster gives no answer":          {fmt.Errorf("reading: %w", context.DeadlineExceeded), false},
		"its cluster knows nobody, for now":    {errNobody, false},
		"its cluster cannot be used":           {&fleet.StateError{Err: fleet.ErrNotReady}, false},
		"it was written by another, meanwhile": {record.ErrOutdated, false},
		"no event tells yet how it is deleted": {errUnseenDeletion, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger()
			l.tried(req, errors.New("it was in vain before"))
			if l.tried(req, tc.err); l.isVain(req) != tc.vain {
				t.Errorf("it is vain: %t, want %t", !tc.vain, tc.vain)
			}
			if l.forgetOrigin("east"); len(l.vain) > 0 {
				t.Error("it is remembered when its cluster is forgotten")
			}
		})
	}
}
