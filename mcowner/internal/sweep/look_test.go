package sweep

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// slow is a manager without members, whose local cluster answers when it may.
type slow struct {
	mcmanager.Manager
	client.Reader
	may   chan struct{}
	asked atomic.Int32
}

// GetProvider implements mcmanager.Manager.
func (*slow) GetProvider() fleet.Provider { return nil }

// GetAPIReader implements cluster.Cluster.
func (s *slow) GetAPIReader() client.Reader { return s }

// Get implements client.Reader.
func (s *slow) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	s.asked.Add(1)
	<-s.may
	return errors.New("no answer")
}

// TestAClusterThatIsBusyIsLookedAtAfterwards: what was asked for while it was swept is done once, however often it was asked for.
func TestAClusterThatIsBusyIsLookedAtAfterwards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const local = mcreconcile.LocalCluster
		mgr := &slow{may: make(chan struct{})}
		access := remote.NewAccess(mgr, "test", 0, false)
		s := &Sweeper{
			log: logr.Discard(), metrics: newSweepMetrics("look"), access: access, visit: access.Visit,
			names: func() []mcreconcile.ClusterName { return []mcreconcile.ClusterName{local} }, clusters: map[mcreconcile.ClusterName]*sweepMemory{},
		}
		by := s.byCaches()
		var group sync.WaitGroup
		s.Look(local)
		s.Look("unknown")
		<-s.looks.awake()
		now, _ := s.toLookAt(by)
		if len(now) != 1 || !s.memory(local).cached.busy.Load() {
			t.Fatalf("%d clusters are to be looked at", len(now))
		}
		group.Go(func() { s.begin(t.Context(), by, now[0]) })
		<-time.After(gatherLooks)
		for range 3 {
			s.Look(local)
			<-s.looks.awake()
			if now, _ := s.toLookAt(by); len(now) > 0 {
				t.Fatal("a cluster is looked at twice at once")
			}
		}
		close(mgr.may)
		group.Wait()
		<-s.looks.awake()
		if now, _ = s.toLookAt(by); len(now) != 1 {
			t.Fatal("the cluster is not looked at afterwards")
		}
		group.Go(func() { s.begin(t.Context(), by, now[0]) })
		group.Wait()
		select {
		case <-s.looks.awake():
			t.Error("the cluster is looked at once more")
		default:
		}
		if n := mgr.asked.Load(); n != 2 {
			t.Errorf("the cluster was swept %d times, want twice", n)
		}
	})
}

// known is a manager without members, in whose cluster there is an owner. It counts how often that is read.
type known struct {
	mcmanager.Manager

	owner              *corev1.ConfigMap
	reads, gets, lists atomic.Int32 // from the cache, and from the API server; slices are listed there
	stray              func(mcowner.Reference, mcreconcile.ClusterName)
}

// GetProvider implements mcmanager.Manager.
func (*known) GetProvider() fleet.Provider { return nil }

// GetCache implements cluster.Cluster.
func (k *known) GetCache() cache.Cache { return knownCache{nil, k} }

// GetAPIReader implements cluster.Cluster.
func (k *known) GetAPIReader() client.Reader { return k }

// Get answers with the owner, or says which cluster it is. Whole owners are read from the cache.
func (k *known) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		k.reads.Add(1)
		k.owner.DeepCopyInto(obj)
	case *metav1.PartialObjectMetadata:
		if key.Name != k.owner.Name {
			obj.UID = "here"
			return nil
		}
		k.gets.Add(1)
		obj.ObjectMeta = *k.owner.ObjectMeta.DeepCopy()
	default: // the namespace kube-system
		obj.SetUID("here")
	}
	return nil
}

// List answers that there are no slices.
func (k *known) List(context.Context, client.ObjectList, ...client.ListOption) error {
	k.lists.Add(1)
	return nil
}

// knownCache reads what is known.
type knownCache struct {
	cache.Cache

	known *known
}

// Get implements client.Reader.
func (c knownCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.known.Get(ctx, key, obj, opts...)
}

// sweepDependents sweeps the cluster once, where it has five dependents of the owner, by a controller if that has a name.
func (k *known) sweepDependents(t *testing.T, controller string, of func(*sweepMemory) *pass) {
	t.Helper()
	s := knownSweeper(k)
	s.Stray = k.stray
	in := mcowner.ClusterID{UID: "here"}
	owner, err := mcowner.ReferenceTo("payments", in, k.owner, scheme.Scheme)
	if err != nil {
		t.Fatal(err)
	}
	owner.Manager = controller
	each := func(_ context.Context, _ remote.Session, _ remote.Kind, _ *sweepMemory, do func(client.Object) error) (bool, error) {
		for i := range 5 {
			dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("dependent-", i)}}
			if err := mcowner.SetControllerReference(owner, dependent, in); err != nil {
				t.Error(err)
			}
			if err := do(dependent); err != nil {
				t.Error(err)
			}
		}
		return true, nil
	}
	s.sweep(t.Context(), s.memory(mcreconcile.LocalCluster), way{each: each, pass: of, places: newPlaces()})
}

