package mchandler

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/internal/ofkind"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// OwnerFilter says whether an owner is enqueued, see [EnqueueRequestForOwnerAcrossClusters].
type OwnerFilter func(mcowner.Reference) bool

// OnlyController is an [OwnerFilter] that lets the controller pass, and no other owner.
func OnlyController(r mcowner.Reference) bool { return r.Controller }

// OfFleet returns an [OwnerFilter] that lets owners of one installation pass, by mcowner.Reference.Fleet. Without it,
// dependents of other installations on the same clusters lead to requests for clusters that may be unknown here; these
// are dropped.
func OfFleet(fleet string) OwnerFilter {
	return func(r mcowner.Reference) bool { return r.Fleet == fleet }
}

// InClusters returns an [OwnerFilter] that lets owners pass that are in clusters of which in says so. It is called for several
// dependents at once, and must not wait for anything.
func InClusters(in func(mcreconcile.ClusterName) bool) OwnerFilter {
	return func(r mcowner.Reference) bool { return in(r.Cluster) }
}

// EnqueueRequestForOwnerAcrossClusters enqueues the owners of the object that are of ownerType, each in its own cluster,
// by the references of package mcowner. Owners must pass every filter. When an object is changed, its owners of before
// are enqueued too.
//
// Whoever may write such an object may name an owner in any cluster, and a reconciler that reads one by way of a cache has
// that list and watch all objects of the kind there. Owns of package mcbuilder lets those pass that are in the clusters in
// which For watches. For Watches, [InClusters] does so.
//
// A dependent that was deleted while its cluster could not be watched is seen to be gone once that works again, and is
// handled as deleted. One that was deleted between two engagements of its cluster, or while the program did not run, is
// not: so an owner is to be reconciled when the program starts, which it is if it is watched, and when the cluster of
// its dependents is engaged anew. Package dependents does that.
func EnqueueRequestForOwnerAcrossClusters(ownerType client.Object, filters ...OwnerFilter) HandlerFunc {
	return func(name mcreconcile.ClusterName, cl cluster.Cluster) handler.TypedEventHandler[client.Object, mcreconcile.Request] {
		owners := func(ctx context.Context, obj client.Object) []mcreconcile.Request {
			gvk, err := apiutil.GVKForObject(ownerType, cl.GetScheme())
			if err != nil {
				log.FromContext(ctx).Error(err, "Cannot enqueue owners", "ownerType", ownerType)
				return nil
			}
			if kind, err := apiutil.GVKForObject(obj, cl.GetScheme()); err == nil {
				obj = ofkind.Object(kind, obj) // the reference may be that of an object of another kind, of which it is a copy
			}
			references, err := mcowner.References(obj, mcowner.ClusterID{Name: name})
			if err != nil {
				log.FromContext(ctx).V(1).Info("Left an object alone", "object", client.ObjectKeyFromObject(obj), "why", err.Error())
				return nil
			}
			var requests []mcreconcile.Request
			for _, r := range references {
				if r.GroupKind() == gvk.GroupKind() && passes(r, filters) {
					requests = append(requests, r.Request())
				}
			}
			return requests
		}
		return handler.TypedEnqueueRequestsFromMapFunc(owners)
	}
}

func passes(r mcowner.Reference, filters []OwnerFilter) bool {
	for _, filter := range filters {
		if !filter(r) {
			return false
		}
	}
	return true
}
