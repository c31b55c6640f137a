package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
)

const (
	// checkEvery is how often an access is tried that works. What becomes of members meanwhile is for the fleet to notice.
	checkEvery = 10 * time.Minute
	// checkSoonest and checkLatest bound the time between attempts of one that does not work.
	checkSoonest, checkLatest = 5 * time.Second, 2 * time.Minute
	// checksAtOnce is how many are tried side by side. Each may wait for a cluster that does not answer.
	checksAtOnce = 16
)

// Controller keeps the status of ClusterAccesses, which it writes when it changes, and renews the minters' own tokens in their
// Secrets. It works on the elected replica alone. The zero value is ready for use.
type Controller struct{}

// SetupWithManager adds the controller to a manager, whose scheme must know the kinds of package v1alpha1. It looks where the
// manager's cache does. The manager of a fleet serves as well as one of controller-runtime's.
func (Controller) SetupWithManager(mgr manager.Manager) error {
	hub, err := NewHub(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("access: a client of the hub: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("clusteraccess").
		For(&v1alpha1.ClusterAccess{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: checksAtOnce}).
		Complete(&reconciler{hub, mgr.GetClient()})
	if err != nil {
		return fmt.Errorf("access: the controller of ClusterAccesses: %w", err)
	}
	return nil
}

type reconciler struct {
	hub    *Hub
	client client.Client
}

// Reconcile implements [ctrl.Reconciler].
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	a := &v1alpha1.ClusterAccess{}
	if err := r.client.Get(ctx, req.NamespacedName, a); err != nil || !a.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := a.DeepCopy()
	again, err := r.check(ctx, a)
	if err == nil && !equality.Semantic.DeepEqual(before.Status, a.Status) {
		err = r.client.Status().Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // the cache has not seen the last write yet
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	priority := 0
	if meta.IsStatusConditionFalse(a.Status.Conditions, v1alpha1.ConditionReady) {
		priority = handler.LowPriority // however many there are that do not work, the others are not behind them
	}
	return ctrl.Result{RequeueAfter: again, Priority: &priority}, err
}

// check tries an access, and returns when to do so again. An error is one of the hub's API, after which nothing is to be said.
func (r *reconciler) check(ctx context.Context, a *v1alpha1.ClusterAccess) (again time.Duration, err error) {
	if a.Spec.Paused {
		paused := &Error{v1alpha1.ReasonPaused, "spec.paused is set, so the cluster is not connected", nil}
		set(a, v1alpha1.ConditionAuthorized, metav1.ConditionUnknown, paused)
		set(a, v1alpha1.ConditionReady, metav1.ConditionFalse, paused)
		return 0, nil
	}
	token, err := r.hub.Token(ctx, a)
	clock := clockOf(token)
	life, notRenewed, conflict := r.keepMinter(ctx, a, clock())
	if conflict != nil {
		return 0, conflict
	}
	if err != nil {
		set(a, v1alpha1.ConditionAuthorized, authorized(err), err)
		return notReady(a, err), nil
	}
	set(a, v1alpha1.ConditionAuthorized, metav1.ConditionTrue, nil)
	user, err := Check(ctx, a, token)
	if err != nil {
		return notReady(a, err), nil
	}
	a.Status.Subject = user
	set(a, v1alpha1.ConditionReady, metav1.ConditionTrue, notRenewed)
	if life == (minterLife{}) {
		return checkEvery, nil
	}
	return life.next(clock()), nil
}

// keepMinter notes the life of a minter's token, after that is renewed if it is time by the clock of the cluster. notRenewed is why that
// has failed: the cluster can be used for as long as the token lives that there is. err is a conflict.
func (r *reconciler) keepMinter(ctx context.Context, a *v1alpha1.ClusterAccess, now time.Time) (life minterLife, notRenewed, err error) {
	if a.Spec.Minter == nil {
		a.Status.ExpirationTime, a.Status.RenewTime = metav1.Time{}, metav1.Time{}
		return life, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	life, err = r.hub.keepMinter(ctx, a, now)
	if apierrors.IsConflict(err) {
		return life, nil, err
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("The minter's token is not renewed", "reason", reasonOf(err), "error", err.Error())
		notRenewed = life.endsFor(err)
	}
	a.Status.ExpirationTime, a.Status.RenewTime = metav1.NewTime(life.expires), metav1.NewTime(life.made)
	return life, notRenewed, nil
}

// authorized is what an error on the way to a token says of whether tokens may be made.
func authorized(err error) metav1.ConditionStatus {
	switch reasonOf(err) {
	case v1alpha1.ReasonServiceAccountNotFound, v1alpha1.ReasonNotAllowed, v1alpha1.ReasonSecretNotFound, v1alpha1.ReasonSecretInvalid,
		v1alpha1.ReasonMismatch, v1alpha1.ReasonMinterExpired, v1alpha1.ReasonInvalid:
		return metav1.ConditionFalse
	}
	return metav1.ConditionUnknown
}

// notReady sets the condition, and returns when to try again: the later, the longer it has not worked.
func notReady(a *v1alpha1.ClusterAccess, err error) time.Duration {
	set(a, v1alpha1.ConditionReady, metav1.ConditionFalse, err)
	since := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady).LastTransitionTime
	return min(max(time.Since(since.Time)/4, checkSoonest), checkLatest)
}

// set sets a condition of an access.
func set(a *v1alpha1.ClusterAccess, kind string, status metav1.ConditionStatus, why error) {
	setCondition(&a.Status.Conditions, a.Generation, kind, status, why)
}

// setCondition sets a condition. What a message says of the cause alone is no news: it may have ports and times, which are others with each
// attempt.
func setCondition(conditions *[]metav1.Condition, generation int64, kind string, status metav1.ConditionStatus, why error) {
	c := metav1.Condition{Type: kind, Status: status, Reason: v1alpha1.ReasonAsExpected, ObservedGeneration: generation}
	if why != nil {
		c.Reason, c.Message = reasonOf(why), why.Error()
	}
	if known := meta.FindStatusCondition(*conditions, kind); known != nil && known.Status == status && known.Reason == c.Reason && saysWhy(known, generation, why) {
		known.ObservedGeneration = generation
		return
	}
	meta.SetStatusCondition(conditions, c)
}

// saysWhy reports whether a condition says of this generation what an error does, but for its cause. What an API server has answered counts too.
func saysWhy(known *metav1.Condition, generation int64, why error) bool {
	own, isOwn := errors.AsType[*Error](why)
	switch {
	case why == nil:
		return true
	case known.ObservedGeneration != generation:
		return false
	case !isOwn:
		return true
	case own.isAnswer():
		return known.Message == why.Error()
	default:
		return strings.Contains(known.Message+": ", own.message+": ")
	}
}
