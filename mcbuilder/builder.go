// Package mcbuilder builds controllers that run against every cluster of a fleet. It follows controller-runtime's
// builder, and what it builds is an ordinary controller of controller-runtime's.
package mcbuilder

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/placement"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Builder builds a controller. Its methods return the builder; errors come out of Build and Complete.
type Builder = TypedBuilder[mcreconcile.Request]

// Options are those of a controller-runtime controller.
type Options = controller.TypedOptions[mcreconcile.Request]

// TypedBuilder is a [Builder] for other types of requests.
type TypedBuilder[request mcreconcile.ClusterAware[request]] struct {
	mgr        mcmanager.Manager
	primary    client.Object // what For was given
	primaryIn  watchOptions  // that For was given
	watches    []watch[request]
	raw        []source.TypedSource[request]
	predicates []predicate.Predicate
	options    controller.TypedOptions[request]
	queue      mcqueue.Options[request]
	weight     func(fleet.Status) int
	middleware []TypedMiddleware[request]
	name       string
	errs       []error
}

// ControllerManagedBy starts a controller that mgr will run.
func ControllerManagedBy(mgr mcmanager.Manager) *Builder {
	return TypedControllerManagedBy[mcreconcile.Request](mgr)
}

// TypedControllerManagedBy is [ControllerManagedBy] for other types of requests.
func TypedControllerManagedBy[request mcreconcile.ClusterAware[request]](mgr mcmanager.Manager) *TypedBuilder[request] {
	return &TypedBuilder[request]{mgr: mgr}
}

// For names the kind that is reconciled: each event on an object becomes a request for it. The controller is named after
// the kind. For is called once, and only for requests of type mcreconcile.Request.
func (b *TypedBuilder[request]) For(obj client.Object, opts ...WatchOption) *TypedBuilder[request] {
	if b.primary != nil {
		b.errs = append(b.errs, errors.New("For may be called once"))
		return b
	}
	b.primary, b.primaryIn = obj, optionsOf(opts)
	return b.watchWith("For", obj, mchandler.EnqueueRequestForObject, opts)
}

// Owns watches a kind that the reconciler creates: each event on an object becomes a request for its controller, if that
// is of the kind that For names and in the same cluster. [MatchEveryOwner] is for owners that are not the controller,
// and [AcrossClusters] for owners in other clusters. An owner in a cluster in which For does not watch is not enqueued,
// whoever names it. Owns comes after For.
func (b *TypedBuilder[request]) Owns(obj client.Object, opts ...WatchOption) *TypedBuilder[request] {
	if b.primary == nil {
		b.errs = append(b.errs, errors.New("Owns comes after For, which names the owner's kind"))
		return b
	}
	return b.watchWith("Owns", obj, b.ownerHandler(opts), opts)
}

// Watches watches a kind with a handler that turns events into requests.
func (b *TypedBuilder[request]) Watches(
	obj client.Object, h mchandler.TypedHandlerFunc[client.Object, request], opts ...WatchOption,
) *TypedBuilder[request] {
	b.watches = append(b.watches, newWatch(obj, h, opts))
	return b
}

// WatchesMetadata is Watches with [OnlyMetadata].
func (b *TypedBuilder[request]) WatchesMetadata(
	obj client.Object, h mchandler.TypedHandlerFunc[client.Object, request], opts ...WatchOption,
) *TypedBuilder[request] {
	return b.Watches(obj, h, append(slices.Clone(opts), OnlyMetadata)...)
}

// watchWith is Watches with a handler of mcreconcile.Request.
func (b *TypedBuilder[request]) watchWith(method string, obj client.Object, h mchandler.HandlerFunc, opts []WatchOption) *TypedBuilder[request] {
	typed, ok := any(h).(mchandler.TypedHandlerFunc[client.Object, request])
	if !ok {
		b.errs = append(b.errs, fmt.Errorf("%s needs requests of type mcreconcile.Request, not %T: use Watches", method, *new(request)))
		return b
	}
	return b.Watches(obj, typed, opts...)
}

