package sweep

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// refusing is an ownerless cluster in which some owners may not be read, and others are answered for slowly.
type refusing struct {
	ownerless

	refused atomic.Int32
}

// GetAPIReader implements cluster.Cluster.
func (r *refusing) GetAPIReader() client.Reader { return r }

// Get refuses the owners of strangers. Of slow ones it says late, and in time, that they are not there.
func (r *refusing) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if strings.HasPrefix(key.Name, "stranger") {
		r.refused.Add(1)
		return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, key.Name, nil)
	}
	if strings.HasPrefix(key.Name, "slow") {
		<-time.After(remote.DefaultTimeout - time.Second)
	}
	return r.ownerless.Get(ctx, key, obj, opts...)
}

// dependent returns an object in a cluster that says that it has these owners. The names of owners are those of strangers, or not.
func dependent(t *testing.T, in mcreconcile.ClusterName, name, owner string, owners int, home types.UID) client.Object {
	t.Helper()
	return dependentAt(t, mcowner.Location{Cluster: in, Namespace: "default", Name: name}, owner, owners, home)
}

func dependentAt(t *testing.T, at mcowner.Location, owner string, owners int, home types.UID) client.Object {
	t.Helper()
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: at.Namespace, Name: at.Name, UID: types.UID(at.Name), Annotations: map[string]string{},
	}}
	for n := range owners {
		of := mcowner.Reference{
			Fleet: "payments", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: fmt.Sprintf("%s-%s-%d", owner, at.Name, n), UID: "1",
			ClusterUID: home, Dependent: at,
		}
		content, err := json.Marshal(of) // the package's own way reads all that is there before
		if err != nil {
			t.Fatal(err)
		}
		obj.Annotations[of.Key()] = string(content)
	}
	return obj
}

// TestMadeUpReferencesHoldUpNoOtherMember, nor for long what is orphaned beside them: a look asks for few owners of an object, and a sweep
// that has taken long lets others have its place. Nothing of theirs goes away in a dry run, which is the worst that they can do.
func TestMadeUpReferencesHoldUpNoOtherMember(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		objects, owners int
		home            types.UID
		owner           string
		beside          time.Duration // until an orphan is found beside them
		attacked        int           // members
		apart           time.Duration // until an orphan is found in the member that nobody attacks
		slow            bool          // a tenth of the requests, for a tenth of the objects
	}{
		"few, of another cluster":  {objects: 3, owners: 200, home: "another", owner: "owner", beside: time.Minute},
		"hundreds, of another":     {objects: 200, owners: 2, home: "another", owner: "owner", beside: time.Minute},
		"few, each gone":           {objects: 3, owners: 200, home: "here", owner: "owner", beside: 2 * time.Minute},
		"hundreds, each gone":      {objects: 200, owners: 5, home: "here", owner: "owner", beside: 20 * time.Minute},
		"hundreds, each forbidden": {objects: 200, owners: 5, home: "here", owner: "stranger", beside: 20 * time.Minute},
		"hundreds, each slow":      {objects: 200, owners: 5, home: "here", owner: "slow", beside: 3 * time.Hour, apart: 3 * time.Minute}, // a look of 36 seconds more
		"as many as can begin":     {objects: 20, owners: 2, home: "here", owner: "stranger", beside: 3 * time.Hour, attacked: 2 * mostOpen, apart: 20 * time.Minute, slow: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				attacked, apart := cmp.Or(tc.attacked, remote.AtOnce), cmp.Or(tc.apart, 2*time.Minute)
				s := newSchedule(attacked+1, 1)
				kinds := s.kinds
				of := knownSweeper(&refusing{})
				s.Fleet, s.OwnersIn, s.access, s.proof = of.Fleet, mcowner.Clusters{Local: true}, of.access, of.proof
				s.DryRun, s.Watched, s.Listing = true, nil, 0
				s.kinds = kinds
				if tc.slow {
					s.limit = newLimit(2)
				}
				var mu sync.Mutex // guards what follows
				found := map[string]time.Duration{}
				s.log = funcr.New(func(_, args string) {
					mu.Lock()
					defer mu.Unlock()
					for _, orphan := range []string{"orphan-beside", "orphan-apart"} {
						if _, known := found[orphan]; !known && strings.Contains(args, orphan) && strings.Contains(args, "Would remove") {
							found[orphan] = time.Since(s.start)
						}
					}
				}, funcr.Options{})
				objects := map[mcreconcile.ClusterName][]client.Object{}
				for m := range attacked {
					in := mcreconcile.ClusterName(fmt.Sprint("member-", m))
					for n := range tc.objects {
						objects[in] = append(objects[in], dependent(t, in, fmt.Sprint("made-up-", n), tc.owner, tc.owners, tc.home))
					}
				}
				last := mcreconcile.ClusterName(fmt.Sprint("member-", attacked))
				objects["member-0"] = append(objects["member-0"], dependent(t, "member-0", "orphan-beside", "owner", 1, "here"))
				objects[last] = append(objects[last], dependent(t, last, "orphan-apart", "owner", 1, "here"))
				for _, all := range objects { // as API servers list them
					slices.SortFunc(all, func(a, b client.Object) int { return cmp.Compare(a.GetName(), b.GetName()) })
				}
				var looks []time.Duration
				s.list = func(ctx context.Context, at remote.Session, _ remote.Kind, do func(client.Object) error) error {
					if err := s.limit.waitToList(ctx); err != nil {
						return err
					}
					if at.Name() == last {
						looks = append(looks, time.Since(s.start))
					}
					for _, obj := range objects[at.Name()] {
						if err := do(obj); err != nil {
							return err
						}
					}
					return nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { s.run(ctx) })
				span := tc.beside + 3*time.Minute
				<-time.After(span)
				cancel()
				running.Wait()

				var before time.Duration
				for _, at := range append(looks, span) {
					if at-before > apart {
						t.Errorf("the member that nobody attacks was not looked at from %s to %s", before, at)
					}
					before = at
				}
				for orphan, most := range map[string]time.Duration{"orphan-apart": apart, "orphan-beside": tc.beside} {
					if at, ok := found[orphan]; !ok || at > most {
						t.Errorf("%s was found: %t, after %s, want %s at most", orphan, ok, at, most)
					}
				}
			})
		})
	}
}

