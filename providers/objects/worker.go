package objects

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/reference"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

const (
	firstRetry, lastRetry = 100 * time.Millisecond, 30 * time.Second

	// liveTimeout bounds the one remote call of the worker.
	liveTimeout = 10 * time.Second
	// liveRecheck is the time until an object that was found at the server alone is looked for again.
	liveRecheck = time.Second
)

// worker reports what objects describe. Its queue holds keys of objects that are to be looked at, and names of members
// that are to be reported. The goroutine of work takes them one by one, and it alone touches what the worker keeps.
type worker[T client.Object] struct {
	provider  Provider[T]
	local     cluster.Cluster
	members   fleet.Members
	recorder  recorder.EventRecorder
	live      client.Reader                             // asks the server
	queue     workqueue.TypedRateLimitingInterface[any] // of client.ObjectKey and fleet.ClusterName
	own, also watches

	described map[client.ObjectKey]*description
	claims    claims
	reported  map[fleet.ClusterName]client.ObjectKey // the object whose description the fleet has
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
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[any](firstRetry, lastRetry)
	return &worker[T]{
		provider:  p,
		local:     local,
		members:   members,
		recorder:  local.GetEventRecorder("fleet-runtime.dev/" + p.Name),
		live:      live,
		queue:     workqueue.NewTypedRateLimitingQueue(limiter),
		described: map[client.ObjectKey]*description{},
		reported:  map[fleet.ClusterName]client.ObjectKey{},
	}, nil
}

// work returns when ctx is done and the removals under way have returned.
func (w *worker[T]) work(ctx context.Context) {
	var removals sync.WaitGroup
	defer removals.Wait()
	for {
		item, shutdown := w.queue.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		var err error
		switch item := item.(type) {
		case client.ObjectKey:
			err = w.describe(ctx, item)
		case fleet.ClusterName:
			if w.letGo(item) {
				// Draining may take long, and must not hold up others. The queue hands the name out again only after Done,
				// so whoever claims it now or meanwhile is reported after the removal.
				removals.Go(func() {
					w.remove(ctx, item)
					w.queue.Add(item)
					w.queue.Done(item)
				})
				continue
			}
			err = w.report(item)
		}
		if err != nil && !errors.Is(err, fleet.ErrStopped) {
			logf.FromContext(ctx).Error(err, "Discovery is behind; this is tried again", "item", fmt.Sprint(item))
			w.queue.AddRateLimited(item)
		} else {
			w.queue.Forget(item)
		}
		w.queue.Done(item)
	}
}

// describe learns anew what an object describes, and queues the members for which this may matter.
func (w *worker[T]) describe(ctx context.Context, key client.ObjectKey) error {
	obj, err := w.find(ctx, key)
	if apierrors.IsNotFound(err) {
		delete(w.described, key)
		w.enqueue(w.claims.release(key))
		return nil
	}
	if err != nil {
		return err
	}
	d, err := w.descriptionOf(key, obj)
	if err != nil {
		return err
	}
	also := &asked{Reader: w.also}
	members, err := w.callMembers(ctx, obj, also)
	if err != nil && !errors.Is(err, ErrNone) {
		w.warn(d, aboutObject, reasonOf(err, ReasonNotDescribed), err.Error())
		return fmt.Errorf("describe the members of %s %s: %w", d.ref.Kind, key, err)
	}
	if err != nil {
		members = nil
	}
	names := d.setMembers(members)
	w.enqueue(w.claims.set(claimant{key: key, created: obj.GetCreationTimestamp().Time}, names))
	switch {
	case err != nil:
		w.warn(d, aboutObject, reasonOf(err, ReasonNoMember), err.Error())
	case len(names) < len(members):
		w.warn(d, aboutObject, ReasonDuplicateName, "the object describes several members of the same name; the first counts")
	default:
		d.settle(aboutObject)
	}
	if also.tooEarly { // no event tells when all are listed
		return fmt.Errorf("describe the members of %s %s: %w", d.ref.Kind, key, errNotListed)
	}
	return nil
}

