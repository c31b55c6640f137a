package mcbuilder

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// reconciler runs a controller's reconciler on the engagement of each request: the context carries the cluster, and ends
// with the engagement. Requests of clusters that cannot be used do not reach the inner reconciler.
type reconciler[request mcreconcile.ClusterAware[request]] struct {
	inner      reconcile.TypedReconciler[request]
	mgr        mcmanager.Manager
	controller string
}

// Reconcile implements reconcile.TypedReconciler.
func (r *reconciler[request]) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	if req.Cluster() == mcreconcile.LocalCluster {
		ctx = mcreconcile.WithCluster(ctx, context.WithoutCancel(ctx), mcreconcile.LocalCluster, r.mgr)
		result, err := r.inner.Reconcile(ctx, req)
		return r.answer(ctx, result, err)
	}
	engagement, err := r.mgr.GetFleet().Engagement(req.Cluster())
	if errors.Is(err, fleet.ErrNotReady) {
		return reconcile.Result{RequeueAfter: soon}, nil // the queue is about to park it
	}
	if err != nil {
		return r.answer(ctx, reconcile.Result{}, err)
	}
	leave, err := engagement.Enter(running[request]{r.controller, req})
	if err != nil {
		return r.disengaged(req), nil
	}
	defer leave()
	result, err := reconcile.Result{}, errPanicked
	defer func() { engagement.Reconciled(r.controller, result, err) }()
	result, err = r.engaged(ctx, engagement, req)
	return result, err
}

// errPanicked is what counts of a reconcile that has not returned. controller-runtime recovers from the panic.
var errPanicked = errors.New("the reconciler panicked")

// engaged reconciles on a context that ends with the engagement, for the reason for which that ends.
func (r *reconciler[request]) engaged(ctx context.Context, e *fleet.Engagement, req request) (reconcile.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(e.Context(), func() { cancel(context.Cause(e.Context())) })
	defer stop()

	result, err := r.inner.Reconcile(mcreconcile.WithCluster(ctx, e.Context(), e.Name(), e.Cluster()), req)
	if err != nil && e.Context().Err() != nil {
		log.FromContext(ctx).Info("The engagement ended while reconciling", "why", context.Cause(e.Context()).Error(), "result", err.Error())
		return r.disengaged(req), nil
	}
	return r.answer(ctx, result, err)
}

// disengaged says what becomes of a request whose engagement ended: it is for the next engagement, if there is one.
func (r *reconciler[request]) disengaged(req request) reconcile.Result {
	if _, known := r.mgr.GetFleet().Status(req.Cluster()); !known {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: soon}
}

const (
	// soon is when a request is tried again whose own cluster cannot be used: on the engagement that took the place of
	// another, or, since the queue parks it meanwhile, when the cluster is back.
	soon = 100 * time.Millisecond
	// later is when a request is tried again that needs another cluster, or a kind, which is not ready.
	later = 5 * time.Second
)

// answer has requests that need a cluster which cannot be used wait, or dropped if it is gone. Neither is an error of
// the reconciler's: the member's state shows what is wrong.
func (r *reconciler[request]) answer(ctx context.Context, result reconcile.Result, err error) (reconcile.Result, error) {
	switch {
	case errors.Is(err, fleet.ErrNotReady):
		log.FromContext(ctx).V(1).Info("Waiting for a cluster", "why", err.Error())
		return reconcile.Result{RequeueAfter: later + rand.N(later/5), Priority: result.Priority}, nil //nolint:gosec // it hides nothing
	case errors.Is(err, fleet.ErrGone), errors.Is(err, fleet.ErrNotOwned):
		log.FromContext(ctx).V(1).Info("Dropped the request", "why", err.Error())
		return reconcile.Result{}, nil
	case errors.Is(err, fleet.ErrUnknown):
		log.FromContext(ctx).Info("Dropped the request", "why", err.Error())
		return reconcile.Result{}, nil
	default:
		return result, err
	}
}

// running names a reconcile for a person who wonders what keeps a member from being drained.
type running[request any] struct {
	controller string
	request    request
}

func (r running[request]) String() string {
	return fmt.Sprintf("the reconcile of %v by controller %s", r.request, r.controller)
}