// WatchesRawSource adds a source as it is, such as mcsource.Clusters, or one of mcsource's for each member by way of
// mcsource.Fleet. Predicates of WithEventFilter do not apply to it.
func (b *TypedBuilder[request]) WatchesRawSource(src source.TypedSource[request]) *TypedBuilder[request] {
	b.raw = append(b.raw, src)
	return b
}

// WithEventFilter adds a predicate to all watches. Events must pass every one.
func (b *TypedBuilder[request]) WithEventFilter(p predicate.Predicate) *TypedBuilder[request] {
	b.predicates = append(b.predicates, p)
	return b
}

// WithOptions sets the controller's options. [TypedBuilder.WithControllerOptions] takes those that were written for one
// cluster. With a provider, MaxConcurrentReconciles is [DefaultWorkers] if neither it
// nor the manager's options say otherwise. The last call replaces all, as controller-runtime's does, but for a RateLimiter and a
// LogConstructor that it does not say: those of earlier calls stay, and that of [TypedBuilder.WithLogConstructor].
func (b *TypedBuilder[request]) WithOptions(options controller.TypedOptions[request]) *TypedBuilder[request] {
	if options.RateLimiter == nil {
		options.RateLimiter = b.options.RateLimiter
	}
	if options.LogConstructor == nil {
		options.LogConstructor = b.options.LogConstructor
	}
	b.options = options
	return b
}

// WithLogConstructor sets what makes the logger of a request, and of the controller itself, for which the request is
// nil. The cluster of a request is added to what it returns.
func (b *TypedBuilder[request]) WithLogConstructor(newLogger func(*request) logr.Logger) *TypedBuilder[request] {
	b.options.LogConstructor = newLogger
	return b
}

// Named names the controller, in metrics and logs. Names are unique in a process.
func (b *TypedBuilder[request]) Named(name string) *TypedBuilder[request] {
	b.name = name
	return b
}

// Complete builds the controller and adds it to the manager. mcreconcile.PerCluster makes a reconciler out of one that
// was written for a single cluster.
func (b *TypedBuilder[request]) Complete(r reconcile.TypedReconciler[request]) error {
	_, err := b.Build(r)
	return err
}

// DefaultWorkers is how many reconciles of a controller run at once if nothing else is set. controller-runtime's default
// of one would let a single slow cluster hold up all others.
const DefaultWorkers = 8

// Build is [TypedBuilder.Complete], and returns the controller.
func (b *TypedBuilder[request]) Build(r reconcile.TypedReconciler[request]) (controller.TypedController[request], error) {
	gvk, err := b.check(r)
	if err != nil {
		return nil, fmt.Errorf("building controller %q: %w", b.name, err)
	}
	if b.name == "" {
		b.name = strings.ToLower(gvk.Kind)
	}
	sources, err := b.sources()
	if err != nil {
		return nil, fmt.Errorf("building controller %q: %w", b.name, err)
	}

	inner, err := b.wrapped(r)
	if err != nil {
		return nil, fmt.Errorf("building controller %q: %w", b.name, err)
	}
	options := b.options
	waiting := &waiting[request]{unparked: options.NewQueue != nil && b.mgr.GetProvider() != nil}
	reconciler := &reconciler[request]{
		inner: inner, wrapped: len(b.middleware) > 0, mgr: b.mgr, controller: b.name, part: b.mgr.GetFleet().Controller(b.name), waiting: waiting, shared: b.isShared(),
	}
	if reconciler.shared {
		options.NeedLeaderElection = new(false)
	}
	options.Reconciler = reconciler
	options.LogConstructor = logConstructor(b.logger(), b.name, gvk, options.LogConstructor)
	options.MaxConcurrentReconciles = b.workers(gvk)
	if options.NewQueue == nil {
		queue := b.queue
		if b.mgr.GetProvider() != nil {
			queue = bounded(queue, options.MaxConcurrentReconciles)
			options.MaxConcurrentReconciles = queue.Workers + queue.Spare // the queue limits how many work
			options.UsePriorityQueue = new(true)                          // else the default limiter would be one for all clusters
		}
		options.NewQueue = reconciler.newQueue(queue, options.LogConstructor(nil))
	}
	c, err := controller.NewTyped(b.name, placement.Manager{Manager: b.mgr, Where: b.where()}, options)
	if err != nil {
		return nil, fmt.Errorf("building controller %q: %w", b.name, err)
	}
	leaver := newLeaver(sources, waiting)
	sources = append([]source.TypedSource[request]{attendance[request]{
		leaver: leaver, fleet: b.mgr.GetFleet(), controller: b.name, waiting: waiting, weight: b.weight, log: c.GetLogger(),
		started: reconciler.start,
	}}, sources...)
	for _, src := range sources {
		if err := c.Watch(src); err != nil {
			return nil, fmt.Errorf("starting %v of controller %q: %w", src, b.name, err)
		}
	}
	reconciler.part.OnLeave(leaver)
	return c, nil
}

