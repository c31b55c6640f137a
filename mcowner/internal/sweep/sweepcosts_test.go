package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestLooksListTheMembersOnce: an owner that goes may have had dependents in thousands of them, and each is looked at.
func TestLooksListTheMembersOnce(t *testing.T) {
	t.Parallel()
	names, lists := []mcreconcile.ClusterName{"a", "b", "c"}, 0
	s := &Sweeper{log: logr.Discard(), clusters: map[mcreconcile.ClusterName]*sweepMemory{}, names: func() []mcreconcile.ClusterName {
		lists++
		return names
	}}
	for _, name := range append(slices.Clone(names), "gone") {
		s.Look(name)
	}
	now, _ := s.toLookAt(s.byCaches())
	if len(now) != len(names) || lists != 1 {
		t.Errorf("%d clusters are looked at, want %d; the members were listed %d times for that", len(now), len(names), lists)
	}
}

// TestASweepAsksForAnOwnerWithSlicesOnce for all its dependents in a cluster: what an API server has said of one holds for the others,
// and slices are read whole.
func TestASweepAsksForAnOwnerWithSlicesOnce(t *testing.T) {
	t.Parallel()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}}
	record.NewKeys("payments", "copier").Write(owner, record.Record{Slices: &record.Slices{Namespace: "default"}}, true)
	mgr := &known{owner: owner}
	mgr.sweepDependents(t, "copier", func(c *sweepMemory) *pass { return &c.listed })
	if gets, lists := mgr.gets.Load(), mgr.lists.Load(); gets != 1 || lists != 1 {
		t.Errorf("the owner was asked for %d times, and its slices %d times", gets, lists)
	}
}

// TestASweepAsksOnceForAnOwnerThatHasNothingNotedThere, and tells its controller once: whoever may write references to an owner with
// slices has these read whole by each.
func TestASweepAsksOnceForAnOwnerThatHasNothingNotedThere(t *testing.T) {
	t.Parallel()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}}
	said := record.Record{GivenUp: true, Slices: &record.Slices{Namespace: "default"}}
	record.NewKeys("payments", "copier").Write(owner, said, true)
	mgr, told := &known{owner: owner}, 0
	mgr.stray = func(mcowner.Reference, mcreconcile.ClusterName) { told++ }
	mgr.sweepDependents(t, "copier", func(c *sweepMemory) *pass { return &c.listed })
	if gets, lists := mgr.gets.Load(), mgr.lists.Load(); gets != 1 || lists != 1 || told != 1 {
		t.Errorf("the owner was asked for %d times, and its slices %d times; its controller was told %d times", gets, lists, told)
	}
}

// TestWhatFailedInASweepIsToldInFewWords: where removals are refused, each dependent has an error, and there may be any number of them. What
// servers say may be long, or a secret.
func TestWhatFailedInASweepIsToldInFewWords(t *testing.T) {
	t.Parallel()
	s := knownSweeper(&ownerless{})
	s.OwnersIn, s.limit = mcowner.Clusters{Local: true}, newLimit(1_000_000)
	token := "eyJ" + strings.Repeat("x", 100) // servers quote what was sent to them
	s.Keep = func(context.Context, mcowner.Reference) (bool, error) {
		return false, errors.New("refused, for " + token + strings.Repeat(" such a long story", 100_000))
	}
	var logged []string
	s.log = funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	in := mcowner.ClusterID{UID: "here"}
	each := func(_ context.Context, _ remote.Session, _ remote.Kind, _ *sweepMemory, do func(client.Object) error) (bool, error) {
		for i := range 1000 {
			dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("dependent-", i)}}
			of := mcowner.Reference{Fleet: "payments", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "gone", UID: "1", ClusterUID: in.UID}
			if err := errors.Join(mcowner.SetControllerReference(of, dependent, in), do(dependent)); err != nil {
				t.Error(err)
			}
		}
		return true, nil
	}
	s.sweep(t.Context(), s.memory(mcreconcile.LocalCluster), way{each: each, pass: func(c *sweepMemory) *pass { return &c.listed }, places: newPlaces()})
	all := strings.Join(logged, "\n")
	isTold := strings.Contains(all, "dependent-0 is to stay: refused") && strings.Contains(all, "990 more")
	if len(logged) != 1 || len(all) > 5000 || !isTold || strings.Contains(all, token) {
		t.Errorf("the log has %d lines, which begin with %.300s", len(logged), all)
	}
}

