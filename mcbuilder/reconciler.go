package mcbuilder

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	waiting    *waiting[request]
}

// Reconcile implements reconcile.TypedReconciler.
func (r *reconciler[request]) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	if req.Cluster() == mcreconcile.LocalCluster {
		ctx = mcreconcile.WithCluster(ctx, context.WithoutCancel(ctx), mcreconcile.LocalCluster, r.mgr)
		result, err := r.inner.Reconcile(ctx, req)
		return r.answer(ctx, req, result, err)
	}
	engagement, err := r.mgr.GetFleet().Engagement(req.Cluster())
	if errors.Is(err, fleet.ErrNotReady) {
		return reconcile.Result{RequeueAfter: soon}, nil // the queue is about to park it
	}
	if err != nil {
		return r.answer(ctx, req, reconcile.Result{}, err)
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
	return r.answer(ctx, req, result, err)
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
	// later is when a request is tried again that needs a kind which is not synced.
	later = 5 * time.Second
)

// answer has a request that needs another cluster wait until that is ready, and drops it if the cluster is gone. Neither
// is an error of the reconciler's: the member's state shows what is wrong.
func (r *reconciler[request]) answer(ctx context.Context, req request, result reconcile.Result, err error) (reconcile.Result, error) {
	switch {
	case !aboutStates(err):
		return result, err
	case errors.Is(err, fleet.ErrNotReady), errors.Is(err, fleet.ErrUnknown):
		return r.wait(ctx, req, result.Priority, err), nil
	default:
		log.FromContext(ctx).V(1).Info("Dropped the request", "why", err.Error())
		return reconcile.Result{}, nil
	}
}

// aboutStates reports whether an error says that clusters cannot be used, and nothing else: of several that were joined,
// each must.
func aboutStates(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it goes down the tree itself
	case *fleet.StateError:
		return true
	case interface{ Is(err error) bool }:
		return e.Is(fleet.ErrNotReady)
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return !aboutStates(err) })
	case interface{ Unwrap() error }:
		return aboutStates(e.Unwrap())
	}
	return slices.Contains([]error{fleet.ErrNotReady, fleet.ErrUnknown, fleet.ErrGone, fleet.ErrNotOwned}, err)
}

// wait says what becomes of a request that needs something that is not there yet.
func (r *reconciler[request]) wait(ctx context.Context, req request, priority *int, why error) reconcile.Result {
	state, ok := errors.AsType[*fleet.StateError](why)
	switch {
	case ok && state.Status.Name == req.Cluster() && errors.Is(state, fleet.ErrUnknown):
		log.FromContext(ctx).Info("Dropped the request of a cluster that is none", "why", why.Error())
		return reconcile.Result{}
	case ok && state.Status.Name == req.Cluster():
		return reconcile.Result{RequeueAfter: soon, Priority: priority} // the queue is about to park it
	case !ok || !r.waiting.served.Load():
		log.FromContext(ctx).V(1).Info("Trying again later", "why", why.Error())
		return reconcile.Result{RequeueAfter: later + rand.N(later/5), Priority: priority} //nolint:gosec // it hides nothing
	}
	log.FromContext(ctx).V(1).Info("Waiting for a cluster", "why", why.Error())
	r.waiting.add(state.Status.Name, req, priority)
	if _, err := r.mgr.GetFleet().Engagement(state.Status.Name); err != nil {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: soon, Priority: priority} // it became ready before the request waited
}

// running names a reconcile for a person who wonders what keeps a member from being drained.
type running[request any] struct {
	controller string
	request    request
}

func (r running[request]) String() string {
	return fmt.Sprintf("the reconcile of %v by controller %s", r.request, r.controller)
}
