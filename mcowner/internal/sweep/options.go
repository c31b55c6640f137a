package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Options say what a [Sweeper] looks for, and where. The first of them are those of an orphans.Collector.
type Options struct {
	Manager              mcmanager.Manager
	Fleet                string
	Owners               []client.Object
	OwnersIn             mcowner.Clusters
	Kinds                []client.Object
	DependentsIn         mcowner.Clusters
	Namespaces           []string
	Name                 string
	Controller           string
	User                 func(owner mcreconcile.Request) string // may be nil
	OwnersDecommissioned []mcowner.ClusterID
	ByName               bool
	Pace

	// MoreKinds returns kinds of dependents that are not in Kinds, for a sweep: those that it has always, and others that have their turn after last,
	// the one that had it last in the cluster. It may be nil.
	MoreKinds func(last schema.GroupVersionKind) (always, inTurn []schema.GroupVersionKind)
	// Found is told of each dependent whose owner is there. It must not wait for anything. It may be nil.
	Found func(owner mcowner.Reference, in mcreconcile.ClusterName, kind schema.GroupVersionKind)
	// Stray is told of a dependent whose owner is there, and has noted that it has none in this cluster, in place of removing
	// it; and of one whose owner has a record, and is not in OwnersIn. It must not wait for anything. It may be nil.
	Stray func(owner mcowner.Reference, in mcreconcile.ClusterName)
	// Unwanted reports whether an owner of another replica that is there, and has noted that it has none in this cluster, is to have none: that
	// replica may not have got there yet. keep says that what is there is only to lose the reference. It may be nil: then the note counts.
	Unwanted func(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName) (is, keep bool, err error)
	// Keep reports whether the dependents of an owner that is gone are to stay, as when it was deleted with the policy Orphan
	// while their cluster was away. Then they only lose the reference. It may be nil.
	Keep func(ctx context.Context, gone mcowner.Reference) (bool, error)
	// KeepUnseen lets dependents stay whose owner is gone from a cluster that is not in OwnersIn, nor in OwnersDecommissioned: nobody saw
	// whether it was deleted with the policy Orphan.
	KeepUnseen bool
	// Watched reports whether a controller of the manager watches a kind in a cluster, as an object of the type in Kinds. It
	// must not wait for anything. It may be nil, for none: then each sweep lists, unless the pace says otherwise.
	Watched func(in mcreconcile.ClusterName, kind schema.GroupVersionKind) bool
	// Placed reports whether a controller of the manager knows that an owner may have dependents in a cluster. It saves asking
	// for the slices of owners that have some, see dependents.Slices. It must not wait for anything. It may be nil.
	Placed func(owner mcowner.Reference, in mcreconcile.ClusterName) bool
}

// Pace is an orphans.Sweep.
type Pace struct {
	Interval time.Duration
	Listing  time.Duration
	PageSize int64
	QPS      float32
	Timeout  time.Duration
	DryRun   bool
}

func (p Pace) withDefaults(watched bool) Pace {
	if p.Interval <= 0 {
		p.Interval = 50 * time.Second // an orphan is seen within a minute
	}
	if p.Listing <= 0 && watched {
		p.Listing = max(p.Interval, 10*time.Minute)
	}
	if p.PageSize <= 0 {
		p.PageSize = remote.DefaultPageSize
	}
	if p.QPS <= 0 {
		p.QPS = 20
	}
	if p.Timeout <= 0 {
		p.Timeout = remote.DefaultTimeout
	}
	return p
}

// validate returns an error for options by which nothing would ever be found.
func (o Options) validate() error {
	switch {
	case len(validation.IsDNS1123Label(o.Fleet)) > 0:
		return fmt.Errorf("the field Fleet is %.64q, and has to be a DNS label", o.Fleet)
	case len(o.Owners) == 0:
		return errors.New("the field Owners has to have the kinds of owners")
	case len(o.Kinds) == 0 && o.MoreKinds == nil:
		return errors.New("the field Kinds has to have the kinds of dependents")
	}
	for _, c := range o.OwnersDecommissioned {
		if c.UID == "" && !c.ByName {
			return fmt.Errorf("it is not said which cluster called %.64q was decommissioned: give its UID, which references to its owners "+
				"have, or set ByName for references without one", string(c.Name))
		}
	}
	return nil
}

// New returns a Sweeper, which runs once.
func New(o Options) (*Sweeper, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	o.Pace = o.withDefaults(o.Watched != nil)
	o.Name = cmp.Or(o.Name, "collector")
	o.Namespaces = slices.SortedFunc(slices.Values(o.Namespaces), func(a, b string) int { return cmp.Compare(place(a, ""), place(b, "")) })
	s := &Sweeper{Options: o, clusters: map[mcreconcile.ClusterName]*sweepMemory{}}
	var err error
	if s.kinds, err = remote.KindsOf(o.Kinds, o.Manager.GetScheme()); err != nil {
		return nil, err
	}
	owners, err := remote.KindsOf(o.Owners, o.Manager.GetScheme())
	if err != nil {
		return nil, err
	}
	s.access = remote.NewAccess(o.Manager, o.Name, o.Timeout, o.ByName)
	s.names = func() []mcreconcile.ClusterName {
		return slices.DeleteFunc(s.access.Names(o.DependentsIn), s.access.IsOthers)
	}
	s.engagement, s.visit, s.list = s.access.Engagement, s.access.VisitOwn, s.scan
	s.proof = &proof{access: s.access, owners: owners, decommissioned: o.OwnersDecommissioned}
	s.writers = remote.Writers{Access: s.access, User: o.User}
	s.limit = newLimit(o.QPS)
	s.books.lasts = cmp.Or(o.Listing, o.Interval)
	s.metrics = newSweepMetrics(o.Name)
	s.log = o.Manager.GetLogger().WithName("collector").WithValues("collector", o.Name, "fleet", o.Fleet)
	return s, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. It runs on all replicas where these share the members.
func (s *Sweeper) NeedLeaderElection() bool {
	return s.Manager.GetProvider() == nil || !s.Manager.GetFleet().Shared()
}

// Start sweeps until ctx is done. It implements manager.Runnable.
func (s *Sweeper) Start(ctx context.Context) error {
	defer s.metrics.export()()
	s.run(ctx)
	return nil
}

// WhyGone returns why an owner of a dependent in the named cluster is proved to be its owner no more, and nothing if it is not. The
// error says why that cannot be told.
func (s *Sweeper) WhyGone(ctx context.Context, owner mcowner.Reference, in mcreconcile.ClusterName) (string, error) {
	is, err := s.proof.orphaned(ctx, owner, in, nil, nil)
	return is.why, err
}

// IsDecommissioned reports whether the owner's cluster is said to be no more, so that its dependents are removed.
func (s *Sweeper) IsDecommissioned(owner mcowner.Reference) bool {
	return s.proof.isDecommissioned(owner)
}