// TestASweepReadsAnOwnerOnce for all its dependents in a cluster: what is noted on an owner may be a thousand clusters.
func TestASweepReadsAnOwnerOnce(t *testing.T) {
	t.Parallel()
	mgr := &known{owner: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}}}
	mgr.sweepDependents(t, "", func(c *sweepMemory) *pass { return &c.cached })
	if n := mgr.reads.Load(); n != 1 {
		t.Errorf("the owner was read %d times", n)
	}
}

// TestAnOwnerIsReadOnceWhateverReferencesSay: of its cluster, and of how it is written, they may say anything.
func TestAnOwnerIsReadOnceWhateverReferencesSay(t *testing.T) {
	t.Parallel()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}}
	mgr := &known{owner: owner}
	s := knownSweeper(mgr)
	found := findings{alive: map[ownerKey]struct{}{}}
	for _, identity := range []types.UID{"here", "", types.UID(strings.Repeat("x", 100_000))} {
		ref := mcowner.Reference{Fleet: "payments", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "a", UID: "1", ClusterUID: identity}
		if !s.isKnownAlive(t.Context(), ref, mcreconcile.LocalCluster, &found) {
			t.Errorf("with the identity %.10q it is not known to be alive", identity)
		}
	}
	another := mcowner.Reference{Fleet: "payments", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "a", UID: "2"}
	if s.isKnownAlive(t.Context(), another, mcreconcile.LocalCluster, &found) {
		t.Error("one of another UID is taken for it")
	}
	if n := mgr.reads.Load(); n != 2 || len(found.alive) != 1 {
		t.Errorf("the owner was read %d times, and is remembered %d times", n, len(found.alive))
	}
}

// knownSweeper sweeps for owners that are ConfigMaps.
func knownSweeper(mgr mcmanager.Manager) *Sweeper {
	access := remote.NewAccess(mgr, "test", 0, false)
	kind := remote.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Proto: &corev1.ConfigMap{}}
	return &Sweeper{
		Options: Options{Fleet: "payments", Pace: Pace{}.withDefaults(false)}, log: logr.Discard(), metrics: newSweepMetrics("known"), access: access, visit: access.Visit,
		proof: &proof{access: access, owners: []remote.Kind{kind}}, kinds: []remote.Kind{kind}, clusters: map[mcreconcile.ClusterName]*sweepMemory{},
		limit: newLimit(20),
	}
}

// empty is a manager whose fleet has no members.
type empty struct {
	mcmanager.Manager

	fleet *fleet.Fleet
}

// GetProvider implements mcmanager.Manager.
func (*empty) GetProvider() fleet.Provider { return nil }

// GetFleet implements mcmanager.Manager.
func (e *empty) GetFleet() *fleet.Fleet { return e.fleet }

// TestWhatCannotBeAskedTakesNoTurn: the dependents of an owner in a cluster that is away may be thousands, and proofs of others wait
// for the same limit.
func TestWhatCannotBeAskedTakesNoTurn(t *testing.T) {
	t.Parallel()
	members := fleet.New(fleet.Options{})
	synctest.Test(t, func(t *testing.T) {
		s := knownSweeper(&empty{fleet: members})
		for what, ref := range map[string]mcowner.Reference{
			"away":          {Fleet: "payments", Cluster: "away", APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "1"},
			"another kind":  {Fleet: "payments", APIVersion: "v1", Kind: "Secret", Name: "a", UID: "1"},
			"another group": {Fleet: "payments", APIVersion: "example.com/v1", Kind: "ConfigMap", Name: "a", UID: "1"},
		} {
			before := time.Now()
			for range 1000 {
				if is, err := s.prove(t.Context(), ref, "member", &findings{}); is.why != "" || is.stray || !errors.Is(err, errUnproven) {
					t.Fatalf("%s: %+v, %v", what, is, err)
				}
			}
			if took := time.Since(before); took > 0 {
				t.Errorf("%s: that nothing can be told took %s", what, took)
			}
		}
	})
}

