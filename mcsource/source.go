// Package mcsource contains the sources of events of many clusters.
//
// A [Source] describes where the events of one cluster come from. [Fleet] makes a single, ordinary controller-runtime
// source of it, which a controller starts like any other: it starts the described source for every member that is
// engaged, now and later, and stops it when the engagement ends. That is all that is multi-cluster about a controller.
package mcsource

import (
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Source makes the sources of events of single clusters.
type Source = TypedSource[mcreconcile.Request]

// TypedSource is a [Source] for other types of requests.
type TypedSource[request comparable] interface {
	// ForCluster returns the source of one cluster's events. It is called once for each engagement. The source is
	// started on a context that ends with the engagement, and like every controller-runtime source its Start must not
	// block. If it also has a method Wait(), that is called after the context ended, and must return once the source
	// adds nothing more to the queue: the member is drained only then.
	//
	// An error is logged, and the cluster does without the source until it is engaged anew.
	ForCluster(name mcreconcile.ClusterName, cl cluster.Cluster) (source.TypedSource[request], error)
}

// Func is a function that is a [Source]. It may return any source of controller-runtime's.
type Func = TypedFunc[mcreconcile.Request]

// TypedFunc is a [Func] for other types of requests.
type TypedFunc[request comparable] func(name mcreconcile.ClusterName, cl cluster.Cluster) (source.TypedSource[request], error)

// ForCluster calls f.
func (f TypedFunc[request]) ForCluster(name mcreconcile.ClusterName, cl cluster.Cluster) (source.TypedSource[request], error) {
	return f(name, cl)
}

func (f TypedFunc[request]) String() string { return "func source" }

// waiter is a source that can be waited for after its context ended.
type waiter interface{ Wait() }
