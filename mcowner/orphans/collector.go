package orphans

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Collector removes dependents whose owner is gone, or has another UID, or no longer has dependents in their cluster. It
// finds what no event has told of: the finalizer of the owner was taken by hand, or the program did not run.
//
// It sweeps each member that is ready, lists the metadata of dependents page by page from the API server, and asks the
// API server of the owner's cluster for the owner just before it deletes. It deletes nothing that it cannot prove to be
// orphaned: not while the owner's cluster is not ready, forbids to get the owner, does not serve its kind, or is
// another one than when the reference was written. Deletions have UID and resource version as preconditions. A
// dependent with another owner keeps that, and only loses the reference.
//
// A dependents.Reconciler has one. Others add it to the manager, which runs it on the leader.
//
// Where several replicas share the members, it runs on all, and each sweeps the members that it works on. Owners in members of
// other replicas are asked for there when dependents are listed, not when the cache is looked at, see Sweep.Listing.
type Collector struct {
	// Manager has the clusters. Required.
	Manager mcmanager.Manager
	// Fleet is the name of the installation, see mcowner.Reference. Required.
	Fleet string
	// Owners are the kinds of owners: dependents of others are left alone. They are read from the caches of the clusters in
	// OwnersIn, as given here. Required.
	Owners []client.Object
	// OwnersIn says where owners are watched. Dependents may name owners elsewhere, as whoever may write one writes what he
	// likes: the API server is then asked for that one owner, and no cache is filled. Default: in every member.
	OwnersIn mcowner.Clusters
	// Kinds are those of the dependents. Required, unless there is MoreKinds.
	Kinds []client.Object
	// MoreKinds returns kinds of dependents that are not in Kinds, when a round begins. It may be nil.
	MoreKinds func() []client.Object
	// DependentsIn says where to look. Default: in every member.
	DependentsIn mcowner.Clusters
	// Namespaces are where dependents may be. Default: in all.
	Namespaces []string
	// Name tells it from other collectors, in metrics and logs. Default: "collector".
	Name string
	// Controller is whose dependents it collects, see mcowner.Reference.Manager. Default: those of all.
	Controller string
	// User returns the user in whose name dependents of owners of a cluster are removed; empty for its own. It may be nil.
	User func(origin mcreconcile.ClusterName) string
	// Decommissioned are clusters of owners that are no more: their owners count as gone. A cluster is told by its UID, which the
	// references to its owners have: another one of the name is not meant, nor one that is in the fleet. Where a reference does
	// not say which cluster it was, the name counts.
	Decommissioned []mcowner.ClusterID
	// Stray is told of a dependent whose owner is there, and has noted that it has none in this cluster, in place of removing
	// it; and of one whose owner has a record, and is not in OwnersIn. It must not wait for anything. It may be nil.
	Stray func(owner mcowner.Reference, in mcreconcile.ClusterName)
	// Keep reports whether the dependents of an owner that is gone are to stay, as when it was deleted with the policy Orphan
	// while their cluster was away. Then they only lose the reference. It may be nil.
	Keep func(ctx context.Context, gone mcowner.Reference) (bool, error)
	// Watched reports whether a controller of the manager watches a kind in a cluster, as an object of the type in Kinds. It
	// must not wait for anything. It may be nil, for none.
	Watched func(in mcreconcile.ClusterName, kind schema.GroupVersionKind) bool
	// Placed reports whether a controller of the manager knows that an owner may have dependents in a cluster. It saves asking
	// for the slices of owners that have some, see dependents.Slices. It must not wait for anything. It may be nil.
	Placed func(owner mcowner.Reference, in mcreconcile.ClusterName) bool
	// ByName allows clusters of which it cannot be told which they are, see mcowner.ClusterID.
	ByName bool

	Sweep

	looks looks
}

// looks are the clusters that are to be swept before their time.
type looks struct {
	mu    sync.Mutex // guards what follows
	names map[mcreconcile.ClusterName]struct{}
	wake  chan struct{}
}

func (l *looks) wakeLocked() chan struct{} {
	if l.wake == nil {
		l.wake = make(chan struct{}, 1)
	}
	return l.wake
}

// Look has a cluster swept soon, by what its cache has. It does not wait for that, and may be called by any goroutine.
func (c *Collector) Look(in mcreconcile.ClusterName) {
	c.looks.mu.Lock()
	defer c.looks.mu.Unlock()
	if c.looks.names == nil {
		c.looks.names = map[mcreconcile.ClusterName]struct{}{}
	}
	c.looks.names[in] = struct{}{}
	select {
	case c.looks.wakeLocked() <- struct{}{}:
	default: // it is awake
	}
}

