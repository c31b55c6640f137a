package orphans

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/sweep"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Collector removes dependents whose owner is gone, or has another UID, or no longer has dependents in their cluster. It
// finds what no event has told of: the finalizer of the owner was taken by hand, or the program did not run.
//
// It sweeps each member that is ready and not paused, lists the metadata of dependents page by page from the API server, or looks at the
// member's cache, and asks the API server of the owner's cluster for the owner just before it deletes. It deletes nothing that it cannot prove to be
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
	// Kinds are those of the dependents. Required.
	Kinds []client.Object
	// DependentsIn says where to look. Default: in every member.
	DependentsIn mcowner.Clusters
	// Namespaces are where dependents may be. Default: in all.
	Namespaces []string
	// Name tells it from other collectors, in metrics and logs. Default: "collector".
	Name string
	// Controller is whose dependents it collects, see mcowner.Reference.Manager. Default: those of all. Those of a
	// dependents.Reconciler are its own to collect: it alone knows which of them are to stay, so name another controller where
	// both have the same Fleet, Owners and Kinds.
	Controller string
	// User returns the user in whose name dependents of owners of a cluster are removed; empty for its own. An orphan of several users goes
	// in the name of the first who may remove it. It is called for several members at once. It may be nil.
	User func(owner mcreconcile.Request) string
	// Decommissioned are clusters of owners that are no more: their owners count as gone. A cluster is told by its UID, which the
	// references to its owners have: another one of the name is not meant, nor one that is in the fleet. Where a reference does
	// not say which cluster it was, the name counts. Without a UID, and with ByName, it stands for such references alone. One that no
	// provider has reported is missed for a minute first.
	Decommissioned []mcowner.ClusterID
	// ByName allows clusters of which it cannot be told which they are, see mcowner.ClusterID.
	ByName bool
	// Cached says that a controller of the manager watches Kinds in all of DependentsIn, as objects of the types given here. So each
	// sweep looks at the caches, and the API servers list every ten minutes, see Sweep.Listing. A kind that nobody watches in a member
	// is watched by that. Default: each sweep lists.
	Cached bool

	Sweep
}

// Sweep says how a [Collector] works. The zero value is usable.
type Sweep struct {
	// Interval is the pause between two rounds in which sweeps begin, lengthened by up to a tenth at random. A cluster that
	// is still being swept is left out of a round. Default: 50 seconds.
	Interval time.Duration
	// Listing is the pause between two lists of the dependents of a kind in a member by its API server, lengthened by up to a
	// tenth at random. Between them each sweep looks at what the member's cache has. Default: ten minutes in a
	// dependents.Reconciler, and in a [Collector] that is Cached; otherwise each sweep lists.
	Listing time.Duration
	// PageSize is how many dependents are listed at once. Default: 500.
	PageSize int64
	// QPS bounds the requests of sweeps, in each second and over all members, but for those after the identity of a cluster. What proves
	// that an owner is gone, and removals, go before lists. Default: 20, which is enough for 10 kinds in 1000 members every ten minutes.
	QPS float32
	// Timeout bounds each request. A list of a kind in a cluster that got no answer in time ends the sweep of the cluster, and so
	// do three removals of a kind, also if they got an internal error such as for a webhook that gives none. The next sweep begins
	// with the next kind, and goes on with other objects. An owner's cluster that gave none is asked once for each
	// kind of owners in each sweep of a cluster. Default: 10 seconds.
	Timeout time.Duration
	// DryRun logs and counts what would be removed, and removes nothing. It is about sweeps: a
	// dependents.Reconciler goes on to remove the dependents of owners that it sees go.
	DryRun bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. It runs on all replicas where these share the members.
func (c *Collector) NeedLeaderElection() bool {
	return c.Manager.GetProvider() == nil || !c.Manager.GetFleet().Shared()
}

// Start sweeps until ctx is done. It implements manager.Runnable. Fields that make no sense are an error, at once.
func (c *Collector) Start(ctx context.Context) error {
	options := sweep.Options{
		Manager: c.Manager, Fleet: c.Fleet, Owners: c.Owners, OwnersIn: c.OwnersIn, Kinds: c.Kinds, DependentsIn: c.DependentsIn,
		Namespaces: c.Namespaces, Name: c.Name, Controller: c.Controller, User: c.User, OwnersDecommissioned: c.Decommissioned,
		ByName: c.ByName, Pace: sweep.Pace(c.Sweep),
	}
	if c.Cached {
		options.Watched = func(mcreconcile.ClusterName, schema.GroupVersionKind) bool { return true }
	}
	s, err := sweep.New(options)
	if err != nil {
		return fmt.Errorf("starting the collector %q: %w", c.Name, err)
	}
	return s.Start(ctx)
}
