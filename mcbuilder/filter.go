package mcbuilder

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// filtered returns a handler that is given the events alone that pass the predicates of their cluster.
func filtered[request comparable](
	h mchandler.TypedHandlerFunc[client.Object, request], predicates predicatesFunc,
) mchandler.TypedHandlerFunc[client.Object, request] {
	return func(name mcreconcile.ClusterName, cl cluster.Cluster) handler.TypedEventHandler[client.Object, request] {
		return filter[request]{h(name, cl), predicate.And(predicates(name, cl)...)}
	}
}

type filter[request comparable] struct {
	handler handler.TypedEventHandler[client.Object, request]
	passes  predicate.Predicate
}

// Create implements handler.TypedEventHandler.
func (f filter[request]) Create(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[request]) {
	if f.passes.Create(e) {
		f.handler.Create(ctx, e, q)
	}
}

// Update implements handler.TypedEventHandler.
func (f filter[request]) Update(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[request]) {
	if f.passes.Update(e) {
		f.handler.Update(ctx, e, q)
	}
}

// Delete implements handler.TypedEventHandler.
func (f filter[request]) Delete(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[request]) {
	if f.passes.Delete(e) {
		f.handler.Delete(ctx, e, q)
	}
}

// Generic implements handler.TypedEventHandler.
func (f filter[request]) Generic(ctx context.Context, e event.GenericEvent, q workqueue.TypedRateLimitingInterface[request]) {
	if f.passes.Generic(e) {
		f.handler.Generic(ctx, e, q)
	}
}
