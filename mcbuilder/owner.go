package mcbuilder

import "github.com/fleet-runtime/fleet-runtime/mchandler"

// AcrossClusters makes Owns find the owner in whatever cluster it is, by the references of package mcowner: an event on a
// dependent in one cluster becomes a request for its controller in another. Owners must pass every filter, such as
// mchandler.OfFleet. [MatchEveryOwner] is for owners that are not the controller.
func AcrossClusters(filters ...mchandler.OwnerFilter) WatchOption {
	return func(o *watchOptions) { o.across, o.ownerFilters = true, filters }
}

// ownerHandler returns the handler of Owns.
func (b *TypedBuilder[request]) ownerHandler(opts []WatchOption) mchandler.HandlerFunc {
	var o watchOptions
	for _, apply := range opts {
		apply(&o)
	}
	if !o.across {
		return mchandler.EnqueueRequestForOwner(b.primary, ownerOptions(opts)...)
	}
	filters := o.ownerFilters
	if !o.everyOwner {
		filters = append([]mchandler.OwnerFilter{mchandler.OnlyController}, filters...)
	}
	return mchandler.EnqueueRequestForOwnerAcrossClusters(b.primary, filters...)
}
