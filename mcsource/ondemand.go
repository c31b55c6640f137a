package mcsource

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// OnDemand is a source that watches nothing at first. Reconcilers ask it, by [TypedOnDemand.Watch], to watch something in a cluster
// from now on: for example the nodes of the clusters alone that have an object which needs them. It is made by [NewOnDemand] and
// given to one controller, by WatchesRawSource. It is safe for concurrent use.
type OnDemand = TypedOnDemand[mcreconcile.Request]

// TypedOnDemand is an [OnDemand] for other types of requests.
type TypedOnDemand[request comparable] struct {
	fleet *fleet.Fleet

	mu      sync.Mutex // guards what follows
	watches map[watchKey]*watch[request]
	ctx     context.Context //nolint:containedctx // the controller's, nil before it starts
	queue   workqueue.TypedRateLimitingInterface[request]
}

var _ source.TypedSource[mcreconcile.Request] = (*OnDemand)(nil)

// watchKey tells watches apart. There is one for each in the member's engagement of the moment.
type watchKey struct {
	member mcreconcile.ClusterName
	name   string
}

// watch is what was asked for, until its engagement ends.
type watch[request comparable] struct {
	engagement *fleet.Engagement
	each       TypedSource[request]
	stop       context.CancelFunc // ends the source, nil before the controller starts
	unfollow   func() bool        // ends that the engagement's end is followed
	// told is closed when handlers have had every object that there was. It is nil for a watch that began before the member was
	// about to leave: Replay tells of that one.
	told chan struct{}
}

// ErrNotTold says that a member is about to leave, and that a watch on demand has begun since, of which not every object has been told.
var ErrNotTold = errors.New("the cluster is about to leave, and not every object that is watched has been told yet")

// isTold returns an error for a watch for which a reconcile in a member that leaves has to wait.
func (w *watch[request]) isTold(ctx context.Context) error {
	if w.told == nil || !mcreconcile.Leaving(ctx) {
		return nil
	}
	select {
	case <-w.told:
		return nil
	default:
		return ErrNotTold
	}
}

// isIn reports whether there is a watch, and it is that of a reconcile. Its engagement may be over.
func (w *watch[request]) isIn(ctx context.Context) bool {
	return w != nil && w.engagement.Cluster() == mcreconcile.ClusterFrom(ctx)
}

// String names it for a person who wonders what keeps a member from being drained.
func (w *watch[request]) String() string { return fmt.Sprintf("%v on demand", w.each) }

// NewOnDemand returns a source for one controller, of members of f.
func NewOnDemand(f *fleet.Fleet) *OnDemand { return NewTypedOnDemand[mcreconcile.Request](f) }

// NewTypedOnDemand is [NewOnDemand] for other types of requests.
func NewTypedOnDemand[request comparable](f *fleet.Fleet) *TypedOnDemand[request] {
	return &TypedOnDemand[request]{fleet: f, watches: map[watchKey]*watch[request]{}}
}

