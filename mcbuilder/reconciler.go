package mcbuilder

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/late"
	"github.com/fleet-runtime/fleet-runtime/internal/life"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// reconciler runs a controller's reconciler on the engagement of each request: the context carries the cluster, and ends
// with the engagement. Requests of clusters that cannot be used do not reach the inner reconciler.
type reconciler[request mcreconcile.ClusterAware[request]] struct {
	inner      reconcile.TypedReconciler[request]
	wrapped    bool // middleware is around it
	mgr        mcmanager.Manager
	controller string
	part       *fleet.Controller // that it has in the fleet
	waiting    *waiting[request]
	shared     bool // several replicas share what it reconciles, also in the local cluster
	// queue is where reconciles yield that wait for silent clusters, nil if they do not. It is set before the workers start.
	queue *mcqueue.Queue[request]
	// handsOut is the queue of the controller, whether reconciles yield in it or not, nil if it is of another kind. It is set before
	// the workers start.
	handsOut *mcqueue.Queue[request]
	// started is the context of the controller, nil before its start. It is set before the workers start.
	started context.Context //nolint:containedctx // it is the life of the local cluster in the reconciles' contexts
	// begun is when the controller started, zero before. It is set before the workers start.
	begun time.Time
}

// start is told the controller's context and queue, which is nil if it is of another kind, before the workers start.
func (r *reconciler[request]) start(ctx context.Context, queue *mcqueue.Queue[request]) {
	r.started, r.handsOut, r.begun = ctx, queue, time.Now()
}

// Reconcile implements reconcile.TypedReconciler.
func (r *reconciler[request]) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	r.waiting.forget(req)
	defer r.waiting.settle(req)
	this := &running[request]{controller: r.controller, request: req, queue: r.queue}
	if r.queue != nil {
		this.pulse.Begin(ctx, string(req.Cluster()), this)
		defer this.pulse.End()
		ctx = &this.pulse
	}
	if r.wrapped {
		ctx = context.WithValue(ctx, callKey{}, &calling[request]{r.controller, req, r.handsOut})
	}
	if req.Cluster() == mcreconcile.LocalCluster && !r.shared {
		if r.started != nil {
			ctx = life.With(ctx, r.started)
		}
		result, err := r.inner.Reconcile(mcreconcile.WithCluster(ctx, mcreconcile.LocalCluster, r.mgr), req)
		return r.answer(ctx, req, result, err)
	}
	joined, engagement, end, err := r.part.Begin(ctx, req.Cluster(), this)
	switch {
	case errors.Is(err, fleet.ErrNotReady), errors.Is(err, fleet.ErrNotOwned) && req.Cluster() == mcreconcile.LocalCluster:
		return r.again(req, nil), nil // the queue is about to park it
	case errors.Is(err, fleet.ErrDisengaged):
		return r.disengaged(req), nil
	case err != nil:
		return r.answer(ctx, req, reconcile.Result{}, err)
	}
	result, err := reconcile.Result{}, errPanicked
	defer func() { end(result, err) }()
	result, err = r.engaged(joined, engagement, req)
	return result, err
}

// errPanicked is what counts of a reconcile that has not returned. controller-runtime recovers from the panic.
var errPanicked = errors.New("the reconciler panicked")

// engaged reconciles on a context that has joined the engagement.
func (r *reconciler[request]) engaged(ctx context.Context, e *fleet.Engagement, req request) (reconcile.Result, error) {
	result, err := r.inner.Reconcile(mcreconcile.WithCluster(ctx, e.Name(), e.Cluster()), req)
	if err != nil && errors.Is(context.Cause(ctx), fleet.ErrNotReady) {
		log.FromContext(ctx).Info("The reconcile was ended", "why", context.Cause(ctx).Error(), "result", oneline.Text(err.Error(), maxError))
		return r.again(req, result.Priority), nil // the queue has parked it
	}
	if errors.Is(context.Cause(e.Context()), fleet.ErrAnotherCluster) {
		return reconcile.Result{}, nil // the request was for the cluster that had the name before
	}
	if err != nil && e.Context().Err() != nil {
		log.FromContext(ctx).Info("The engagement ended while reconciling", "why", context.Cause(e.Context()).Error(), "result", oneline.Text(err.Error(), maxError))
		return r.disengaged(req), nil //nolint:nilerr // the log has it
	}
	return r.answer(ctx, req, result, err)
}

