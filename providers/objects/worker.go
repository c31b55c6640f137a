package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

const (
	firstRetry, lastRetry = 100 * time.Millisecond, 30 * time.Second

	// keepNames is how long names are kept for an object that was deleted. Tools that replace an object take less.
	keepNames = 10 * time.Second
)

// worker reports what objects describe, in two steps. Describers take keys of objects that are to be looked at, and note
// what these claim. One reporter takes names of members, and tells the fleet what holds for them. So an object is described
// once at a time, and a name reported once at a time.
type worker[T client.Object] struct {
	provider              Provider[T]
	gvk                   schema.GroupVersionKind // of the objects
	kind                  string
	local                 cluster.Cluster
	members               fleet.Members
	troubles              troubles
	recorder              recorder.EventRecorder
	live                  client.Client // asks the server
	keys                  workqueue.TypedRateLimitingInterface[client.ObjectKey]
	names                 workqueue.TypedRateLimitingInterface[fleet.ClusterName]
	releases              workqueue.TypedRateLimitingInterface[client.ObjectKey] // whose finalizers are to be removed
	own, also, namespaces watches
	start                 *start
	seen                  seen           // empty unless labels of namespaces matter
	turns                 turns          // of the calls of Members
	slow                  chan struct{}  // has an entry for each call that is not waited for
	awaiting              sync.WaitGroup // for members that leave

	mu        sync.Mutex // guards what follows; nothing remote is awaited under it
	described map[client.ObjectKey]*description
	overdue   map[client.ObjectKey]*call
	heldUp    int // describers that wait, since too many objects are slow
	claims    claims
	reported  map[fleet.ClusterName]client.ObjectKey // the object whose description the fleet has
	awaited   map[fleet.ClusterName]awaited          // members that are about to leave
}

func newWorker[T client.Object](p Provider[T], local cluster.Cluster, members fleet.Members) (*worker[T], error) {
	// The manager's own client may be limited to some requests a second. When a hundred objects are deleted together,
	// that would hold up the removal of the last for seconds.
	cfg := rest.CopyConfig(local.GetConfig())
	cfg.QPS = -1
	live, err := client.New(cfg, client.Options{HTTPClient: local.GetHTTPClient(), Scheme: local.GetScheme(), Mapper: local.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("making a client of the local cluster: %w", err)
	}
	kind, err := apiutil.GVKForObject(p.Object, local.GetScheme())
	if err != nil {
		return nil, err
	}
	return &worker[T]{
		provider:  p,
		gvk:       kind,
		kind:      kind.Kind,
		local:     local,
		members:   members,
		troubles:  troubles{p.Name, members},
		recorder:  local.GetEventRecorder("fleet-runtime.dev/" + p.Name),
		live:      live,
		keys:      newQueue[client.ObjectKey](),
		names:     newQueue[fleet.ClusterName](),
		releases:  newQueue[client.ObjectKey](),
		start:     newStart(),
		slow:      make(chan struct{}, mostSlow),
		described: map[client.ObjectKey]*description{},
		overdue:   map[client.ObjectKey]*call{},
		reported:  map[fleet.ClusterName]client.ObjectKey{},
		awaited:   map[fleet.ClusterName]awaited{},
	}, nil
}

func newQueue[T comparable]() workqueue.TypedRateLimitingInterface[T] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[T](firstRetry, lastRetry))
}

// enqueue has the object of the key looked at, if it is one that the provider watches.
func (w *worker[T]) enqueue(key client.ObjectKey) {
	if !w.provider.watchesIn(key.Namespace) {
		return
	}
	w.start.expect(key)
	w.keys.Add(key)
}

func (w *worker[T]) shutDown() {
	w.keys.ShutDown()
	w.names.ShutDown()
	w.releases.ShutDown()
}

// work returns when ctx is done.
func (w *worker[T]) work(ctx context.Context) {
	w.start.noMore()
	var running sync.WaitGroup
	defer w.awaiting.Wait()
	defer running.Wait()
	for range describers {
		running.Go(func() { w.describeAll(ctx) })
	}
	for range releasers {
		running.Go(func() { w.releaseAll(ctx) })
	}
	patience := time.NewTimer(w.provider.Timeout)
	defer patience.Stop()
	select {
	case <-w.start.over:
	case <-patience.C: // an object that is not known yet takes over its names later
	case <-ctx.Done():
	}
	w.reportAll(ctx)
}

