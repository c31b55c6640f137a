package mcbuilder

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// WithControllerOptions is [TypedBuilder.WithOptions] for options that were written for one cluster, and only for requests of
// type mcreconcile.Request. It replaces options as WithOptions does.
//
// The rate limiter and the log constructor know no clusters. So that failures in one cluster do not slow down another, the rate
// limiter is given the cluster as part of the namespace, "CLUSTER/NAMESPACE". What the log constructor returns gets the cluster
// as a value. Reconciler and NewQueue are errors of Build, which say what takes their place. UsePriorityQueue
// counts for a manager without a provider alone, where it chooses the default of the rate limiter: the queue has priorities.
func (b *TypedBuilder[request]) WithControllerOptions(options controller.Options) *TypedBuilder[request] {
	lifted, err := liftOptions(options)
	typed, ok := any(lifted).(controller.TypedOptions[request])
	if !ok {
		err = fmt.Errorf("WithControllerOptions needs requests of type mcreconcile.Request, not %T: use WithOptions", *new(request))
	}
	if err != nil {
		b.errs = append(b.errs, err)
	}
	return b.WithOptions(typed)
}

// liftOptions makes options for the clusters of a fleet out of those for one cluster.
func liftOptions(given controller.Options) (Options, error) {
	var errs []error
	if given.Reconciler != nil {
		errs = append(errs, errors.New("the option Reconciler is for one cluster: give what mcreconcile.PerCluster makes of it to Complete or Build"))
	}
	if given.NewQueue != nil {
		errs = append(errs, errors.New("the option NewQueue makes queues for one cluster: use WithQueue, or NewQueue of mcbuilder.Options"))
	}
	lifted := Options{
		SkipNameValidation:      given.SkipNameValidation,
		MaxConcurrentReconciles: given.MaxConcurrentReconciles,
		CacheSyncTimeout:        given.CacheSyncTimeout,
		RecoverPanic:            given.RecoverPanic,
		NeedLeaderElection:      given.NeedLeaderElection,
		Logger:                  given.Logger,
		UsePriorityQueue:        given.UsePriorityQueue,
		EnableWarmup:            given.EnableWarmup,
		ReconciliationTimeout:   given.ReconciliationTimeout,
	}
	if given.RateLimiter != nil {
		lifted.RateLimiter = liftedLimiter{given.RateLimiter}
	}
	if given.LogConstructor != nil {
		lifted.LogConstructor = func(req *mcreconcile.Request) logr.Logger {
			if req == nil {
				return given.LogConstructor(nil)
			}
			return given.LogConstructor(&req.Request)
		}
	}
	return lifted, errors.Join(errs...)
}

// liftedLimiter is a rate limiter for one cluster that is told requests of many apart.
type liftedLimiter struct {
	inner workqueue.TypedRateLimiter[reconcile.Request]
}

// When implements workqueue.TypedRateLimiter.
func (l liftedLimiter) When(req mcreconcile.Request) time.Duration { return l.inner.When(flat(req)) }

// Forget implements workqueue.TypedRateLimiter.
func (l liftedLimiter) Forget(req mcreconcile.Request) { l.inner.Forget(flat(req)) }

// NumRequeues implements workqueue.TypedRateLimiter.
func (l liftedLimiter) NumRequeues(req mcreconcile.Request) int {
	return l.inner.NumRequeues(flat(req))
}

// flat returns a plain request that is another for each cluster. A namespace has no slash, so none is taken for a cluster.
func flat(req mcreconcile.Request) reconcile.Request {
	plain := req.Request
	if req.ClusterName != mcreconcile.LocalCluster {
		plain.Namespace = string(req.ClusterName) + "/" + plain.Namespace
	}
	return plain
}
