package mcbuilder

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
)

// watch is what For, Owns and Watches were given.
type watch[request comparable] struct {
	watchOptions
	obj     client.Object
	handler mchandler.TypedHandlerFunc[client.Object, request]
}

type watchOptions struct {
	predicates   []predicate.Predicate
	predicatesIn []predicatesFunc
	metadata     bool
	everyOwner   bool
	across       bool
	ownerFilters []mchandler.OwnerFilter
	inLocal      bool
	inMembers    bool
	forEach      bool
	selector     labels.Selector
}

// WatchOption changes one watch of a controller: what passes, and where it applies.
//
// A watch applies to every member of the fleet, unless [InMembers], [InLocalCluster] or [ForEachMember] say otherwise;
// given together, they add up. Without a provider it applies to the local cluster.
type WatchOption func(*watchOptions)

// WithPredicates lets only events pass that pass every predicate.
func WithPredicates(predicates ...predicate.Predicate) WatchOption {
	return func(o *watchOptions) { o.predicates = append(o.predicates, predicates...) }
}

// predicatesFunc makes the predicates for the events of one cluster.
type predicatesFunc = func(name mcreconcile.ClusterName, cl cluster.Cluster) []predicate.Predicate

// WithPredicatesIn is [WithPredicates] for predicates that must know the cluster of an event: those that remember objects by name or
// UID, which two clusters may have in common, or that read in the cluster. Every event comes to them first, whatever other predicates say, and
// others get what they let pass. As an mchandler.HandlerFunc, the function is called once for each engagement, and for several at once.
func WithPredicatesIn(predicates func(name mcreconcile.ClusterName, cl cluster.Cluster) []predicate.Predicate) WatchOption {
	return func(o *watchOptions) { o.predicatesIn = append(o.predicatesIn, predicates) }
}

// OnlyMetadata watches, caches and hands out the metadata of the objects alone. Read them as
// metav1.PartialObjectMetadata then: reading the full type would make a second cache.
func OnlyMetadata(o *watchOptions) { o.metadata = true }

// MatchEveryOwner makes Owns enqueue every owner of the kind, not the controller alone.
func MatchEveryOwner(o *watchOptions) { o.everyOwner = true }

// InMembers watches in the members that the selector matches, and in all if it is nil.
func InMembers(selector labels.Selector) WatchOption {
	return func(o *watchOptions) { o.inMembers, o.selector = true, selector }
}

// InLocalCluster watches in the local cluster.
func InLocalCluster(o *watchOptions) { o.inLocal = true }

// ForEachMember watches in the local cluster on behalf of the members that the selector matches, or of all if it is nil:
// an event there is handled once for each engaged member, so that mchandler.EnqueueRequestForObject makes of it one
// request per member. A member that joins later is given the objects that there are.
func ForEachMember(selector labels.Selector) WatchOption {
	return func(o *watchOptions) { o.forEach, o.selector = true, selector }
}

func newWatch[request comparable](
	obj client.Object, h mchandler.TypedHandlerFunc[client.Object, request], opts []WatchOption,
) watch[request] {
	return watch[request]{watchOptions: optionsOf(opts), obj: obj, handler: h}
}

// optionsOf returns what the options of a watch say.
func optionsOf(opts []WatchOption) (o watchOptions) {
	for _, apply := range opts {
		apply(&o)
	}
	return o
}

// sources returns the controller's sources: what was given as it is, and those of each watch.
func (b *TypedBuilder[request]) sources() ([]source.TypedSource[request], error) {
	sources := slices.Clone(b.raw)
	for _, w := range b.watches {
		obj, err := w.project(b.mgr)
		if err != nil {
			return nil, err
		}
		sources = append(sources, w.filtered(b.predicates).sources(b.mgr, obj)...)
	}
	return sources, nil
}

// filtered returns the watch with a handler that is given the events alone that pass all predicates, after those of all watches.
func (w watch[request]) filtered(ofAll []predicate.Predicate) watch[request] {
	others := slices.Concat(ofAll, w.predicates)
	w.handler = filtered(w.handler, func(mcreconcile.ClusterName, cluster.Cluster) []predicate.Predicate { return others })
	for _, predicates := range w.predicatesIn { // which are asked before those within
		w.handler = filtered(w.handler, predicates)
	}
	return w
}