// local is an ownerless cluster, and the manager of a collector.
type local struct{ ownerless }

// GetScheme implements cluster.Cluster.
func (*local) GetScheme() *runtime.Scheme { return scheme.Scheme }

// GetLogger implements mcmanager.Manager.
func (*local) GetLogger() logr.Logger { return logr.Discard() }

// TestSweepsThatEndSoonSeeAllInTheEnd, also in a namespace whose name begins as that of another one, and time and again where no list ends well.
func TestSweepsThatEndSoonSeeAllInTheEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]error{"lists end": nil, "lists have no end": remote.ErrEndless} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				kinds := []client.Object{&corev1.ConfigMap{}}
				s, err := New(Options{
					Manager: &local{}, Fleet: "payments", Owners: kinds, Kinds: kinds, Namespaces: []string{"team", "team-b"},
					Pace: Pace{Interval: 10 * time.Millisecond, QPS: 1000, DryRun: true},
				})
				if err != nil {
					t.Fatal(err)
				}
				s.visit = s.access.Visit
				var looks []string
				s.log = funcr.New(func(_, args string) { looks = append(looks, args) }, funcr.Options{})
				by := s.byLists()
				by.places.wanted.Store(true)
				by.each = func(_ context.Context, _ remote.Session, _ remote.Kind, _ *sweepMemory, do func(client.Object) error) (bool, error) {
					for _, namespace := range s.Namespaces {
						for n := range 30 {
							at := mcowner.Location{Namespace: namespace, Name: fmt.Sprintf("%s-%02d", namespace, n)}
							if err := do(dependentAt(t, at, "owner", 1, "here")); err != nil {
								return false, err
							}
						}
					}
					return end == nil, end
				}
				for range 30 {
					s.sweep(t.Context(), s.memory(mcreconcile.LocalCluster), by)
				}
				all := strings.Join(looks, "\n")
				for _, last := range []string{"team-00", "team-29", "team-b-00", "team-b-29"} {
					if n := strings.Count(all, "/"+last); n < 2 {
						t.Errorf("%s was looked at %d times", last, n)
					}
				}
			})
		})
	}
}

