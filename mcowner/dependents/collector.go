package dependents

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
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
// A [Reconciler] has one. Others add it to the manager, which runs it on the leader.
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
	OwnersIn Clusters
	// Kinds are those of the dependents. Required.
	Kinds []client.Object
	// DependentsIn says where to look. Default: in every member.
	DependentsIn Clusters
	// Namespaces are where dependents may be. Default: in all.
	Namespaces []string
	// Name tells it from other collectors, in metrics and logs. Default: "collector".
	Name string

	Sweep

	manager string                                      // whose dependents, those of all if it is empty
	user    func(origin mcreconcile.ClusterName) string // in whose name to delete, nil for nobody's
}

// Sweep says how a [Collector] works. The zero value is usable.
type Sweep struct {
	// Interval is the pause between two rounds in which sweeps begin, lengthened by up to a tenth at random. A cluster that
	// is still being swept is left out of a round. Default: one minute.
	Interval time.Duration
	// PageSize is how many dependents are listed at once. Default: 500.
	PageSize int64
	// QPS bounds the requests of a sweep, in each second and over all members. Default: 50.
	QPS float32
	// Timeout bounds each request. After three removals of a kind in a cluster that got no answer in time, or an internal
	// error such as for a webhook that gives none, the sweep of the cluster goes on with the next kind, and the next sweep
	// with others of the kind. An owner's cluster that gave none is asked once in each sweep of a cluster. Default: 10 seconds.
	Timeout time.Duration
	// DryRun logs and counts what would be removed, and removes nothing. It is about sweeps: a [Reconciler] goes on to
	// remove the dependents of owners that it sees go.
	DryRun bool
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
	s := &sweeper{Collector: *c}
	s.Sweep = s.withDefaults()
	if s.Name == "" {
		s.Name = "collector"
	}
	var err error
	if s.kinds, err = kindsOf(c.Kinds, c.Manager.GetScheme()); err != nil {
		return nil, err
	}
	owners, err := kindsOf(c.Owners, c.Manager.GetScheme())
	if err != nil {
		return nil, err
	}
	s.access = &access{mgr: c.Manager, who: s.Name, timeout: s.Timeout, known: &Identities{Manager: c.Manager}}
	s.proof = &proof{access: s.access, owners: owners}
	s.writers = writers{user: c.user}
	s.limit = flowcontrol.NewTokenBucketRateLimiter(s.QPS, max(1, int(s.QPS)))
	s.metrics = newSweepMetrics(s.Name)
	s.log = logger.WithName("collector").WithValues("collector", s.Name, "fleet", s.Fleet)
	return s, nil
}

func (s Sweep) withDefaults() Sweep {
	if s.Interval <= 0 {
		s.Interval = time.Minute
	}
	if s.PageSize <= 0 {
		s.PageSize = defaultPageSize
	}
	if s.QPS <= 0 {
		s.QPS = 50
	}
	if s.Timeout <= 0 {
		s.Timeout = defaultTimeout
	}
	return s
}