// check reports what is missing, and returns the kind that For was given, if it was.
func (b *TypedBuilder[request]) check(r reconcile.TypedReconciler[request]) (gvk schema.GroupVersionKind, err error) {
	if b.mgr == nil {
		return gvk, errors.New("the manager is nil")
	}
	errs := b.errs
	if r == nil {
		errs = append(errs, errors.New("the reconciler is nil"))
	}
	if b.options.Reconciler != nil {
		errs = append(errs, errors.New("give the reconciler to Complete or Build, not to WithOptions"))
	}
	if len(b.watches)+len(b.raw) == 0 {
		errs = append(errs, errors.New("nothing is watched: use For, Watches or WatchesRawSource"))
	}
	if b.primary == nil && b.name == "" {
		errs = append(errs, errors.New("the controller has no name: use For or Named"))
	}
	for _, w := range b.watches {
		if w.obj == nil {
			errs = append(errs, errors.New("the object to watch is nil"))
		} else if _, err := apiutil.GVKForObject(w.obj, b.mgr.GetScheme()); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 && b.isShared() && b.options.NeedLeaderElection != nil && *b.options.NeedLeaderElection {
		errs = append(errs, errors.New("the option NeedLeaderElection is for controllers of the local cluster alone: "+
			"replicas share the members, and this one has some whether it is the leader or not"))
	}
	if len(errs) == 0 && b.primary != nil {
		gvk, err = apiutil.GVKForObject(b.primary, b.mgr.GetScheme())
		errs = append(errs, err)
	}
	return gvk, errors.Join(errs...)
}

// isShared reports whether several replicas share what the controller reconciles. One of the local cluster alone runs on the leader.
func (b *TypedBuilder[request]) isShared() bool {
	return b.mgr.GetFleet().Shared() && b.where() != inLocalCluster+" alone"
}

// logger is that of the controller's options, or of the manager.
func (b *TypedBuilder[request]) logger() logr.Logger {
	if b.options.Logger.GetSink() != nil {
		return b.options.Logger
	}
	return b.mgr.GetLogger()
}

// workers says how many reconciles run at once: what the controller's options say, or the manager's for the kind, or
// the manager's for all, or the default.
func (b *TypedBuilder[request]) workers(gvk schema.GroupVersionKind) int {
	global := b.mgr.GetControllerOptions()
	switch {
	case b.options.MaxConcurrentReconciles > 0:
		return b.options.MaxConcurrentReconciles
	case global.GroupKindConcurrency[gvk.GroupKind().String()] > 0:
		return global.GroupKindConcurrency[gvk.GroupKind().String()]
	case global.MaxConcurrentReconciles > 0:
		return global.MaxConcurrentReconciles
	case b.mgr.GetProvider() == nil:
		return 1 // a plain manager's
	default:
		return DefaultWorkers
	}
}