// TestSweepsThatEndSoonBeginAnewBesideObjectsThatCome without end, as fast as these sweeps go on.
func TestSweepsThatEndSoonBeginAnewBesideObjectsThatCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kinds := []client.Object{&corev1.ConfigMap{}}
		s, err := New(Options{
			Manager: &local{}, Fleet: "payments", Owners: kinds, Kinds: kinds, Pace: Pace{Interval: 10 * time.Millisecond, QPS: 1000, DryRun: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.visit = s.access.Visit
		looks := 0
		s.log = funcr.New(func(_, args string) {
			if strings.Contains(args, "/a-00") {
				looks++
			}
		}, funcr.Options{})
		by, there := s.byLists(), []client.Object{dependent(t, mcreconcile.LocalCluster, "a-00", "owner", 1, "here")}
		by.places.wanted.Store(true)
		by.each = func(_ context.Context, _ remote.Session, _ remote.Kind, _ *sweepMemory, do func(client.Object) error) (bool, error) {
			for range 60 {
				obj := dependent(t, mcreconcile.LocalCluster, fmt.Sprintf("z-%04d", len(there)), "owner", 1, "here")
				obj.SetCreationTimestamp(metav1.Now())
				there = append(there, obj)
			}
			for _, obj := range there {
				if err := do(obj); err != nil {
					return false, err
				}
			}
			return true, nil
		}
		for range 30 {
			s.sweep(t.Context(), s.memory(mcreconcile.LocalCluster), by)
		}
		if looks < 2 {
			t.Errorf("the first of %d objects was looked at %d times", len(there), looks)
		}
	})
}

// TestAListThatGoesOnEndsForOthersAlsoBesideNewObjects that stand between those that it is to look at.
func TestAListThatGoesOnEndsForOthersAlsoBesideNewObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kinds := []client.Object{&corev1.ConfigMap{}}
		var looks strings.Builder
		s, by := hastened(t, kinds, Pace{Interval: 10 * time.Millisecond, QPS: 1000, DryRun: true}, &looks)
		s.list = func(_ context.Context, _ remote.Session, _ remote.Kind, do func(client.Object) error) error {
			for n := range 100 {
				is := dependent(t, mcreconcile.LocalCluster, fmt.Sprintf("a-%03d", n), "owner", 1, "here")
				isNew := dependent(t, mcreconcile.LocalCluster, fmt.Sprintf("a-%03d-new", n), "owner", 1, "here")
				isNew.SetCreationTimestamp(metav1.NewTime(time.Now().Add(time.Second)))
				if err := errors.Join(do(is), do(isNew)); err != nil {
					return err
				}
			}
			return nil
		}
		c, kind := s.memory(mcreconcile.LocalCluster), s.kinds[0].GroupVersionKind
		c.listed.begun = map[schema.GroupVersionKind]begun{kind: {at: "default/a-010", since: time.Now()}}
		s.sweep(t.Context(), c, by)
		if n := strings.Count(looks.String(), "Would remove"); n == 0 || n > 50 || c.listed.begun[kind].at <= "default/a-010" {
			t.Errorf("%d were looked at, and the next list begins at %q", n, c.listed.begun[kind].at)
		}
	})
}

// TestAKindWhoseSweepsEndSoonIsListedAgainAtOnce, also where another namespace forbids it, and what all of them have seen is counted.
func TestAKindWhoseSweepsEndSoonIsListedAgainAtOnce(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]error{"all may be listed": nil, "not in the first namespace": apierrors.NewForbidden(schema.GroupResource{}, "", nil)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				kinds := []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}}
				var looks strings.Builder
				s, by := hastened(t, kinds, Pace{Interval: 10 * time.Millisecond, Listing: 10 * time.Minute, QPS: 1000, DryRun: true}, &looks)
				s.list = func(_ context.Context, _ remote.Session, k remote.Kind, do func(client.Object) error) error {
					for n := range 60 {
						at := mcowner.Location{Namespace: "team", Name: fmt.Sprintf("%s-%02d", strings.ToLower(k.Kind), n)}
						home := map[bool]types.UID{true: "here", false: "another"}[n%2 == 0]
						if err := do(dependentAt(t, at, "owner", 1, home)); err != nil {
							return errors.Join(first, err)
						}
					}
					return first
				}
				c := s.memory(mcreconcile.LocalCluster)
				for range 30 {
					s.sweep(t.Context(), c, by)
				}
				for _, last := range []string{"configmap-58", "secret-58"} {
					if !strings.Contains(looks.String(), last) {
						t.Errorf("%s was not looked at", last)
					}
				}
				for kind, seen := range c.tallies {
					if n := seen.unproven; n != 30 {
						t.Errorf("%d of the kind %s are counted, want 30", n, kind.Kind)
					}
				}
				if first == nil && len(c.tallies) != len(kinds) {
					t.Errorf("of %d kinds there are counts", len(c.tallies))
				}
			})
		})
	}
}