// disengaged says what becomes of a request whose engagement ended: it is for the next engagement, if there is one.
func (r *reconciler[request]) disengaged(req request) reconcile.Result {
	if _, known := r.mgr.GetFleet().Status(req.Cluster()); !known && req.Cluster() != mcreconcile.LocalCluster {
		return reconcile.Result{}
	}
	return r.again(req, nil)
}

// again says that a request is tried again of which nothing was done: soon, as the queue parks it until its cluster can be used, or,
// with a queue of another kind, then.
func (r *reconciler[request]) again(req request, priority *int) reconcile.Result {
	if r.waiting.unparked {
		return reconcile.Result{RequeueAfter: r.wait(req, []need{{cluster: req.Cluster()}}, 0), Priority: priority}
	}
	r.waiting.add(req, nil)
	return reconcile.Result{RequeueAfter: soon, Priority: priority}
}

const (
	// soon is when a request is tried again whose own cluster cannot be used: on the engagement that took the place of
	// another, or, since the queue parks it meanwhile, when the cluster is back.
	soon = 100 * time.Millisecond
	// later is when a request is tried again that needs a kind which is not synced, unless that works before: a kind that nobody
	// asks for is not tried. Where a source goes on asking, the status tells, and the pauses grow to latest.
	later  = 5 * time.Second
	latest = time.Minute
)

// answer lets a request that needs other clusters wait until one of them is ready, and drops it if they are gone. Neither
// is an error of the reconciler's: the members' states show what is wrong.
func (r *reconciler[request]) answer(ctx context.Context, req request, result reconcile.Result, err error) (reconcile.Result, error) {
	what := complaint{own: req.Cluster()}
	if err != nil {
		what.add(err)
	}
	if err == nil || what.another {
		return result, oneline.Error(err, maxError) // controller-runtime logs it
	}
	itself := need{cluster: req.Cluster()}
	needs := slices.DeleteFunc(slices.Clone(what.missing), func(n need) bool { return n == itself })
	own, known := r.mgr.GetFleet().Status(req.Cluster())
	switch {
	case len(needs) < len(what.missing) && (known && own.State != fleet.Draining || req.Cluster() == mcreconcile.LocalCluster):
		return r.again(req, result.Priority), nil // the queue is about to park it
	case len(needs) == 0 && !what.kinds && r.mayCome(req.Cluster()):
		log.FromContext(ctx).V(1).Info("Waiting, as a provider may report its cluster yet", "why", oneline.Text(err.Error(), maxError))
		return reconcile.Result{RequeueAfter: cmp.Or(r.wait(req, []need{itself}, 0), late.Most), Priority: result.Priority}, nil
	case len(needs) == 0 && !what.kinds:
		log.FromContext(ctx).Info("Dropped the request: what it needs is gone, or is no member", "why", oneline.Text(err.Error(), maxError))
		return reconcile.Result{}, nil
	}
	log.FromContext(ctx).V(1).Info("Waiting", "why", oneline.Text(err.Error(), maxError))
	return reconcile.Result{RequeueAfter: r.wait(req, needs, r.pause(req, what)), Priority: result.Priority}, nil
}

// mayCome reports whether a cluster is not known, and the program has started so lately that a provider may report it yet. Requests may come
// from what strangers write, so that later none waits for whatever they name.
func (r *reconciler[request]) mayCome(name fleet.ClusterName) bool {
	_, err := r.mgr.GetFleet().Engagement(name)
	return name != mcreconcile.LocalCluster && errors.Is(err, fleet.ErrUnknown) && time.Since(r.begun) < late.Most
}

