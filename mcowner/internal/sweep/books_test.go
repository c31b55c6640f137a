package sweep

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// sliced is known, with one slice of the owner, which has these clusters. It sweeps members in which the owner has a dependent each.
type sliced struct {
	known

	t        *testing.T
	ref      mcowner.Reference
	clusters []mcreconcile.ClusterName
	takes    time.Duration // until slices are read
	strays   int
	sweeper  *Sweeper
}

func newSliced(t *testing.T, mgr func(*sliced) mcmanager.Manager, pace Pace, clusters ...mcreconcile.ClusterName) *sliced {
	t.Helper()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1", ResourceVersion: "1"}}
	said := record.Record{Slices: &record.Slices{Namespace: "default", Numbers: []int{0}}}
	record.NewKeys("payments", "copier").Write(owner, said, true)
	s := &sliced{known: known{owner: owner}, t: t, clusters: clusters}
	var err error
	if s.ref, err = mcowner.ReferenceTo("payments", mcowner.ClusterID{UID: "here"}, owner, scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	s.ref.Manager = "copier"
	s.sweeper, err = New(Options{
		Manager: mgr(s), Fleet: "payments", Owners: []client.Object{&corev1.ConfigMap{}}, Kinds: []client.Object{&corev1.ConfigMap{}},
		Placed: func(mcowner.Reference, mcreconcile.ClusterName) bool { return false },
		Stray:  func(mcowner.Reference, mcreconcile.ClusterName) { s.strays++ }, Pace: pace,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.sweeper.visit = func(ctx context.Context, name mcreconcile.ClusterName, do func(context.Context, remote.Session) error) error {
		return do(ctx, remote.Session{ID: mcowner.ClusterID{Name: name, UID: "member"}})
	}
	return s
}

// GetAPIReader implements cluster.Cluster.
func (s *sliced) GetAPIReader() client.Reader { return s }

// GetScheme implements cluster.Cluster.
func (*sliced) GetScheme() *runtime.Scheme { return scheme.Scheme }

// GetLogger implements mcmanager.Manager.
func (*sliced) GetLogger() logr.Logger { return logr.Discard() }

// List answers with the slice. Without clusters, there is none.
func (s *sliced) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	s.lists.Add(1)
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	if len(s.clusters) == 0 {
		return nil
	}
	slice := v1alpha1.DependentSlice{Owner: v1alpha1.Owner{UID: s.owner.UID}}
	for _, name := range s.clusters {
		slice.Clusters = append(slice.Clusters, v1alpha1.Cluster{Name: string(name), MayHaveDependents: true})
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&slice)
	if err != nil {
		return err
	}
	obj := unstructured.Unstructured{Object: content}
	obj.SetName(mcowner.UniqueName(50, s.owner.Name, strings.TrimPrefix(s.ref.Key(), mcowner.KeyPrefix)) + "-0")
	list.(*unstructured.UnstructuredList).Items = []unstructured.Unstructured{obj} //nolint:forcetypeassert // of nothing else
	return nil
}

// sweep sweeps a member by a list.
func (s *sliced) sweep(in mcreconcile.ClusterName) { s.sweepUntil(s.t.Context(), in) }

// sweepUntil is sweep, until ctx is done.
func (s *sliced) sweepUntil(ctx context.Context, in mcreconcile.ClusterName) {
	s.t.Helper()
	each := func(_ context.Context, at remote.Session, _ remote.Kind, _ *sweepMemory, do func(client.Object) error) (bool, error) {
		dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "dependent"}}
		if err := mcowner.SetControllerReference(s.ref, dependent, at.ID); err != nil {
			s.t.Error(err)
		}
		return true, do(dependent)
	}
	s.sweeper.sweep(ctx, s.sweeper.memory(in), way{each: each, pass: func(c *sweepMemory) *pass { return &c.listed }, places: newPlaces()})
}

// were checks how often slices were read so far, and how many strays were told of.
func (s *sliced) were(when string, read, strays int) {
	s.t.Helper()
	if n := int(s.lists.Load()); n != read || s.strays != strays {
		s.t.Errorf("%s: slices were read %d times, and %d strays told of, want %d and %d", when, n, s.strays, read, strays)
	}
}