// awake returns what receives when there are clusters to look at.
func (l *looks) awake() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wakeLocked()
}

// take returns the clusters to look at, once. Those that are busy are to be looked at later.
func (l *looks) take() map[mcreconcile.ClusterName]struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := l.names
	l.names = nil
	return names
}

// Sweep says how a [Collector] works. The zero value is usable.
type Sweep struct {
	// Interval is the pause between two rounds in which sweeps begin, lengthened by up to a tenth at random. A cluster that
	// is still being swept is left out of a round. Default: 50 seconds.
	Interval time.Duration
	// Listing is the pause between two lists of the dependents of a kind in a member by its API server, lengthened by up to a
	// tenth at random. Between them a sweep looks at what the member's cache has, see Watched. Default: ten minutes with
	// Watched, and otherwise each sweep lists.
	Listing time.Duration
	// PageSize is how many dependents are listed at once. Default: 500.
	PageSize int64
	// QPS bounds the requests of sweeps, in each second and over all members. What proves that an owner is gone, and removals, go
	// before lists. Default: 20, which is enough for 10 kinds in 1000 members.
	QPS float32
	// Timeout bounds each request. After three removals of a kind in a cluster that got no answer in time, or an internal
	// error such as for a webhook that gives none, the sweep of the cluster goes on with the next kind, and the next sweep
	// with others of the kind. An owner's cluster that gave none is asked once in each sweep of a cluster. Default: 10 seconds.
	Timeout time.Duration
	// DryRun logs and counts what would be removed, and removes nothing. It is about sweeps: a
	// dependents.Reconciler goes on to remove the dependents of owners that it sees go.
	DryRun bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. It runs on all replicas where these share the members.
func (c *Collector) NeedLeaderElection() bool {
	return c.Manager.GetProvider() == nil || !c.Manager.GetFleet().Shared()
}

// Start sweeps until ctx is done. It implements manager.Runnable.
func (c *Collector) Start(ctx context.Context) error {
	s, err := c.sweeper(c.Manager.GetLogger())
	if err != nil {
		return fmt.Errorf("starting the collector %q: %w", c.Name, err)
	}
	defer s.metrics.export()()
	s.run(ctx)
	return nil
}

func (c *Collector) sweeper(logger logr.Logger) (*sweeper, error) {
	s := &sweeper{
		Collector: c, Sweep: c.withDefaults(c.Watched != nil), name: cmp.Or(c.Name, "collector"),
		listing: make(chan struct{}, 1), clusters: map[mcreconcile.ClusterName]*sweepMemory{},
	}
	var err error
	if s.kinds, err = remote.KindsOf(c.Kinds, c.Manager.GetScheme()); err != nil {
		return nil, err
	}
	owners, err := remote.KindsOf(c.Owners, c.Manager.GetScheme())
	if err != nil {
		return nil, err
	}
	s.access = remote.NewAccess(c.Manager, s.name, s.Timeout, c.ByName)
	s.names = func() []mcreconcile.ClusterName {
		return slices.DeleteFunc(s.access.Names(c.DependentsIn), s.access.IsOthers)
	}
	s.visit, s.list = s.access.VisitOwn, s.scan
	s.proof = &proof{access: s.access, owners: owners, decommissioned: c.Decommissioned}
	s.writers = remote.Writers{User: c.User}
	s.limit = newLimit(s.QPS)
	s.metrics = newSweepMetrics(s.name)
	s.log = logger.WithName("collector").WithValues("collector", s.name, "fleet", s.Fleet)
	return s, nil
}

// newLimit returns what holds requests apart evenly: what was not used in one second is not made up for in the next.
func newLimit(qps float32) flowcontrol.RateLimiter {
	return flowcontrol.NewTokenBucketRateLimiter(qps, 1)
}

func (s Sweep) withDefaults(watched bool) Sweep {
	if s.Interval <= 0 {
		s.Interval = 50 * time.Second // an orphan is seen within a minute
	}
	if s.Listing <= 0 && watched {
		s.Listing = max(s.Interval, 10*time.Minute)
	}
	if s.PageSize <= 0 {
		s.PageSize = remote.DefaultPageSize
	}
	if s.QPS <= 0 {
		s.QPS = 20
	}
	if s.Timeout <= 0 {
		s.Timeout = remote.DefaultTimeout
	}
	return s
}