// find returns the object as the caches have it.
func (w *worker[T]) find(ctx context.Context, key client.ObjectKey) (T, error) {
	obj := w.provider.Object.DeepCopyObject().(T)
	err := w.own.Get(ctx, key, obj)
	if !apierrors.IsNotFound(err) || w.described[key] == nil || len(w.provider.Selectors) < 2 {
		return obj, err
	}
	// An object that goes from one selector to another leaves the one watch before the other has it, and is no reason
	// to drain. So ask the server.
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	live := w.provider.Object.DeepCopyObject().(T)
	liveErr := w.live.Get(ctx, key, live)
	matches := func(s labels.Selector) bool { return s.Matches(labels.Set(live.GetLabels())) }
	switch {
	case apierrors.IsForbidden(liveErr):
		return obj, err
	case liveErr == nil && slices.ContainsFunc(w.provider.Selectors, matches):
		w.queue.AddAfter(key, liveRecheck)
		return live, nil
	case liveErr == nil:
		return obj, err
	}
	return obj, liveErr
}

// descriptionOf returns what was known of the object until now, to be changed.
func (w *worker[T]) descriptionOf(key client.ObjectKey, obj T) (*description, error) {
	ref, err := reference.GetReference(w.local.GetScheme(), obj)
	if err != nil {
		return nil, err
	}
	d := w.described[key]
	if d == nil {
		d = &description{}
		w.described[key] = d
	}
	if d.ref == nil || d.ref.UID != ref.UID {
		d.warned = map[string]string{}
	}
	d.ref = ref
	return d, nil
}

// callMembers calls Members. What the objects hold is not to be trusted, so a panic over it ends nothing.
func (w *worker[T]) callMembers(ctx context.Context, obj T, also Reader) (members []fleet.Member, err error) {
	defer func() {
		if p := recover(); p != nil {
			logf.FromContext(ctx).Error(nil, "Panic while an object was read", "object", client.ObjectKeyFromObject(obj),
				"stack", string(debug.Stack()))
			err = fmt.Errorf("the content of the object led to a panic (%T)", p)
		}
	}()
	return w.provider.Members(ctx, obj, also)
}

// letGo reports whether the fleet has the member from an object that does not hold the name any more, and forgets that.
// Another object's member of the same name may be another cluster, so the first is drained in any case.
func (w *worker[T]) letGo(name fleet.ClusterName) bool {
	from, ok := w.reported[name]
	claimants := w.claims.of(name)
	if !ok || len(claimants) > 0 && claimants[0].key == from {
		return false
	}
	delete(w.reported, name)
	return true
}

// report reports the member as the holder of its name describes it, if any object does.
func (w *worker[T]) report(name fleet.ClusterName) error {
	claimants := w.claims.of(name)
	if len(claimants) == 0 {
		return nil
	}
	holder := w.described[claimants[0].key]
	for _, other := range claimants[1:] {
		w.warn(w.described[other.key], aboutMember(name), ReasonDuplicateName,
			fmt.Sprintf("the member %q is described by %s %s, which is older", name, holder.ref.Kind, claimants[0].key))
	}
	m := holder.members[name]
	switch err := w.members.Set(m); {
	case errors.Is(err, fleet.ErrInvalidMember):
		w.warn(holder, aboutMember(name), ReasonInvalidMember, err.Error())
		return nil
	case err != nil:
		return err
	}
	w.reported[name] = claimants[0].key
	if m.Err == nil || isWaiting(m.Err) {
		holder.settle(aboutMember(name))
	} else {
		w.warn(holder, aboutMember(name), reasonOf(m.Err, ReasonInvalidMember), m.Err.Error())
	}
	return nil
}

// remove withdraws a member that no object describes any more, and returns when it is drained.
func (w *worker[T]) remove(ctx context.Context, name fleet.ClusterName) {
	if err := w.members.Remove(ctx, name); err != nil && ctx.Err() == nil {
		logf.FromContext(ctx).Error(err, "The member was not removed", "cluster", name)
	}
}

func (w *worker[T]) enqueue(names []fleet.ClusterName) {
	for _, name := range names {
		w.queue.Add(name)
	}
}