// TestSlicesAreReadOnceForAllMembers, until those are listed again or the owner has changed, also where no controller of this program knows where
// the owner has dependents: it may be another replica's, or another program's. Who answers for one that is in no cache is asked for it all the same.
func TestSlicesAreReadOnceForAllMembers(t *testing.T) {
	t.Parallel()
	const members = 30
	names := make([]mcreconcile.ClusterName, members)
	for n := range names {
		names[n] = mcreconcile.ClusterName(fmt.Sprint("member-", n))
	}
	for name, tc := range map[string]struct {
		mgr  func(*sliced) mcmanager.Manager
		gets func(read int) int // of the owner, in a round in which slices were read so often
	}{
		"cached":      {func(s *sliced) mcmanager.Manager { return s }, func(read int) int { return read }},
		"in no cache": {func(s *sliced) mcmanager.Manager { return slicedAmong{s} }, func(int) int { return members }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSliced(t, tc.mgr, Pace{Listing: 10 * time.Minute}, names...)
				s.sweeper.OwnersIn, s.sweeper.Stray = mcowner.Clusters{Members: labels.Nothing()}, nil // no controller has such a one as its own
				round := func(when string, read int) {
					t.Helper()
					before, fresh := s.gets.Load(), read-int(s.lists.Load())
					for _, name := range names {
						s.sweep(name)
					}
					s.were(when, read, 0)
					if n, want := int(s.gets.Load()-before), tc.gets(fresh); n != want {
						t.Errorf("%s: the owner was asked for %d times, want %d", when, n, want)
					}
				}
				round("at first", 1)
				<-time.After(s.sweeper.Listing - time.Minute)
				round("before members are listed again", 1)
				s.owner.ResourceVersion = "2"
				round("once the owner has changed", 2)
				<-time.After(s.sweeper.Listing + time.Second)
				round("when members are listed again", 3)
				s.owner.ResourceVersion, s.owner.Generation = "3", 1
				round("with a generation", 4)
				<-time.After(s.sweeper.Listing + time.Second)
				s.owner.ResourceVersion = "4"
				round("when members are listed once more", 5)
				s.owner.ResourceVersion = "5" // by its status alone
				s.sweep(names[0])
				s.were("once its status has changed", 5, 0)
			})
		})
	}
}

// TestSweepsAtOnceReadSlicesOnce: those that come while one reads wait for it, or until their context ends. Where the context of that one ends, they
// read themselves. An owner that is in a cache is asked for once, too.
func TestSweepsAtOnceReadSlicesOnce(t *testing.T) {
	t.Parallel()
	names := make([]mcreconcile.ClusterName, remote.AtOnce)
	for n := range names {
		names[n] = mcreconcile.ClusterName(fmt.Sprint("member-", n))
	}
	for name, tc := range map[string]struct {
		mgr      func(*sliced) mcmanager.Manager
		ownersIn mcowner.Clusters
		gets     int // of the owner
	}{
		"cached":      {func(s *sliced) mcmanager.Manager { return s }, mcowner.Clusters{Local: true}, 1},
		"in no cache": {func(s *sliced) mcmanager.Manager { return slicedAmong{s} }, mcowner.Clusters{Members: labels.Nothing()}, len(names)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSliced(t, tc.mgr, Pace{Listing: 10 * time.Minute}, names...)
				s.sweeper.OwnersIn, s.sweeper.Stray, s.takes = tc.ownersIn, nil, 5*time.Second
				var sweeps sync.WaitGroup
				for _, name := range names {
					sweeps.Go(func() { s.sweep(name) })
				}
				sweeps.Wait()
				s.were("at once", 1, 0)
				if n := int(s.gets.Load()); n != tc.gets {
					t.Errorf("the owner was asked for %d times, want %d", n, tc.gets)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				s := newSliced(t, tc.mgr, Pace{Listing: 10 * time.Minute}, names...)
				s.sweeper.OwnersIn, s.sweeper.Stray, s.takes = tc.ownersIn, nil, 5*time.Second
				took := make([]time.Duration, 3)
				var sweeps sync.WaitGroup
				for n, lasts := range []time.Duration{2 * time.Second, time.Second, time.Minute} { // the first reads, and the others wait
					sweeps.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), lasts)
						defer cancel()
						began := time.Now()
						s.sweepUntil(ctx, names[n])
						took[n] = time.Since(began)
					})
					<-time.After(100 * time.Millisecond)
				}
				sweeps.Wait()
				s.were("where the first did not end", 2, 0)
				if took[0] > 3*time.Second || took[1] > 1500*time.Millisecond || took[2] > 10*time.Second {
					t.Errorf("sweeps took %s", took)
				}
				s.takes = 0
				s.sweep(names[3])
				s.were("after that", 2, 0)
			})
		})
	}
}

// slicedAmong is sliced, of a fleet that may have members.
type slicedAmong struct{ *sliced }

// GetProvider implements mcmanager.Manager.
func (s slicedAmong) GetProvider() fleet.Provider { return among{&s.known}.GetProvider() }

// GetFleet implements mcmanager.Manager.
func (s slicedAmong) GetFleet() *fleet.Fleet { return among{&s.known}.GetFleet() }

// TestADependentThatNoSliceHasIsProvedAnew: that slices had a cluster lets its dependents alone, and no more.
func TestADependentThatNoSliceHasIsProvedAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSliced(t, func(s *sliced) mcmanager.Manager { return s }, Pace{}, "east", "west")
		s.sweep("east")
		s.were("at first", 1, 0)
		s.sweep("north")
		s.sweep("north")
		s.were("where none is noted", 3, 2)
		s.clusters = []mcreconcile.ClusterName{"east"}
		s.sweep("west")
		s.were("before members are listed again", 3, 2)
		if why, err := s.sweeper.WhyGone(t.Context(), s.ref, "west"); why == "" || err != nil || s.lists.Load() != 4 {
			t.Errorf("whoever asks by himself is told %q, %v, and slices were read %d times", why, err, s.lists.Load())
		}
		<-time.After(s.sweeper.Interval + time.Second)
		s.sweep("west")
		s.were("when members are listed again", 5, 3)
		s.clusters = []mcreconcile.ClusterName{"east", "north"}
		s.sweep("north")
		s.were("once it is noted", 6, 3)
		s.sweep("north")
		s.were("after that", 6, 3)
	})
}

