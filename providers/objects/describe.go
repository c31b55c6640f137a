package objects

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
)

const (
	// describers is how many objects are described side by side, beside the slow ones. Describing is work for the
	// processor, and what it reads may be large.
	describers = 4
	// slowPart is the part of the timeout after which an object is slow. Nobody waits for it any more.
	slowPart = 20
	// mostSlow is how many objects may be slow at once before they hold up the others.
	mostSlow = 32

	// liveTimeout bounds a request to the server.
	liveTimeout = 10 * time.Second
	// liveRecheck is the time until an object that was found at the server alone is looked for again.
	liveRecheck = time.Second
)

// call is a call of Members. The worker's lock guards it.
type call struct{ returned, overdue bool }

// panicError is what a panic in Members is turned into. The value may be a secret, and the stack is for the log alone.
type panicError struct{ text, stack string }

func (e panicError) Error() string { return e.text }

// describeAll looks at the objects of keys from the queue until it is shut down. It waits for an object only until that
// is slow.
func (w *worker[T]) describeAll(ctx context.Context) {
	slow := time.NewTimer(0)
	defer slow.Stop()
	for {
		key, shutdown := w.keys.Get()
		if shutdown {
			return
		}
		looked := make(chan struct{})
		go func() {
			defer close(looked)
			w.look(ctx, key)
		}()
		slow.Reset(w.provider.Timeout / slowPart)
		select {
		case <-looked:
		case <-slow.C:
			w.start.looked(key)
			w.setAside(ctx, looked)
		}
		w.start.looked(key)
	}
}

// setAside lets a slow object be described beside the others. While there are too many of them, it waits.
func (w *worker[T]) setAside(ctx context.Context, looked <-chan struct{}) {
	select {
	case w.slow <- struct{}{}:
	default:
		w.held(1)
		defer w.held(-1)
		select {
		case w.slow <- struct{}{}:
		case <-looked:
			return
		case <-ctx.Done():
			return
		}
	}
	go func() {
		<-looked
		<-w.slow
	}()
}

// held notes how many more or fewer describers are held up, and tells when the first or the last is.
func (w *worker[T]) held(more int) {
	const about = "all objects"
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heldUp += more
	if w.heldUp == 0 {
		w.troubles.end(about, "")
		return
	}
	w.troubles.begin(about, "", ReasonTooSlow, fmt.Sprintf(
		"%d objects take too long to be described, and hold up the others; look for what they have in common", mostSlow))
}

// look learns anew what an object describes, and queues the members for which this may matter. It ends the work on the
// key in the queue.
func (w *worker[T]) look(ctx context.Context, key client.ObjectKey) {
	obj, err := w.find(ctx, key)
	if err != nil || w.isOverdue(key, obj) {
		if !w.notFound(key, err) {
			w.keys.AddRateLimited(key)
		}
		w.keys.Done(key)
		return
	}
	c := &call{}
	deadline := time.AfterFunc(w.provider.Timeout, func() { w.overrun(ctx, c, key, obj) })
	defer deadline.Stop()
	also := &asked{Reader: w.also}
	members, err := w.callMembers(ctx, key, obj, also)

	w.mu.Lock()
	defer w.mu.Unlock()
	c.returned = true
	switch {
	case ctx.Err() != nil:
	case c.overdue: // whatever it says, the object may be another by now
		delete(w.overdue, key)
		w.keys.AddRateLimited(key)
		return
	case w.takeLocked(ctx, key, obj, members, err) && !also.tooEarly.Load(): // no event tells when all are listed
		w.keys.Forget(key)
		w.releaseLocked(key)
	default:
		w.keys.AddRateLimited(key)
	}
	w.keys.Done(key)
}

// isOverdue reports whether an earlier call takes too long. If so, it tells, since the object may have replaced the one that
// was told.
func (w *worker[T]) isOverdue(key client.ObjectKey, obj T) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.overdue[key] == nil {
		return false
	}
	w.tellTooSlowLocked(key, obj)
	return true
}

// overrun notes that a call takes too long. That the object is deleted must be noticed nevertheless, so the queue may hand
// out its key again.
func (w *worker[T]) overrun(ctx context.Context, c *call, key client.ObjectKey, obj T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.returned || ctx.Err() != nil {
		return
	}
	c.overdue = true
	w.overdue[key] = c
	w.tellTooSlowLocked(key, obj)
	w.keys.Done(key)
}

func (w *worker[T]) tellTooSlowLocked(key client.ObjectKey, obj T) {
	d := w.descriptionLocked(key, obj)
	w.tellLocked(d, "", told{reason: ReasonTooSlow, message: "it takes longer than " + w.provider.Timeout.String() +
		" to find out which members the object describes; they stay as they are", noMember: true})
}

