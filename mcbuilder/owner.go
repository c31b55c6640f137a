package mcbuilder

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// AcrossClusters makes Owns find the owner in whatever cluster it is that For watches, by the references of package mcowner: an
// event on a dependent in one cluster becomes a request for its controller in another. Owners must pass every filter, such as
// mchandler.OfFleet. [MatchEveryOwner] is for owners that are not the controller.
func AcrossClusters(filters ...mchandler.OwnerFilter) WatchOption {
	return func(o *watchOptions) { o.across, o.ownerFilters = true, filters }
}

// ownerHandler returns the handler of Owns. It lets no owner pass where For does not watch: anybody who may write a dependent may
// name one there, and to read it would begin a watch of all objects of its kind.
func (b *TypedBuilder[request]) ownerHandler(opts []WatchOption) mchandler.HandlerFunc {
	o, watched, mgr := optionsOf(opts), b.primaryIn, b.mgr
	isForOwners := func(name mcreconcile.ClusterName) bool { return watched.isAbout(name, mgr) }
	if !o.across {
		return filtered(mchandler.EnqueueRequestForOwner(b.primary, o.ownerOptions()...), func(name mcreconcile.ClusterName, _ cluster.Cluster) []predicate.Predicate {
			return []predicate.Predicate{predicate.NewPredicateFuncs(func(client.Object) bool { return isForOwners(name) })}
		})
	}
	filters := []mchandler.OwnerFilter{mchandler.InClusters(isForOwners)}
	if !o.everyOwner {
		filters = append(filters, mchandler.OnlyController)
	}
	return mchandler.EnqueueRequestForOwnerAcrossClusters(b.primary, append(filters, o.ownerFilters...)...)
}

// ownerOptions is what the options of Owns mean to its handler.
func (o watchOptions) ownerOptions() []handler.OwnerOption {
	if o.everyOwner {
		return nil
	}
	return []handler.OwnerOption{handler.OnlyControllerOwner()}
}
