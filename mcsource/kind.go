package mcsource

import (
	"context"
	"fmt"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Kind watches the objects of a kind in each cluster.
func Kind[object client.Object](
	obj object, h mchandler.TypedHandlerFunc[object, mcreconcile.Request], predicates ...predicate.TypedPredicate[object],
) Source {
	return TypedKind(obj, h, predicates...)
}

// TypedKind is [Kind] for other types of requests.
func TypedKind[object client.Object, request comparable](
	obj object, h mchandler.TypedHandlerFunc[object, request], predicates ...predicate.TypedPredicate[object],
) TypedSource[request] {
	return &kind[object, request]{obj: obj, handler: h, predicates: predicates}
}

// EachCluster watches the objects of a kind in one cluster, usually the local one, on behalf of every member: an event
// there is handled once for each engaged member, with the member's name. A member that joins later is given all objects
// that there are, with the low priority of an initial list.
func EachCluster[object client.Object](
	in cluster.Cluster, obj object, h mchandler.TypedHandlerFunc[object, mcreconcile.Request], predicates ...predicate.TypedPredicate[object],
) Source {
	return TypedEachCluster(in, obj, h, predicates...)
}

// TypedEachCluster is [EachCluster] for other types of requests.
func TypedEachCluster[object client.Object, request comparable](
	in cluster.Cluster, obj object, h mchandler.TypedHandlerFunc[object, request], predicates ...predicate.TypedPredicate[object],
) TypedSource[request] {
	return &kind[object, request]{in: in, obj: obj, handler: h, predicates: predicates}
}

type kind[object client.Object, request comparable] struct {
	in         cluster.Cluster // nil stands for the member itself
	obj        object
	handler    mchandler.TypedHandlerFunc[object, request]
	predicates []predicate.TypedPredicate[object]
}

// ForCluster implements TypedSource.
func (k *kind[object, request]) ForCluster(
	_ context.Context, name mcreconcile.ClusterName, cl cluster.Cluster,
) (source.TypedSource[request], error) {
	watched := cl
	if k.in != nil {
		watched = k.in
	}
	if _, err := apiutil.GVKForObject(k.obj, watched.GetScheme()); err != nil { // controller-runtime would ask for it again and again
		return nil, err
	}
	return &engagedKind[object, request]{kind: k, cluster: watched, handler: k.handler(name, cl)}, nil
}

func (k *kind[object, request]) String() string {
	gvk := k.obj.GetObjectKind().GroupVersionKind()
	if gvk.Empty() {
		return fmt.Sprintf("watch of %T", k.obj)
	}
	return fmt.Sprintf("watch of %s", gvk.GroupKind())
}

// engagedKind is controller-runtime's kind source on a view of the cache that lasts as long as the engagement.
type engagedKind[object client.Object, request comparable] struct {
	*kind[object, request]
	cluster cluster.Cluster
	handler eventHandler[object, request]
	view    *engagedCache
}

// Start implements source.TypedSource.
func (k *engagedKind[object, request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	k.view = newEngagedCache(ctx, k.cluster.GetCache())
	obj := k.obj.DeepCopyObject().(object) //nolint:forcetypeassert // a copy has the type of the original
	return source.TypedKind(k.view, obj, k.handler, k.predicates...).Start(ctx, queue)
}

// WaitForSync implements source.TypedSyncingSource. The source has started.
func (k *engagedKind[object, request]) WaitForSync(ctx context.Context) error {
	return k.view.sync(ctx)
}

// Wait returns when no handler of the source runs any more.
func (k *engagedKind[object, request]) Wait() { k.view.wait() }