// pause returns when a request is tried again that needs what an error complains of, zero if somebody tells for certain.
func (r *reconciler[request]) pause(req request, what complaint) time.Duration {
	switch {
	case !what.kinds:
		return 0
	case what.untried:
		return aboutLater()
	default:
		return r.waiting.pause(req)
	}
}

func aboutLater() time.Duration { return later + rand.N(later/5) } //nolint:gosec // it hides nothing

// wait lets a request wait for what it needs. It returns when to try again in any case, zero for not, and after, unless nobody tells.
func (r *reconciler[request]) wait(req request, needs []need, after time.Duration) time.Duration {
	if !r.waiting.served.Load() {
		after = aboutLater()
	}
	r.waiting.add(req, needs)
	if slices.ContainsFunc(needs, r.isMet) {
		return soon // it became ready, or left, before the request waited
	}
	return after
}

// isMet reports whether nobody would tell any more that a request need not wait.
func (r *reconciler[request]) isMet(n need) bool {
	if !n.kind.Empty() {
		status, _ := r.mgr.GetFleet().Status(n.cluster)
		return n.isMet(status)
	}
	_, err := r.mgr.GetFleet().Engagement(n.cluster)
	if state, ok := errors.AsType[*fleet.StateError](err); ok {
		return !errors.Is(err, fleet.ErrUnknown) && n.isMet(state.Status) // one that is unknown may come yet
	}
	return true
}

// maxError is as much of a reconciler's error as is logged, in bytes. It may have what servers answer, which is theirs to
// choose, as it is how long that is.
const maxError = 4096

// complaint is what an error says of clusters that cannot be used.
type complaint struct {
	own     fleet.ClusterName // of the request
	missing []need            // clusters that are not ready, or not known, and kinds that are not synced
	kinds   bool              // something is not ready that may need to be asked for again
	untried bool              // that is so, and nobody else goes on asking for it
	another bool              // the error is about something else, or about that too
}

// add goes down the tree of an error: of several that were joined, each counts.
func (c *complaint) add(err error) {
	switch e := err.(type) { //nolint:errorlint // it goes down the tree itself
	case *fleet.StateError:
		if errors.Is(e, fleet.ErrNotReady) || errors.Is(e, fleet.ErrUnknown) {
			c.missing = append(c.missing, need{cluster: e.Status.Name})
		}
		// Nobody tells when this replica owns it, if ever: the reconciler should be its guest.
		c.another = c.another || errors.Is(e, fleet.ErrNotOwned) && e.Status.Name != c.own
	case interface {
		NotSynced() (fleet.ClusterName, schema.GroupKind)
	}:
		cluster, kind := e.NotSynced()
		goesOn, says := e.(interface{ IsTried() bool })
		c.missing, c.kinds = append(c.missing, need{cluster, kind}), true
		c.untried = c.untried || !says || !goesOn.IsTried()
	case interface{ Unwrap() []error }:
		c.another = c.another || len(e.Unwrap()) == 0
		for _, err := range e.Unwrap() {
			c.add(err)
		}
	case interface{ Errors() []error }: // apimachinery's aggregates, whose Is is satisfied by any of them
		for _, err := range e.Errors() {
			c.add(err)
		}
	case interface{ Is(err error) bool }:
		c.kinds, c.untried = c.kinds || e.Is(fleet.ErrNotReady), c.untried || e.Is(fleet.ErrNotReady)
		c.another = c.another || !e.Is(fleet.ErrNotReady)
	case interface{ Unwrap() error }:
		c.add(e.Unwrap())
	default:
		waits := slices.Contains([]error{fleet.ErrNotReady, fleet.ErrUnknown}, err)
		c.kinds, c.untried = c.kinds || waits, c.untried || waits
		c.another = c.another || !slices.Contains([]error{fleet.ErrNotReady, fleet.ErrUnknown, fleet.ErrGone, fleet.ErrNotOwned}, err)
	}
}