// Start implements source.TypedSource. What was asked for before begins now.
func (d *TypedOnDemand[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx != nil {
		return errors.New("starting a source on demand: it was started before; make one for each controller")
	}
	d.ctx, d.queue = ctx, queue
	for _, w := range d.watches {
		_ = d.beginLocked(w) // it fails for an engagement that is over, and that forgets the watch
	}
	return nil
}

func (d *TypedOnDemand[request]) String() string { return "watches on demand" }

// Watch makes each bring events of the cluster that ctx carries, which is that of the request that is being reconciled. Events of
// another member are brought with a context that mcreconcile.WithCluster returns for it.
//
// Asking again for the same name does nothing and costs little, so a reconciler asks each time. The watch ends with the engagement
// of the member, and begins anew when a reconcile asks in the next one. Objects that there are at the beginning are told, with the
// low priority of an initial list.
//
// It waits for nothing. If the source cannot be started, that is logged and tried again, as in [Fleet], and a kind that the
// member does not serve or may not be listed is in its status. An error says that the member cannot be used now; it wraps those of
// fleet.Fleet.Engagement, or the cause of the end of the engagement, so a reconciler returns it. So it does [ErrNotTold]: in a member
// that is about to leave, a watch that begins then is an error until its objects have been told, so that the member waits for them.
func (d *TypedOnDemand[request]) Watch(ctx context.Context, name string, each TypedSource[request]) error {
	in, _ := mcreconcile.ClusterNameFrom(ctx)
	if name == "" || each == nil || in == mcreconcile.LocalCluster {
		return fmt.Errorf("watching %q on demand needs a name, a source, and a context that carries a member; its cluster is %q", name, in)
	}
	if err := d.watch(ctx, watchKey{in, name}, each); err != nil {
		return fmt.Errorf("watching %q on demand in cluster %q: %w", name, in, err)
	}
	return nil
}

func (d *TypedOnDemand[request]) watch(ctx context.Context, key watchKey, each TypedSource[request]) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if w := d.get(ctx, key); w != nil {
		return w.isTold(ctx)
	}
	e, err := d.fleet.Engagement(key.member)
	if err != nil {
		return err
	}
	w := &watch[request]{engagement: e, each: each}
	if mcreconcile.Leaving(ctx) {
		w.told = make(chan struct{})
	}
	if !w.isIn(ctx) {
		return fmt.Errorf("%w: it was connected anew", fleet.ErrDisengaged)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if before := d.watches[key]; before != nil && before.engagement == e {
		return before.isTold(ctx)
	}
	if err := d.beginLocked(w); err != nil {
		return err
	}
	d.watches[key] = w // if there is another, its engagement is over
	w.unfollow = context.AfterFunc(e.Context(), func() { d.forget(key, w) })
	return w.isTold(ctx)
}

// get returns such a watch, nil if there is none, without asking the fleet.
func (d *TypedOnDemand[request]) get(ctx context.Context, key watchKey) *watch[request] {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.watches[key]; w.isIn(ctx) && w.engagement.Context().Err() == nil {
		return w
	}
	return nil
}

// beginLocked starts the source of a watch, if the controller has started.
func (d *TypedOnDemand[request]) beginLocked(w *watch[request]) (err error) {
	if d.ctx == nil {
		return nil
	}
	var told func(source.TypedSource[request])
	if w.told != nil {
		told = func(started source.TypedSource[request]) { d.awaitTold(w, started) }
	}
	w.stop, err = attach(d.ctx, w, w.engagement, w.each, d.queue, told)
	return err
}

// awaitTold waits in the background until a source, nil for one that never starts, has told all. The engagement's drain waits for that.
func (d *TypedOnDemand[request]) awaitTold(w *watch[request], started source.TypedSource[request]) {
	life, leave, err := w.engagement.Join(d.ctx, w)
	if err != nil || started == nil {
		close(w.told)
		return
	}
	go func() { // ends with the engagement, or the controller
		defer leave()
		defer close(w.told)
		_ = replaying[request]{d.fleet, d.ctx, w, w.engagement, w.each, d.queue}.await(life, started)
	}()
}

// Unwatch ends a watch of the cluster that ctx carries, if there is one of that name. It returns at once; an event that is being
// handled goes on. The member's cache keeps the kind until cache.Cache.RemoveInformer ends that.
func (d *TypedOnDemand[request]) Unwatch(ctx context.Context, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	in, _ := mcreconcile.ClusterNameFrom(ctx)
	key := watchKey{in, name}
	w := d.watches[key]
	if !w.isIn(ctx) {
		return
	}
	delete(d.watches, key)
	w.unfollow()
	if w.stop != nil {
		w.stop()
	}
}

// forget removes a watch whose engagement is over, unless it was removed before.
func (d *TypedOnDemand[request]) forget(key watchKey, w *watch[request]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watches[key] == w {
		delete(d.watches, key)
	}
}

var _ Replayer = (*OnDemand)(nil)

// Replay implements [Replayer]. What is asked for meanwhile is told anyway.
func (d *TypedOnDemand[request]) Replay(ctx context.Context, e *fleet.Engagement) error {
	for _, w := range d.in(e) {
		stop, err := again(ctx, replaying[request]{d.fleet, d.ctx, w, e, w.each, d.queue})
		if err != nil {
			return fmt.Errorf("telling %v once more in cluster %q: %w", w, e.Name(), err)
		}
		d.replace(w, stop)
	}
	return nil
}

// in returns the watches of an engagement whose sources run.
func (d *TypedOnDemand[request]) in(e *fleet.Engagement) []*watch[request] {
	d.mu.Lock()
	defer d.mu.Unlock()
	var in []*watch[request]
	for _, w := range d.watches {
		if w.engagement == e && w.stop != nil {
			in = append(in, w)
		}
	}
	return in
}

// replace lets the source of a watch that is to be stopped by stop take the place of the first.
func (d *TypedOnDemand[request]) replace(w *watch[request], stop context.CancelFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, there := range d.watches {
		if there == w {
			w.stop()
			w.stop = stop
			return
		}
	}
	stop() // it was ended meanwhile
}
