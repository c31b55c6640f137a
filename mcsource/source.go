// Package mcsource contains the sources of events of many clusters.
//
// A [Source] describes where the events of one cluster come from. [Fleet] makes a single, ordinary controller-runtime
// source of it, which a controller starts like any other: it starts the described source for every member that is
// engaged, now and later, and stops it when the engagement ends. That is all that is multi-cluster about a controller.
package mcsource

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Source makes the sources of events of single clusters.
type Source = TypedSource[mcreconcile.Request]

// TypedSource is a [Source] for other types of requests.
type TypedSource[request comparable] interface {
	// ForCluster returns the source of one cluster's events. It is called once for each engagement, and again while it or
	// the source's Start return errors that are not final, see [Fleet]; for several clusters at once. It may take its time, which delays its own cluster
	// alone.
	//
	// ctx is the life of the source, which is started on it. It ends with the engagement, and earlier if the source is not
	// wanted any more, or could not be started. It carries the cluster, for mcreconcile.ClusterFrom, and a logger that names
	// it. Like that of every controller-runtime source, Start must not block.
	//
	// If the source also has a method Wait(), that is called after ctx has ended, whether Start returned an error or not. It must
	// return once the source adds nothing more to the queue: the member is drained only then.
	ForCluster(ctx context.Context, name mcreconcile.ClusterName, cl cluster.Cluster) (source.TypedSource[request], error)
}

// Func is a function that is a [Source]. It may return any source of controller-runtime's.
type Func = TypedFunc[mcreconcile.Request]

// TypedFunc is a [Func] for other types of requests.
type TypedFunc[request comparable] func(
	ctx context.Context, name mcreconcile.ClusterName, cl cluster.Cluster,
) (source.TypedSource[request], error)

// ForCluster calls f.
func (f TypedFunc[request]) ForCluster(
	ctx context.Context, name mcreconcile.ClusterName, cl cluster.Cluster,
) (source.TypedSource[request], error) {
	return f(ctx, name, cl)
}

func (f TypedFunc[request]) String() string { return "func source" }