// TestADecommissionedClusterThatWasNotReportedMayComeYet: it is missed for a minute before it counts as gone.
func TestADecommissionedClusterThatWasNotReportedMayComeYet(t *testing.T) {
	t.Parallel()
	members := fleet.New(fleet.Options{})
	synctest.Test(t, func(t *testing.T) {
		s := knownSweeper(&empty{fleet: members})
		s.proof.decommissioned = []mcowner.ClusterID{{Name: "away", UID: "c"}}
		ref := mcowner.Reference{Fleet: "payments", Cluster: "away", ClusterUID: "c", APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "1"}
		for range 2 {
			if why, err := s.WhyGone(t.Context(), ref, "member"); why != "" || !errors.Is(err, errUnproven) {
				t.Errorf("its owner is said to be gone at once: %q, %v", why, err)
			}
			<-time.After(20 * time.Second)
		}
		<-time.After(time.Minute)
		if why, err := s.WhyGone(t.Context(), ref, "member"); why == "" || err != nil {
			t.Errorf("after a minute its owner is not gone: %v", err)
		}
	})
}

// among is known, of a fleet that may have members.
type among struct{ *known }

// GetProvider implements mcmanager.Manager.
func (among) GetProvider() fleet.Provider { return struct{ fleet.Provider }{} }

// GetFleet implements mcmanager.Manager.
func (among) GetFleet() *fleet.Fleet { return fleet.New(fleet.Options{Logger: logr.Discard()}) }

// TestAnOwnerThatNobodySawGoIsAskedForOnce, however many dependents it has left, and one outside the clusters of owners not at all by looks
// at what caches have.
func TestAnOwnerThatNobodySawGoIsAskedForOnce(t *testing.T) {
	t.Parallel()
	mgr := &known{owner: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}}}
	s := knownSweeper(among{mgr})
	s.KeepUnseen, s.OwnersIn = true, mcowner.Clusters{Members: labels.Nothing()}
	before := mcowner.Reference{Fleet: "payments", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "a", UID: "0", ClusterUID: "here"}
	found := func(cached bool) *findings {
		return &findings{pass: &pass{}, turn: turn{places: newPlaces(), unsure: map[ownerHash]error{}}, cached: cached, alive: map[ownerKey]struct{}{}, unheard: map[ownersOf]struct{}{}}
	}
	if why := s.whyGone(t.Context(), before, mcreconcile.LocalCluster, found(true), logr.Discard()); why != "" || mgr.gets.Load() != 0 {
		t.Errorf("a look at a cache has asked %d times, and says %q", mgr.gets.Load(), why)
	}
	for range 3 {
		if is, err := s.prove(t.Context(), before, mcreconcile.LocalCluster, found(false)); !errors.Is(err, errUnproven) {
			t.Errorf("it is proved that %q: %v", is.why, err)
		}
	}
	if n := mgr.gets.Load(); n != 1 {
		t.Errorf("the owner was asked for %d times", n)
	}
	s.OwnersIn = mcowner.Clusters{Local: true}
	if is, err := s.prove(t.Context(), before, mcreconcile.LocalCluster, found(false)); is.why == "" || err != nil {
		t.Errorf("once its cluster is one of owners, it is proved that %q: %v", is.why, err)
	}
}

// TestOwnersThatNobodySawGoTakeBoundedMemory: whoever may write a reference may name any owner.
func TestOwnersThatNobodySawGoTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	var u unseen
	long := mcowner.Reference{Name: "a", UID: types.UID(strings.Repeat("x", longestUID+1))}
	if err := u.note(long, "gone"); !errors.Is(err, errUnproven) || u.has(long) != nil {
		t.Error("a UID is remembered that Kubernetes does not give")
	}
	for i := range mostUnseen + 1 {
		_ = u.note(mcowner.Reference{Name: "a", UID: types.UID(strconv.Itoa(i))}, "gone")
	}
	if n := len(u.gone); n != 1 {
		t.Errorf("%d owners are remembered", n)
	}
}

// TestWhereItIsUnseenHowOwnersAreDeleted: where they are not watched, unless that cluster is said to be no more.
func TestWhereItIsUnseenHowOwnersAreDeleted(t *testing.T) {
	t.Parallel()
	s := knownSweeper(&empty{fleet: fleet.New(fleet.Options{})}) // a fleet without a provider, whose owners are in the local cluster
	s.OwnersDecommissioned = []mcowner.ClusterID{{Name: "no-more", UID: "c"}}
	s.proof.decommissioned = s.OwnersDecommissioned
	for _, keep := range []bool{true, false} {
		s.KeepUnseen = keep
		for cluster, want := range map[mcreconcile.ClusterName]bool{mcreconcile.LocalCluster: false, "elsewhere": keep, "no-more": false} {
			if got := s.isUnseen(mcowner.Reference{Cluster: cluster, ClusterUID: "c"}); got != want {
				t.Errorf("KeepUnseen %t: in %q it is unseen: %t, want %t", keep, cluster, got, want)
			}
		}
	}
}
