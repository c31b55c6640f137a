package mcreconcile

import (
	"context"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/internal/life"
)

type atClusterKey struct{}

// atCluster is the context of a reconcile. It carries itself: the cluster of the request.
type atCluster struct {
	context.Context //nolint:containedctx // it is a context

	name    ClusterName
	cluster cluster.Cluster
}

// WithCluster returns a context from which [ClusterFrom] and [ClusterNameFrom] read.
//
// Controllers that mcbuilder builds call it before each reconcile. It is for tests of a reconciler alone, and for controllers
// that are built by hand. These call it with the context that fleet.Engagement.Join returns, so that [PerCluster] knows when
// the cluster is no longer usable. With any other context, cl is taken to be usable until that is done.
func WithCluster(ctx context.Context, name ClusterName, cl cluster.Cluster) context.Context {
	return &atCluster{Context: ctx, name: name, cluster: cl}
}

// Value implements context.Context.
func (c *atCluster) Value(key any) any {
	if key == (atClusterKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// ClusterFrom returns the cluster of the request that is being reconciled: its client, cache, scheme, REST mapper and
// event recorders. It is valid until ctx ends. It panics for a context that carries no cluster, which is one that comes
// neither from a controller of mcbuilder nor from [WithCluster]; [ClusterNameFrom] tells whether there is one.
func ClusterFrom(ctx context.Context) cluster.Cluster {
	at, ok := atClusterFrom(ctx)
	if !ok {
		panic(noCluster)
	}
	return at.cluster
}

// ClusterNameFrom returns the name of the cluster that [ClusterFrom] returns, and whether ctx carries one.
func ClusterNameFrom(ctx context.Context) (name ClusterName, ok bool) {
	at, ok := atClusterFrom(ctx)
	if !ok {
		return "", false
	}
	return at.name, true
}

// Leaving reports whether the cluster of the request is about to leave: then a reconciler takes back what it has put there, such
// as finalizers on objects, and puts nothing there. It is called with the context of a reconcile, and may become true while that
// runs: the object is then reconciled once more.
//
// The cluster has left when no request of it is ready, running, or tried again after an error. So a reconciler that is not done
// returns an error. RequeueAfter, and an error of reconcile.TerminalError, count as done; Requeue counts as an error.
func Leaving(ctx context.Context) bool {
	leaving, ok := ctx.Value(life.LeavingKey{}).(*atomic.Bool)
	return ok && leaving.Load()
}

// WithLeaving returns a context for which [Leaving] is true. It is for tests of a reconciler alone.
func WithLeaving(ctx context.Context) context.Context {
	leaving := &atomic.Bool{}
	leaving.Store(true)
	return context.WithValue(ctx, life.LeavingKey{}, leaving)
}

// Epoch returns in which epoch this replica owns the cluster of the request, where several replicas share the clusters, and 0
// otherwise. It is greater for each owner than for the one before, while the labels by which the cluster is shared stay the same: with
// another shard-key or shard-pool it is counted anew, and may be less than before, or equal.
// What is sent to clusters needs none, since it is refused when the replica may not own the cluster any more. An external system
// that keeps the greatest epoch that it has seen can refuse what has a lesser one.
func Epoch(ctx context.Context) int64 {
	epoch, _ := ctx.Value(life.EpochKey{}).(int64)
	return epoch
}

// noCluster says what to do about a context without a cluster.
const noCluster = "the context carries no cluster: pass on the context that Reconcile was called with, by a controller that " +
	"mcbuilder built; in tests, make one with mcreconcile.WithCluster. mcreconcile.ClusterNameFrom tells whether there is one"

func atClusterFrom(ctx context.Context) (at *atCluster, ok bool) {
	at, ok = ctx.Value(atClusterKey{}).(*atCluster)
	return at, ok && at.cluster != nil
}
