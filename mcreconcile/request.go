// Package mcreconcile holds the words that every other package shares: the name of a cluster, the request that carries
// one, and reconcilers of such requests. It imports no other package of this module but internal ones.
package mcreconcile

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ClusterName names a cluster within one manager. [LocalCluster] is the cluster that the manager itself runs against;
// every other name is one that a provider reported.
type ClusterName string

// LocalCluster is the name of the cluster that the manager itself runs against, often called the hub.
const LocalCluster ClusterName = ""

// String returns the name.
func (n ClusterName) String() string { return string(n) }

// Request asks to reconcile one object of one cluster. It is comparable, so equal requests coalesce in the queue.
// The fields have the names of sigs.k8s.io/multicluster-runtime's request.
type Request struct {
	reconcile.Request

	// ClusterName is the cluster that holds the object.
	ClusterName ClusterName
}

// String returns "cluster://NAME/namespace/name", and "namespace/name" for the local cluster.
func (r Request) String() string {
	if r.ClusterName == LocalCluster {
		return r.Request.String()
	}
	return "cluster://" + string(r.ClusterName) + string(types.Separator) + r.Request.String()
}

// Cluster returns the name of the cluster.
func (r Request) Cluster() ClusterName { return r.ClusterName }

// WithCluster returns the request for the object of the same key in another cluster.
func (r Request) WithCluster(name ClusterName) Request {
	r.ClusterName = name
	return r
}

// ClusterAware is what a request type of one's own needs, besides being comparable, to be used in place of [Request].
type ClusterAware[request any] interface {
	comparable
	// Cluster returns the cluster that the request is for.
	Cluster() ClusterName
	// WithCluster returns a copy of the request for the named cluster.
	WithCluster(name ClusterName) request
}

// Reconciler reconciles requests of many clusters. [ClusterFrom] finds the cluster of the request in its context. The
// context ends when the member's engagement ends, with a cause that says why.
type Reconciler = reconcile.TypedReconciler[Request]

// Func is a function that is a [Reconciler].
type Func = reconcile.TypedFunc[Request]

// The compiler checks here that Request meets its own constraint.
var _ = func() bool { return meets[Request]() }

func meets[request ClusterAware[request]]() bool { return true }