// sources places the watch where its options say.
func (w watch[request]) sources(mgr mcmanager.Manager, obj client.Object) []source.TypedSource[request] {
	fleetless := mgr.GetProvider() == nil
	var out []source.TypedSource[request]
	if w.inLocal || fleetless {
		out = append(out, localSource[request]{
			TypedSyncingSource: source.TypedKind(mgr.GetCache(), obj, w.handler(mcreconcile.LocalCluster, mgr)),
			mgr:                mgr,
		})
	}
	if fleetless {
		return out
	}
	if w.inMembers || w.anywhere() {
		out = append(out, mcsource.Fleet(mgr.GetFleet(), mcsource.TypedKind(obj, w.handler), w.selector))
	}
	if w.forEach {
		out = append(out, mcsource.Fleet(mgr.GetFleet(), mcsource.TypedEachCluster(mgr, obj, w.handler), w.selector))
	}
	return out
}

// where says in which clusters the controller's watches are.
func (b *TypedBuilder[request]) where() string {
	var all []string
	for _, w := range b.watches {
		for _, place := range w.where(b.mgr.GetProvider() == nil) {
			if !slices.Contains(all, place) {
				all = append(all, place)
			}
		}
	}
	switch {
	case len(all) == 0:
		return "the clusters that its sources name"
	case len(all) == 1 && all[0] == inLocalCluster && len(b.raw) == 0:
		return inLocalCluster + " alone"
	}
	return strings.Join(all, ", ")
}

const inLocalCluster = "the local cluster"

func (w watch[request]) where(fleetless bool) (places []string) {
	members := "every member"
	if w.selector != nil && !w.selector.Empty() {
		members = "the members that match " + w.selector.String()
	}
	if w.inLocal || fleetless {
		places = append(places, inLocalCluster)
	}
	if fleetless {
		return places
	}
	if w.inMembers || w.anywhere() {
		places = append(places, members)
	}
	if w.forEach {
		places = append(places, inLocalCluster+" for "+members)
	}
	return places
}

// anywhere reports whether no option says where the watch applies.
func (o watchOptions) anywhere() bool { return !o.inLocal && !o.inMembers && !o.forEach }

// isAbout reports whether the watch is about a cluster. A member that is not known may match the selector when it is.
func (o watchOptions) isAbout(name mcreconcile.ClusterName, mgr mcmanager.Manager) bool {
	fleetless := mgr.GetProvider() == nil
	if name == mcreconcile.LocalCluster || fleetless {
		return name == mcreconcile.LocalCluster && (o.inLocal || o.forEach || fleetless)
	}
	if inMembers := o.anywhere() || o.inMembers || o.forEach; !inMembers || o.selector == nil {
		return inMembers
	}
	status, known := mgr.GetFleet().Status(name)
	return !known || o.selector.Matches(labels.Set(status.Labels))
}

// project returns the object in the form in which it is watched.
func (w watch[request]) project(mgr mcmanager.Manager) (client.Object, error) {
	if !w.metadata {
		return w.obj, nil
	}
	gvk, err := apiutil.GVKForObject(w.obj, mgr.GetScheme())
	if err != nil {
		return nil, fmt.Errorf("watching metadata of %T: %w", w.obj, err)
	}
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(gvk)
	return meta, nil
}

// localSource is a watch in the local cluster. Its handlers find the cluster in their context, as they do elsewhere, and
// the controller waits for it to sync, as any controller does.
type localSource[request comparable] struct {
	source.TypedSyncingSource[request]
	mgr mcmanager.Manager
}

// Start implements source.TypedSource.
func (s localSource[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	return s.TypedSyncingSource.Start(mcreconcile.WithCluster(ctx, mcreconcile.LocalCluster, s.mgr), queue)
}

func (s localSource[request]) String() string { return fmt.Sprintf("local %v", s.TypedSyncingSource) }