// notFound notes why an object was not found. It returns false if it must be looked for again.
func (w *worker[T]) notFound(key client.ObjectKey, why error) (done bool) {
	if apierrors.IsNotFound(why) && w.provider.Gone != nil {
		w.provider.Gone(key)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.described[key]
	switch {
	case why == nil: // it was found
		return true
	case apierrors.IsNotFound(why):
		w.forgetLocked(key)
		return true
	case errors.Is(why, errNotListed): // that is a problem of the watch
	case d != nil:
		w.tellLocked(d, "", told{reason: ReasonNotDescribed, message: why.Error(), noMember: true})
	}
	return false
}

// forgetLocked forgets an object that was deleted. Its names are kept for it for a while.
func (w *worker[T]) forgetLocked(key client.ObjectKey) {
	w.keys.Forget(key)
	if d := w.described[key]; d != nil {
		w.settleAllLocked(d)
	}
	delete(w.described, key)
	w.enqueueNames(w.claims.remove(key, time.Now().Add(keepNames)))
}

// takeLocked takes over what Members has said of an object. It returns false if Members must be asked again.
func (w *worker[T]) takeLocked(ctx context.Context, key client.ObjectKey, obj T, members []fleet.Member, err error) (done bool) {
	d := w.descriptionLocked(key, obj)
	if err != nil && !errors.Is(err, ErrNone) {
		w.enqueueNames(d.names()) // they may be about to leave
		news := w.tellLocked(d, "", told{reason: reasonOf(err, ReasonNotDescribed), message: err.Error(), noMember: true})
		if panicked, ok := errors.AsType[panicError](err); ok && news {
			logf.FromContext(ctx).Error(nil, "Panic while an object was read", "object", key, "stack", panicked.stack)
		}
		return false
	}
	if err != nil {
		members = nil
	}
	names, excess := w.setMembersLocked(d, members)
	w.enqueueNames(w.claims.set(claimant{key: key, created: obj.GetCreationTimestamp().Time}, names))
	switch {
	case err != nil:
		w.tellLocked(d, "", told{reason: reasonOf(err, ReasonNoMember), message: err.Error(), noMember: true})
	case excess > 0:
		w.tellLocked(d, "", told{reason: ReasonTooManyMembers, noMember: true, message: fmt.Sprintf(
			"%d members are left out, the last by name: an object may describe %d", excess, w.provider.MaxMembers)})
	case len(names) < len(members):
		w.tellLocked(d, "", told{
			reason: ReasonDuplicateName, message: "the object describes several members of the same name; the first counts", noMember: true,
		})
	default:
		w.settleLocked(d, "")
	}
	return true
}

// find returns the object as the caches have it, if it counts. Its key is in mind when the namespace is looked at, so that
// labels of the namespace that change after that are noticed.
func (w *worker[T]) find(ctx context.Context, key client.ObjectKey) (T, error) {
	if w.provider.NamespaceSelector == nil {
		return w.findObject(ctx, key)
	}
	w.seen.add(key)
	obj, err := w.findObject(ctx, key)
	switch {
	case apierrors.IsNotFound(err):
		w.seen.drop(key) // if it comes back, that is an event
	case err == nil:
		err = w.namespaces.Get(ctx, client.ObjectKey{Name: key.Namespace}, aNamespace())
	}
	return obj, err
}

// findObject returns the object, whether its namespace counts or not.
func (w *worker[T]) findObject(ctx context.Context, key client.ObjectKey) (T, error) {
	obj := w.provider.Object.DeepCopyObject().(T)
	err := w.own.Get(ctx, key, obj)
	if !apierrors.IsNotFound(err) || !w.isDescribed(key) || len(w.provider.Selectors) < 2 {
		return obj, err
	}
	return w.findLive(ctx, key, err)
}

// findLive looks for an object at the server. One that goes from one selector to another leaves the one watch before the
// other has it, and is no reason to drain. The caches have answered with missing.
func (w *worker[T]) findLive(ctx context.Context, key client.ObjectKey, missing error) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	live := w.provider.Object.DeepCopyObject().(T)
	err := w.live.Get(ctx, key, live)
	matches := func(s labels.Selector) bool { return s.Matches(labels.Set(live.GetLabels())) }
	switch {
	case apierrors.IsForbidden(err):
		return live, missing
	case err == nil && slices.ContainsFunc(w.provider.Selectors, matches):
		w.keys.AddAfter(key, liveRecheck)
		return live, nil
	case err == nil:
		return live, missing
	case apierrors.IsNotFound(err) && !notfound.Is(err, key.Name):
		return live, fmt.Errorf("%s %s: %v", w.kind, key, err) //nolint:errorlint // a page of 404 does not say that it is gone
	}
	return live, err
}

func (w *worker[T]) isDescribed(key client.ObjectKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.described[key] != nil
}

// callMembers calls Members. What the objects hold is not to be trusted, so a panic over it ends nothing.
func (w *worker[T]) callMembers(ctx context.Context, key client.ObjectKey, obj T, also Reader) (members []fleet.Member, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.provider.Timeout)
	defer cancel()
	end, err := w.turns.take(ctx, key)
	if err != nil {
		return nil, err
	}
	defer end()
	defer func() {
		if p := recover(); p != nil {
			err = panicError{fmt.Sprintf("the content of the object led to a panic (%T)", p), string(debug.Stack())}
		}
	}()
	return w.provider.Members(ctx, obj, also)
}