// TestWhetherADependentIsToStayIsAskedWithinTheLimit: it is asked for each owner that is gone, and strangers name hundreds.
func TestWhetherADependentIsToStayIsAskedWithinTheLimit(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := knownSweeper(&ownerless{})
			s.DryRun = true
			asked := 0
			s.Keep = func(context.Context, mcowner.Reference) (bool, error) {
				asked++
				return keep, nil
			}
			before := time.Now()
			if err := s.remove(t.Context(), remote.Session{}, s.kinds[0], &corev1.ConfigMap{}, make([]mcowner.Reference, 101), &findings{turn: turn{places: newPlaces()}}, s.log); err != nil {
				t.Error(err)
			}
			if took := time.Since(before); !keep && (asked != 101 || took < 4*time.Second) || keep && asked != 1 {
				t.Errorf("where the answer is %t, it was asked %d times within %s", keep, asked, took)
			}
		})
	}
}

// TestEachRequestOfASweepIsWithinTheLimit: for an owner, for whether its dependent is to stay, and for the removal.
func TestEachRequestOfASweepIsWithinTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mgr := &hanging{}
		s := mgr.sweeper()
		s.kinds = s.proof.owners
		var kept atomic.Int32
		s.Keep = func(context.Context, mcowner.Reference) (bool, error) {
			kept.Add(1)
			return false, nil
		}
		all := make([]client.Object, 100)
		for n := range all {
			all[n] = dependent(t, mcreconcile.LocalCluster, fmt.Sprint("orphan-", n), "owner", 1, "here")
		}
		var requests atomic.Int32
		time.AfterFunc(5*time.Second, func() { requests.Store(mgr.gets.Load() + kept.Load() + mgr.deleted.Load()) })
		sweepOf(t, s, all)
		if n := requests.Load(); n == 0 || n > 101 || mgr.deleted.Load() != 100 {
			t.Errorf("there were %d requests in five seconds, want 101 at most; %d orphans were deleted", n, mgr.deleted.Load())
		}
	})
}

// shelved is known, with slices of the owner on so many pages, each of which takes a while.
type shelved struct {
	known

	pages   int
	takes   time.Duration
	changed atomic.Bool // the owner is
}

// Get implements client.Reader.
func (s *shelved) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := s.known.Get(ctx, key, obj, opts...)
	if s.changed.Load() {
		obj.SetResourceVersion("changed")
	}
	return err
}

// GetAPIReader implements cluster.Cluster.
func (s *shelved) GetAPIReader() client.Reader { return s }

// List answers with a page.
func (s *shelved) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
	}
	if s.lists.Add(1) < int32(s.pages) {
		list.SetContinue("more")
	}
	return ctx.Err()
}

// TestEachPageOfSlicesIsWithinTheLimit, for which it waits as long as it takes. A list without end ends all the same, and so does one that is slow.
func TestEachPageOfSlicesIsWithinTheLimit(t *testing.T) {
	t.Parallel()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}}
	record.NewKeys("payments", "copier").Write(owner, record.Record{GivenUp: true, Slices: &record.Slices{Namespace: "default"}}, true)
	ref := mcowner.Reference{
		Fleet: "payments", Manager: "copier", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "a", UID: "1", ClusterUID: "here",
	}
	for name, tc := range map[string]struct {
		pages       int
		takes       time.Duration
		least, most time.Duration
		hung        bool
		unproven    bool
		changes     bool // the owner, meanwhile
	}{
		"as many as there may be": {pages: 100, takes: 10 * time.Millisecond, least: 100 * time.Second, most: 102 * time.Second},
		"and the owner changes":   {pages: 100, takes: 10 * time.Millisecond, least: 100 * time.Second, most: 102 * time.Second, unproven: true, changes: true},
		"without end":             {pages: 1 << 20, takes: time.Millisecond, least: 100 * time.Second, most: 5 * time.Minute, unproven: true},
		"slow":                    {pages: 100, takes: 4 * time.Second, least: 10 * time.Second, most: 15 * time.Second, unproven: true, hung: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				shelf := &shelved{known: known{owner: owner}, pages: tc.pages, takes: tc.takes}
				s := knownSweeper(shelf)
				s.limit = newLimit(1)
				found := &findings{turn: turn{unsure: map[ownerHash]error{}}, unheard: map[ownersOf]struct{}{}}
				began := time.Now()
				if tc.changes {
					time.AfterFunc(tc.least/2, func() { shelf.changed.Store(true) })
				}
				is, err := s.prove(t.Context(), ref, "member", found)
				if took := time.Since(began); took < tc.least || took > tc.most || is.stray == tc.unproven || remote.IsHung(err) != tc.hung {
					t.Errorf("after %s it is a stray: %t, %v", took, is.stray, err)
				}
			})
		})
	}
}