// reportAll reports members until ctx is done.
func (w *worker[T]) reportAll(ctx context.Context) {
	for {
		name, shutdown := w.names.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		if w.letGo(name) {
			w.await(ctx, name, nil)
			w.members.Remove(name) // what is reported of the name after this is a new member, once this one is drained
		}
		if w.report(ctx, name) {
			w.names.Forget(name)
		} else {
			w.names.AddRateLimited(name)
		}
		w.names.Done(name)
	}
}

// letGo reports whether the fleet has the member from an object that does not hold the name any more, and forgets that.
// Another object's member of the same name may be another cluster, so the first is drained in any case.
func (w *worker[T]) letGo(name fleet.ClusterName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	from, ok := w.reported[name]
	if !ok {
		return false
	}
	if holder, ok := w.holderLocked(name); ok && holder == from {
		return false
	}
	delete(w.reported, name)
	return true
}

// holderLocked returns the key of the object that has the name, if there is one.
func (w *worker[T]) holderLocked(name fleet.ClusterName) (key client.ObjectKey, ok bool) {
	claimants := w.claims.of(name)
	if len(claimants) == 0 || claimants[0].isDeleted() {
		return client.ObjectKey{}, false
	}
	return claimants[0].key, true
}

// report reports the member as the holder of its name describes it, if any object does. It returns false if that must be
// tried again.
func (w *worker[T]) report(ctx context.Context, name fleet.ClusterName) (done bool) {
	m, from, leaves, ok := w.toReport(name)
	if !ok {
		return true
	}
	hasLeft, err := w.reportAs(ctx, m, leaves)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.reported[name] = from
	}
	d := w.described[from]
	if holder, ok := w.holderLocked(name); !ok || holder != from || d == nil {
		return true // the name has changed hands meanwhile, and is in the queue
	}
	// The object may be another by now, or its member one that was invalid and will not be: they have not left.
	if d.departure.begun && (hasLeft || errors.Is(err, fleet.ErrInvalidMember)) {
		d.departure.hasLeft(name)
		w.releaseLocked(from)
	}
	switch {
	case errors.Is(err, fleet.ErrStopped), hasLeft:
	case errors.Is(err, fleet.ErrInvalidMember):
		w.tellLocked(d, name, told{reason: ReasonInvalidMember, message: err.Error(), noMember: true})
	case err != nil:
		w.tellLocked(d, name, told{reason: ReasonNotReported, message: err.Error(), noMember: true})
		return false
	case m.Err == nil || isWaiting(m.Err):
		w.settleLocked(d, name)
	default:
		w.tellLocked(d, name, told{reason: reasonOf(m.Err, ReasonInvalidMember), message: m.Err.Error()})
	}
	return true
}

// toReport returns the member as the holder of its name describes it, and whether it leaves, and tells the others that they do not have it.
func (w *worker[T]) toReport(name fleet.ClusterName) (m fleet.Member, from client.ObjectKey, leaves, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expireLocked(name)
	claimants := w.claims.of(name)
	if len(claimants) == 0 {
		return m, from, false, false
	}
	first := claimants[0]
	message := fmt.Sprintf("the member %q is described by %s, which is older", name, w.about(first.key))
	if first.isDeleted() {
		message = fmt.Sprintf("the name %q is kept for %s for a moment, which was deleted", name, w.about(first.key))
	}
	for _, other := range claimants[1:] {
		if d := w.described[other.key]; d != nil && !other.isDeleted() {
			w.tellLocked(d, name, told{reason: ReasonDuplicateName, message: message, noMember: true})
		}
	}
	if first.isDeleted() {
		return m, from, false, false
	}
	d := w.described[first.key]
	at, ok := d.find(name)
	if !ok {
		return m, from, false, false
	}
	return d.members[at].member(), first.key, d.departure.begun, true
}

// expireLocked ends that the name is kept for objects whose time is up. It arranges that the name is looked at again when it is for the
// others.
func (w *worker[T]) expireLocked(name fleet.ClusterName) {
	now := time.Now()
	w.claims.expire(name, now)
	for _, c := range w.claims.of(name) {
		if c.isDeleted() {
			w.names.AddAfter(name, c.kept.Sub(now))
		}
	}
}

func (w *worker[T]) enqueueNames(names []fleet.ClusterName) {
	for _, name := range names {
		w.names.Add(name)
	}
}
