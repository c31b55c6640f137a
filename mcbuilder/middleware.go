package mcbuilder

import (
	"context"
	"errors"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Middleware wraps the reconciler of a controller: it returns one that does something before and after next, or in its place.
// It is called once, when the controller is built.
type Middleware = TypedMiddleware[mcreconcile.Request]

// TypedMiddleware is a [Middleware] for other types of requests.
type TypedMiddleware[request mcreconcile.ClusterAware[request]] func(next reconcile.TypedReconciler[request]) reconcile.TypedReconciler[request]

// WithMiddleware puts middleware around the reconciler, such as traces, logging, or limits of one's own. The first is the
// outermost. Called again, it adds more inside of those.
//
// What middleware returns has the context of a reconcile: mcreconcile.ClusterFrom, mcreconcile.Leaving and [CallFrom] work, it ends
// with the engagement, and several run at once. It calls next with that context, or one made of it, and the same request. An
// error of next it returns as it is, or wraps with %w: the fleet's errors make the request wait for its clusters. Requests of
// clusters that cannot be used reach neither the reconciler nor its middleware.
func (b *TypedBuilder[request]) WithMiddleware(middleware ...TypedMiddleware[request]) *TypedBuilder[request] {
	b.middleware = append(b.middleware, middleware...)
	return b
}

// wrapped returns a reconciler in its middleware.
func (b *TypedBuilder[request]) wrapped(r reconcile.TypedReconciler[request]) (reconcile.TypedReconciler[request], error) {
	for _, wrap := range slices.Backward(b.middleware) {
		if wrap == nil {
			return nil, errors.New("a middleware is nil")
		}
		if r = wrap(r); r == nil {
			return nil, errors.New("a middleware returned no reconciler")
		}
	}
	return r, nil
}

// Call is what a reconcile has beside its request and its cluster.
type Call struct {
	// Controller is the name of the controller.
	Controller string
	// Priority is with which the queue handed out the request, and Waited for how long the request had been ready by then,
	// see mcqueue.Queue.InFlight. Both are zero with a queue of another kind.
	Priority int
	Waited   time.Duration
}

// CallFrom returns what is known of the reconcile to which ctx belongs, until that ends. It is false outside of the middleware of
// [TypedBuilder.WithMiddleware] and what that calls.
func CallFrom(ctx context.Context) (call Call, ok bool) {
	c, ok := ctx.Value(callKey{}).(caller)
	if !ok {
		return Call{}, false
	}
	return c.call(), true
}

type callKey struct{}

// caller is a [calling] of any type of requests.
type caller interface{ call() Call }

// calling is what the context of a reconcile carries for middleware.
type calling[request mcreconcile.ClusterAware[request]] struct {
	controller string
	request    request
	queue      *mcqueue.Queue[request] // nil if it is of another kind
}

func (c *calling[request]) call() Call {
	call := Call{Controller: c.controller}
	if c.queue != nil {
		call.Priority, call.Waited, _ = c.queue.InFlight(c.request)
	}
	return call
}
