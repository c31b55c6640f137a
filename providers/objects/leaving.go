package objects

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
)

// LeaveFinalizer is the finalizer of objects whose members are to leave well: see [fleet.Members.Leave]. Whoever makes the
// object puts it there. When the object is deleted, its members are about to leave, and when they have left, the provider
// removes the finalizer. Whoever removes it before drains the members at once.
const LeaveFinalizer = "fleet-runtime.dev/leave"

// LeavesWell reports whether the members of an object are to leave well: it has the finalizer [LeaveFinalizer]. A provider that
// describes no member for an object that is being deleted goes on describing those of such a one, so that they can.
func LeavesWell(obj client.Object) bool { return controllerutil.ContainsFinalizer(obj, LeaveFinalizer) }

// ReasonNotReleased is for an object whose finalizer [LeaveFinalizer] cannot be removed.
const ReasonNotReleased = "NotReleased"

// releasers is how many finalizers are removed side by side.
const releasers = 4

// departure is what is known of an object that is deleted, and whose members are to leave before it goes. The zero value is that
// of any other object.
type departure struct {
	// begun stays set when the finalizer has gone, while others keep the object: the members have left, and are not to return.
	begun     bool
	finalizer bool // is to be removed
	left      map[fleet.ClusterName]bool
}

// note takes over what an object says of its departure.
func (d *departure) note(obj client.Object) {
	d.finalizer = LeavesWell(obj)
	d.begun = d.begun || d.finalizer && obj.GetDeletionTimestamp() != nil
}

func (d *departure) hasLeft(name fleet.ClusterName) {
	if d.left == nil {
		d.left = map[fleet.ClusterName]bool{}
	}
	d.left[name] = true
}

// awaited is a member that is about to leave.
type awaited struct {
	left <-chan struct{}
	stop context.CancelFunc
}

// reportAs reports a member that stays, or one that leaves.
func (w *worker[T]) reportAs(ctx context.Context, m fleet.Member, leaves bool) (hasLeft bool, err error) {
	if !leaves {
		w.await(ctx, m.Name, nil)
		return false, w.members.Set(m)
	}
	left, err := w.members.Leave(m)
	if err != nil {
		return false, err
	}
	select {
	case <-left:
		w.await(ctx, m.Name, nil)
		return true, nil
	default:
		w.await(ctx, m.Name, left)
		return false, nil
	}
}

// await has the name looked at again when its member has left. It replaces what was awaited of the name; nil awaits nothing.
func (w *worker[T]) await(ctx context.Context, name fleet.ClusterName, left <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.awaited[name]
	if before.left == left {
		return
	}
	if before.stop != nil {
		before.stop()
	}
	delete(w.awaited, name)
	if left == nil {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	w.awaited[name] = awaited{left, stop}
	w.awaiting.Go(func() {
		defer stop()
		select {
		case <-left:
			w.names.Add(name)
		case <-ctx.Done():
		}
	})
}

// releaseLocked arranges that the finalizer of an object is removed, if all its members have left. Those whose names other
// objects have are not its own.
func (w *worker[T]) releaseLocked(key client.ObjectKey) {
	if _, ok := w.toReleaseLocked(key); ok {
		w.releases.Add(key)
	}
}

// toReleaseLocked returns which object is to lose its finalizer now.
func (w *worker[T]) toReleaseLocked(key client.ObjectKey) (uid types.UID, ok bool) {
	d := w.described[key]
	if d == nil || d.members == nil || !d.departure.begun || !d.departure.finalizer {
		return "", false
	}
	for _, name := range d.names() {
		if holder, held := w.holderLocked(name); held && holder == key && !d.departure.left[name] {
			return "", false
		}
	}
	return d.uid, true
}

func (w *worker[T]) toRelease(key client.ObjectKey) (uid types.UID, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.toReleaseLocked(key)
}

// releaseAll removes finalizers until the queue is shut down.
func (w *worker[T]) releaseAll(ctx context.Context) {
	for {
		key, shutdown := w.releases.Get()
		if shutdown {
			return
		}
		if uid, ok := w.toRelease(key); !ok || w.released(key, w.release(ctx, key, uid)) {
			w.releases.Forget(key)
		} else {
			w.releases.AddRateLimited(key)
		}
		w.releases.Done(key)
	}
}

// release removes the finalizer of an object, if it is still that one, and nothing else.
func (w *worker[T]) release(ctx context.Context, key client.ObjectKey, uid types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	gvk, err := apiutil.GVKForObject(w.provider.Object, w.local.GetScheme())
	if err != nil {
		return err
	}
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(gvk)
	if err := w.live.Get(ctx, key, obj); err != nil {
		return notfound.Ignore(err, key.Name)
	}
	before := obj.DeepCopy()
	if obj.UID != uid || obj.DeletionTimestamp == nil || !controllerutil.RemoveFinalizer(obj, LeaveFinalizer) {
		return nil
	}
	// With the version that was read, so that no finalizer of others is lost that was added meanwhile.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return notfound.Ignore(w.live.Patch(ctx, obj, patch), key.Name)
}

// released tells why a finalizer cannot be removed. A conflict alone is no news: it is tried again.
func (w *worker[T]) released(key client.ObjectKey, err error) (done bool) {
	if err == nil || apierrors.IsConflict(err) {
		return err == nil
	}
	advice := "trying again"
	if fleet.ReasonOf(err) == fleet.ReasonForbidden {
		advice = fmt.Sprintf("the manager may not patch objects of kind %s; grant it get and patch", w.kind)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.described[key]
	if d == nil {
		return true // it has gone
	}
	var about fleet.ClusterName
	if names := d.names(); len(names) > 0 {
		about = names[0]
	}
	w.tellLocked(d, about, told{reason: ReasonNotReleased, noMember: true, message: fmt.Sprintf(
		"its members have left, and the finalizer %s cannot be removed: %s: %v", LeaveFinalizer, advice, err)})
	return false
}
