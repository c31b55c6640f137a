package mcreconcile

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

type engagedKey struct{}

// engaged is the context of a reconcile. It carries itself: the cluster of the request and the life of its engagement.
type engaged struct {
	context.Context //nolint:containedctx // it is a context

	name       ClusterName
	cluster    cluster.Cluster
	engagement context.Context //nolint:containedctx // it is the value that the outer context carries
}

// WithCluster returns a context from which [ClusterFrom] and [ClusterNameFrom] read. engagement ends
// when cl is no longer usable.
//
// Controllers that mcbuilder builds call it before each reconcile. Others need it in tests of a reconciler alone.
func WithCluster(ctx, engagement context.Context, name ClusterName, cl cluster.Cluster) context.Context {
	return &engaged{Context: ctx, name: name, cluster: cl, engagement: engagement}
}

// Value implements context.Context.
func (e *engaged) Value(key any) any {
	if key == (engagedKey{}) {
		return e
	}
	return e.Context.Value(key)
}

// ClusterFrom returns the cluster of the request that is being reconciled: its client, cache, scheme, REST mapper and
// event recorders. It is valid until ctx ends. It returns nil for a context that no reconcile of a fleet controller
// has given.
func ClusterFrom(ctx context.Context) cluster.Cluster {
	return engagedFrom(ctx).cluster
}

// ClusterNameFrom returns the name of the cluster that [ClusterFrom] returns, and whether ctx carries one.
func ClusterNameFrom(ctx context.Context) (name ClusterName, ok bool) {
	e := engagedFrom(ctx)
	return e.name, e.cluster != nil
}

func engagedFrom(ctx context.Context) engaged {
	if e, ok := ctx.Value(engagedKey{}).(*engaged); ok {
		return *e
	}
	return engaged{}
}
