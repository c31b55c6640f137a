// Package mchandler turns events of many clusters into requests that carry the cluster.
//
// A handler is made anew for every engagement, by a [HandlerFunc]. Most of those here wrap controller-runtime's own
// handlers with [Lift], and so keep what these do, such as the low priority of objects that an initial list delivers.
package mchandler

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// HandlerFunc makes the handler for the events of one cluster. It is called once for each engagement and watch, and
// for several at once. The handler is used until the engagement ends.
type HandlerFunc = TypedHandlerFunc[client.Object, mcreconcile.Request]

// TypedHandlerFunc is a [HandlerFunc] for other types of objects and requests.
type TypedHandlerFunc[object any, request comparable] func(
	name mcreconcile.ClusterName, cl cluster.Cluster,
) handler.TypedEventHandler[object, request]

// Lift runs a controller-runtime handler for every cluster, unchanged, and stamps the cluster on its requests.
//
// The handler is shared by all clusters, so it must not keep state by object, nor read with a client that it was made with:
// that of the manager reads the local cluster, whichever cluster the event is from. mcreconcile.ClusterFrom of the context is
// the cluster of the event.
func Lift(h handler.EventHandler) HandlerFunc {
	return TypedLift(h)
}

// TypedLift is [Lift] for handlers of other types of objects.
func TypedLift[object any](h handler.TypedEventHandler[object, reconcile.Request]) TypedHandlerFunc[object, mcreconcile.Request] {
	return func(name mcreconcile.ClusterName, _ cluster.Cluster) handler.TypedEventHandler[object, mcreconcile.Request] {
		return &lifted[object]{handler: h, cluster: name}
	}
}

// EnqueueRequestForObject enqueues the object of the event, in its cluster. It is a [HandlerFunc].
func EnqueueRequestForObject(name mcreconcile.ClusterName, _ cluster.Cluster) handler.TypedEventHandler[client.Object, mcreconcile.Request] {
	return &lifted[client.Object]{handler: &handler.EnqueueRequestForObject{}, cluster: name}
}

// EnqueueRequestForOwner enqueues the owners of the object that are of ownerType, in the cluster of the event: an owner
// reference does not reach beyond its cluster. handler.OnlyControllerOwner is an option.
func EnqueueRequestForOwner(ownerType client.Object, opts ...handler.OwnerOption) HandlerFunc {
	return func(name mcreconcile.ClusterName, cl cluster.Cluster) handler.TypedEventHandler[client.Object, mcreconcile.Request] {
		owner := handler.EnqueueRequestForOwner(cl.GetScheme(), cl.GetRESTMapper(), ownerType, opts...)
		return &lifted[client.Object]{handler: owner, cluster: name}
	}
}

// EnqueueRequestsFromMapFunc enqueues what mapFunc makes of the object, in the cluster of the event. The function is
// an ordinary one of controller-runtime's. It is called for every cluster, so one that reads asks
// mcreconcile.ClusterFrom(ctx).GetClient(): the manager's client reads the local cluster, whichever cluster the event is from.
func EnqueueRequestsFromMapFunc(mapFunc handler.MapFunc) HandlerFunc {
	return Lift(handler.EnqueueRequestsFromMapFunc(mapFunc))
}

// MapFunc maps an object of one cluster to requests for any cluster.
type MapFunc = TypedMapFunc[mcreconcile.Request]

// TypedMapFunc is a [MapFunc] for other types of requests. It is called for several clusters at once, and delays the
// events of its own cluster until it returns. ctx ends with the engagement.
type TypedMapFunc[request comparable] func(ctx context.Context, name mcreconcile.ClusterName, obj client.Object) []request

// EnqueueRequestsAcrossClusters enqueues what mapFunc makes of an object: requests for its own cluster, for another,
// or for the local one.
func EnqueueRequestsAcrossClusters(mapFunc MapFunc) HandlerFunc {
	return TypedEnqueueRequestsAcrossClusters(mapFunc)
}

// TypedEnqueueRequestsAcrossClusters is [EnqueueRequestsAcrossClusters] for other types of requests.
func TypedEnqueueRequestsAcrossClusters[request comparable](mapFunc TypedMapFunc[request]) TypedHandlerFunc[client.Object, request] {
	return func(name mcreconcile.ClusterName, _ cluster.Cluster) handler.TypedEventHandler[client.Object, request] {
		return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []request {
			return mapFunc(ctx, name, obj)
		})
	}
}