// hastened returns a sweeper of a local cluster, and how it lists while others wait for their turn. What it looks at is written down.
func hastened(t *testing.T, kinds []client.Object, pace Pace, looks *strings.Builder) (*Sweeper, way) {
	t.Helper()
	s, err := New(Options{Manager: &local{}, Fleet: "payments", Owners: kinds, Kinds: kinds, Pace: pace})
	if err != nil {
		t.Fatal(err)
	}
	s.visit = s.access.Visit
	s.log = funcr.New(func(_, args string) { looks.WriteString(args) }, funcr.Options{})
	by := s.byLists()
	by.places.wanted.Store(true)
	return s, by
}

// TestAKindThatTakesLongHoldsUpNoOther of its member for longer than a few rounds, also while no other member waits for its turn.
func TestAKindThatTakesLongHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for _, listed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newSchedule(1, 2)
			kinds := s.kinds
			of := knownSweeper(&refusing{})
			s.Fleet, s.OwnersIn, s.access, s.proof = of.Fleet, mcowner.Clusters{Local: true}, of.access, of.proof
			s.DryRun, s.kinds, s.limit = true, kinds, newLimit(1)
			var looks [2][]time.Duration
			each := func(_ context.Context, _ remote.Session, k remote.Kind, do func(client.Object) error) error {
				n := slices.IndexFunc(kinds, func(other remote.Kind) bool { return other.Kind == k.Kind })
				looks[n] = append(looks[n], time.Since(s.start))
				for i := range []int{1000, 1}[n] {
					if err := do(dependent(t, "member-0", fmt.Sprintf("made-up-%03d", i), "owner", 1, "here")); err != nil {
						return err
					}
				}
				return nil
			}
			by := s.byLists()
			s.list, s.Listing = each, 0
			if !listed {
				by = s.byCaches()
				s.Watched = func(mcreconcile.ClusterName, schema.GroupVersionKind) bool { return true }
				by.each = func(ctx context.Context, at remote.Session, k remote.Kind, _ *sweepMemory, do func(client.Object) error) (bool, error) {
					return true, each(ctx, at, k, do)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { s.rounds(ctx, by) })
			<-time.After(time.Hour)
			cancel()
			running.Wait()
			if n := len(looks[1]); n < 8 {
				t.Errorf("listed: %t: the other kind was looked at %d times in an hour: %s", listed, n, looks[1])
			}
			if n := len(looks[0]); n > 20 {
				t.Errorf("listed: %t: the kind was begun with %d times in an hour", listed, n)
			}
		})
	}
}

// TestAKindThatTakesLongGoesOnWithWhatIsLeft, however far it gets before others have their turn.
func TestAKindThatTakesLongGoesOnWithWhatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kinds := []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}}
		var looks strings.Builder
		s, by := hastened(t, kinds, Pace{Interval: 10 * time.Millisecond, QPS: 1000, DryRun: true}, &looks)
		s.list = func(_ context.Context, _ remote.Session, k remote.Kind, do func(client.Object) error) error {
			for n := range 12 { // the last one is looked at after others have had their turn
				name := fmt.Sprintf("%s-%02d", strings.ToLower(k.Kind), n)
				if err := do(dependent(t, mcreconcile.LocalCluster, name, "owner", 1, "here")); err != nil {
					return err
				}
			}
			return nil
		}
		for range 4 {
			s.sweep(t.Context(), s.memory(mcreconcile.LocalCluster), by)
			<-time.After(time.Second) // so that the first look waits for nothing
		}
		for _, last := range []string{"configmap-11", "secret-11"} {
			if n := strings.Count(looks.String(), "/"+last); n != 2 {
				t.Errorf("%s was looked at %d times in four sweeps, want twice", last, n)
			}
		}
	})
}

// populated is an ownerless cluster that has some owners.
type populated struct{ ownerless }

// GetAPIReader implements cluster.Cluster.
func (p *populated) GetAPIReader() client.Reader { return p }