// TestANamespaceThatCannotBeListedHoldsUpNoOther: rights are often of single namespaces, and not all of them are in each member.
func TestANamespaceThatCannotBeListedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want []string
	}{
		"forbidden":           {apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", nil), []string{"a", "b"}},
		"broken in one":       {apierrors.NewBadRequest("on purpose"), []string{"a", "b"}},
		"without an answer":   {apierrors.NewTimeoutError("on purpose", 1), []string{"a"}},
		"without such a kind": {&meta.NoKindMatchError{}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mgr := &namespaced{errs: map[string]error{"a": tc.err}}
			s := knownSweeper(mgr)
			s.Namespaces, s.limit = []string{"a", "b"}, newLimit(1000)
			found := 0
			err := s.scan(t.Context(), remote.Session{Cluster: mgr}, s.kinds[0], func(client.Object) error {
				found++
				return nil
			})
			if !slices.Equal(mgr.asked, tc.want) || found != len(tc.want)-1 || err == nil && !meta.IsNoMatchError(tc.err) {
				t.Errorf("the namespaces %v were listed, want %v, with %d objects: %v", mgr.asked, tc.want, found, err)
			}
		})
	}
}

// TestAListThatIsRefusedInSomeNamespacesIsNotRefused, if it fails in others: it is tried again for these.
func TestAListThatIsRefusedInSomeNamespacesIsNotRefused(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", nil)
	broken := errors.New("connection reset")
	for name, tc := range map[string]struct {
		errs    map[string]error
		refused bool
	}{
		"broken in the first":  {map[string]error{"a": broken, "b": forbidden}, false},
		"broken in the second": {map[string]error{"a": forbidden, "b": broken}, false},
		"forbidden in both":    {map[string]error{"a": forbidden, "b": forbidden}, true},
		"forbidden in one":     {map[string]error{"b": forbidden}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mgr := &namespaced{errs: tc.errs}
			s := knownSweeper(mgr)
			s.Namespaces, s.limit = []string{"a", "b"}, newLimit(1000)
			err := s.scan(t.Context(), remote.Session{Cluster: mgr}, s.kinds[0], func(client.Object) error { return nil })
			if apierrors.IsForbidden(err) != tc.refused || !strings.Contains(err.Error(), "forbidden") || errors.Is(err, broken) == tc.refused {
				t.Errorf("it counts as forbidden: %t, want %t: %v", apierrors.IsForbidden(err), tc.refused, err)
			}
		})
	}
}

// TestAnErrorThatALookMeetsEndsIt, and no further namespace is listed for it: what was found there may be as bad.
func TestAnErrorThatALookMeetsEndsIt(t *testing.T) {
	t.Parallel()
	mgr := &namespaced{}
	s := knownSweeper(mgr)
	s.Namespaces, s.limit = []string{"a", "b"}, newLimit(1000)
	met := errors.New("on purpose")
	err := s.scan(t.Context(), remote.Session{Cluster: mgr}, s.kinds[0], func(client.Object) error { return met })
	if !errors.Is(err, met) || !slices.Equal(mgr.asked, []string{"a"}) {
		t.Errorf("the namespaces %v were listed, and the error is %v", mgr.asked, err)
	}
}

// namespaced is a manager in whose local cluster each namespace has an object, unless listing it is an error.
type namespaced struct {
	mcmanager.Manager
	client.Reader

	errs  map[string]error
	asked []string
}

// GetProvider implements mcmanager.Manager.
func (*namespaced) GetProvider() fleet.Provider { return nil }

// GetAPIReader implements cluster.Cluster.
func (n *namespaced) GetAPIReader() client.Reader { return n }

// GetRESTMapper implements cluster.Cluster.
func (*namespaced) GetRESTMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	return mapper
}

// List implements client.Reader.
func (n *namespaced) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	n.asked = append(n.asked, o.Namespace)
	list.(*metav1.PartialObjectMetadataList).Items = make([]metav1.PartialObjectMetadata, 1) //nolint:forcetypeassert // of nothing else
	return n.errs[o.Namespace]
}

// TestALookReadsNoRecordOfAnOwnerThatIsKnown: it may be of a thousand clusters, and each of these is looked at every 50 seconds.
func TestALookReadsNoRecordOfAnOwnerThatIsKnown(t *testing.T) {
	owner := &corev1.ConfigMap{}
	var r record.Record
	for i := range 1000 {
		r.Sites = append(r.Sites, record.Site{
			Name: mcreconcile.ClusterName(fmt.Sprintf("prod-%05d", i)), Identity: types.UID(fmt.Sprintf("0b6e7c1c-0000-4000-8000-%012d", i)),
		})
	}
	record.NewKeys("fleet", "c").Write(owner, r, true)
	ref := mcowner.Reference{Fleet: "fleet", Manager: "c"}
	s := &Sweeper{}
	if n := testing.AllocsPerRun(10, func() { s.isPlaced(t.Context(), owner, ref, "prod-00001", &findings{}) }); n > 100 {
		t.Errorf("a look at one owner takes %.0f allocations", n)
	}
}