// TestALostSliceIsMissedOnceForAllMembers: the owner may have dependents anywhere then, and slices are many.
func TestALostSliceIsMissedOnceForAllMembers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSliced(t, func(s *sliced) mcmanager.Manager { return s }, Pace{})
		s.sweep("east")
		s.sweep("west")
		s.were("without the slice", 1, 0)
	})
}

// TestWhatIsRememberedOfSlicesTakesBoundedMemory: owners are many, and so are their clusters.
func TestWhatIsRememberedOfSlicesTakesBoundedMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &books{lasts: time.Minute}
		owner := &corev1.ConfigMap{}
		noted := record.Record{}
		member := func(n int) mcreconcile.ClusterName {
			return mcreconcile.ClusterName(fmt.Sprint(strings.Repeat("x", 300), n))
		}
		for n := range 5000 {
			noted.Sites = append(noted.Sites, record.Site{Name: member(n)})
		}
		has := func(ref mcowner.Reference) bool {
			has, done := b.has(t.Context(), owner, ref, member(50), false)
			done()
			return has
		}
		last := 0
		note := func(n int) bool {
			ref := mcowner.Reference{Name: fmt.Sprint(n)}
			b.note(owner, ref, noted)
			b.note(owner, ref, noted) // which takes no more
			return has(ref)
		}
		for ; note(last); last++ {
			if last > 100 {
				t.Fatal("there is no bound")
			}
		}
		if last < 10 || b.size > mostOfBooks || len(b.known) != last {
			t.Errorf("of %d owners, %d are remembered, in %d bytes", last, len(b.known), b.size)
		}
		<-time.After(b.lasts + time.Second)
		if has(mcowner.Reference{Name: "0"}) || !note(last) || len(b.known) != 1 {
			t.Errorf("after a while %d owners are remembered", len(b.known))
		}
	})
}

// TestAnOwnerThatWasThereLatelyIsThereWhereItHasNoted: no other is, nor in a cluster that is another one now, nor later. Nothing is said by one that is
// about to go, or whose slices have the rest.
func TestAnOwnerThatWasThereLatelyIsThereWhereItHasNoted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &books{lasts: 10 * time.Minute}
		ref := mcowner.Reference{Fleet: "payments", Manager: "copier", APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "1", ClusterUID: "here"}
		with := func(change func(*mcowner.Reference)) mcowner.Reference {
			other := ref
			change(&other)
			return other
		}
		had := func(ref mcowner.Reference, in mcreconcile.ClusterName) bool {
			had, done := b.hadLately(t.Context(), ref, in, time.Second)
			done()
			return had
		}
		owner := func(noted record.Record) *corev1.ConfigMap {
			obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: "1"}}
			record.NewKeys("payments", "copier").Write(obj, noted, true)
			return obj
		}
		sites := []record.Site{{Name: "east"}, {Name: "west"}}
		going := owner(record.Record{Sites: sites})
		going.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		b.noteThere(going, ref)
		b.noteThere(owner(record.Record{Sites: sites, Slices: &record.Slices{}}), ref)
		if had(ref, "east") {
			t.Error("it is there by what is about to change")
		}
		b.noteThere(owner(record.Record{Sites: sites}), ref)
		for name, tc := range map[string]struct {
			ref  mcowner.Reference
			in   mcreconcile.ClusterName
			want bool
		}{
			"noted":           {ref, "west", true},
			"not noted":       {ref, "north", false},
			"another one":     {with(func(r *mcowner.Reference) { r.UID = "2" }), "west", false},
			"another cluster": {with(func(r *mcowner.Reference) { r.ClusterUID = "there" }), "west", false},
			"another manager": {with(func(r *mcowner.Reference) { r.Manager = "mover" }), "west", false},
		} {
			if had(tc.ref, tc.in) != tc.want {
				t.Errorf("%s: it is there is %t, want %t", name, !tc.want, tc.want)
			}
		}
		if b.noteThere(owner(record.Record{GivenUp: true}), ref); had(ref, "west") {
			t.Error("it is there after it was found to have let go")
		}
		if b.noteThere(owner(record.Record{}), ref); !had(ref, "north") {
			t.Error("one that has noted nothing is not there")
		}
		<-time.After(b.lasts + time.Second)
		if had(ref, "north") {
			t.Error("it is there for good")
		}
		_, done := b.hadLately(t.Context(), ref, "west", time.Second) // who asks now
		began := time.Now()
		if had(ref, "west") || time.Since(began) != time.Second {
			t.Errorf("who waits for another one that gets no answer has waited for %s", time.Since(began))
		}
		time.AfterFunc(time.Second/2, func() {
			b.noteThere(owner(record.Record{Sites: sites}), ref)
			done()
		})
		if !had(ref, "west") {
			t.Error("who waits for another one is not told what that has found")
		}
	})
}