// Get finds the owners that live.
func (p *populated) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if strings.HasPrefix(key.Name, "alive") {
		obj.SetUID("1")
		return nil
	}
	return p.ownerless.Get(ctx, key, obj, opts...)
}

// TestManyOwnersThatAreThereHoldUpNoOrphan, nor do dependents that come all the while: each owner is asked for once in a sweep, which goes on to its
// end.
func TestManyOwnersThatAreThereHoldUpNoOrphan(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		members, owners, each int
		most                  time.Duration
	}{
		"of one member":   {1, 1500, 10, 3 * time.Minute},
		"of many members": {300, 20, 5, 7 * time.Minute}, // 6000 requests, and 300 lists
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSchedule(tc.members, 1)
				kinds, of := s.kinds, knownSweeper(&populated{})
				s.Fleet, s.access, s.proof = of.Fleet, of.access, of.proof
				s.DryRun, s.Watched, s.Listing = true, nil, 0
				s.kinds = kinds
				var mu sync.Mutex // guards what follows
				found, sweeps := time.Duration(0), 0
				s.log = funcr.New(func(_, args string) {
					mu.Lock()
					defer mu.Unlock()
					if found == 0 && strings.Contains(args, "Would remove") {
						found = time.Since(s.start)
					}
				}, funcr.Options{})
				last := mcreconcile.ClusterName(fmt.Sprint("member-", tc.members-1))
				s.list = func(ctx context.Context, at remote.Session, _ remote.Kind, do func(client.Object) error) error {
					if err := s.limit.waitToList(ctx); err != nil {
						return err
					}
					mu.Lock()
					sweeps++
					sweep := sweeps
					mu.Unlock()
					for n := range tc.owners {
						for d := range tc.each {
							obj := dependent(t, at.Name(), fmt.Sprintf("%d-%d", n, d), "alive", 1, "here")
							obj.SetUID(types.UID(fmt.Sprint(sweep, obj.GetName()))) // it has come since
							of := mcowner.Reference{
								Fleet: "payments", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: fmt.Sprint("alive-", n), UID: "1",
								ClusterUID: "here", Dependent: mcowner.Location{Cluster: at.Name(), Namespace: "default", Name: obj.GetName()},
							}
							content, err := json.Marshal(of)
							if err != nil {
								t.Error(err)
							}
							obj.SetAnnotations(map[string]string{of.Key(): string(content)})
							if err := do(obj); err != nil {
								return err
							}
						}
					}
					if at.Name() != last {
						return nil
					}
					return do(dependent(t, last, "orphan", "owner", 1, "here"))
				}
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { s.run(ctx) })
				<-time.After(tc.most)
				cancel()
				running.Wait()
				if found == 0 {
					t.Errorf("the orphan was not found within %s, by %d lists", tc.most, sweeps)
				}
			})
		})
	}
}

// sweepOf sweeps the local cluster once, where these are the dependents.
func sweepOf(t *testing.T, s *Sweeper, dependents []client.Object) {
	t.Helper()
	each := func(_ context.Context, _ remote.Session, _ remote.Kind, _ *sweepMemory, do func(client.Object) error) (bool, error) {
		for _, obj := range dependents {
			if err := do(obj); err != nil {
				return true, err
			}
		}
		return true, nil
	}
	s.sweep(t.Context(), s.memory(mcreconcile.LocalCluster), way{each: each, pass: func(c *sweepMemory) *pass { return &c.listed }, places: newPlaces()})
}

// TestNoOtherSweepHasItsTurnBetweenAProofAndARemoval: what was proved may not be so any more after minutes.
func TestNoOtherSweepHasItsTurnBetweenAProofAndARemoval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := knownSweeper(&ownerless{})
		s.DryRun, s.Interval = true, time.Nanosecond
		found := findings{pass: &pass{}, turn: turn{places: newPlaces(), unsure: map[ownerHash]error{}}, alive: map[ownerKey]struct{}{}}
		kept := 0
		s.Keep = func(context.Context, mcowner.Reference) (bool, error) {
			kept++
			return false, nil
		}
		at := remote.Session{Cluster: s.access.Manager}
		s.look(t.Context(), at, s.kinds[0], dependent(t, mcreconcile.LocalCluster, "a", "owner", 2, "here"), &found)
		if kept != 2 || found.gave > 0 {
			t.Errorf("%d owners are gone, want 2; others have had their turn meanwhile: %d times", kept, found.gave)
		}
	})
}

// TestAnOwnerThatMayNotBeReadIsAskedForOnce in a sweep, whatever has it.
func TestAnOwnerThatMayNotBeReadIsAskedForOnce(t *testing.T) {
	t.Parallel()
	mgr := &refusing{}
	s := knownSweeper(mgr)
	s.limit = newLimit(1000)
	all := make([]client.Object, 50)
	for i := range all {
		all[i] = dependent(t, mcreconcile.LocalCluster, "same", "stranger", 1, "here")
		all[i].SetUID(types.UID(fmt.Sprint(i)))
	}
	sweepOf(t, s, all)
	if n := mgr.refused.Load(); n != 1 {
		t.Errorf("it was asked for %d times", n)
	}
}

// TestEachOwnerOfManyHasItsTurn: of twenty objects, each has one owner that is gone, among forty that may not be read.
func TestEachOwnerOfManyHasItsTurn(t *testing.T) {
	t.Parallel()
	s := knownSweeper(&refusing{})
	s.limit, s.DryRun = newLimit(1e6), true
	found := map[string]bool{}
	s.log = funcr.New(func(_, args string) {
		if _, of, gone := strings.Cut(args, "/made-up-"); gone && strings.Contains(args, "Would remove") {
			number, _, _ := strings.Cut(of, `"`)
			found[number] = true
		}
	}, funcr.Options{})
	all := make([]client.Object, 20)
	for i := range all {
		name := fmt.Sprint("made-up-", i)
		obj := dependent(t, mcreconcile.LocalCluster, name, "stranger", 40, "here")
		annotations := obj.GetAnnotations()
		maps.Copy(annotations, dependent(t, mcreconcile.LocalCluster, name, "owner", 1, "here").GetAnnotations())
		all[i] = obj
	}
	for sweeps := 0; len(found) < len(all); sweeps++ {
		if sweeps == 1000 {
			t.Fatalf("of %d objects, %d were found", len(all), len(found))
		}
		sweepOf(t, s, all)
	}
}

// TestAListThatSkipsSlowlyGetsFurther: what was looked at before takes long to pass over, while other clusters wait.
func TestAListThatSkipsSlowlyGetsFurther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const all = 30
		var looks strings.Builder
		s, by := hastened(t, []client.Object{&corev1.ConfigMap{}}, Pace{Interval: time.Second, QPS: 1000, DryRun: true}, &looks)
		s.list = func(_ context.Context, _ remote.Session, _ remote.Kind, do func(client.Object) error) error {
			for n := range all {
				<-time.After(2 * s.Interval)
				if err := do(dependent(t, mcreconcile.LocalCluster, fmt.Sprintf("a-%03d", n), "owner", 1, "here")); err != nil {
					return err
				}
			}
			return nil
		}
		for range all + 10 {
			s.sweep(t.Context(), s.memory(mcreconcile.LocalCluster), by)
			if strings.Contains(looks.String(), fmt.Sprintf("a-%03d", all-1)) {
				return
			}
		}
		t.Error("the last object is never looked at")
	})
}

// TestTheFirstOneAfterThoseThatAreSkippedHasAWholeTurn, however much of one it takes to skip them: lists would get further by one dependent each.
func TestTheFirstOneAfterThoseThatAreSkippedHasAWholeTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var looks strings.Builder
		s, by := hastened(t, []client.Object{&corev1.ConfigMap{}}, Pace{Interval: time.Minute, QPS: 1000, DryRun: true}, &looks)
		s.list = func(_ context.Context, _ remote.Session, _ remote.Kind, do func(client.Object) error) error {
			for n := range 100 {
				<-time.After(s.Interval / 10)
				if err := do(dependent(t, mcreconcile.LocalCluster, fmt.Sprintf("a-%03d", n), "owner", 1, "here")); err != nil {
					return err
				}
			}
			return nil
		}
		c, kind := s.memory(mcreconcile.LocalCluster), s.kinds[0].GroupVersionKind
		c.listed.begun = map[schema.GroupVersionKind]begun{kind: {at: "default/a-009", since: time.Now()}}
		s.sweep(t.Context(), c, by)
		if n := strings.Count(looks.String(), "Would remove"); n < 10 || n > 12 {
			t.Errorf("%d were looked at in a turn of ten", n)
		}
	})
}
