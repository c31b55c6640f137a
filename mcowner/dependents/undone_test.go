package dependents_test

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestRemovalsThatAreUndoneArePausedAndTold: whoever brings back what is removed is not fought for ever, and has not the last word.
func TestRemovalsThatAreUndoneArePausedAndTold(t *testing.T) {
	t.Parallel()
	for what, native := range map[string]bool{"the reference is put back": true, "the object is created anew": false} {
		for when, remove := range map[string]func(*world){
			"it is not desired": func(w *world) {
				w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "x" })
			},
			"its cluster is no target": func(w *world) {
				w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "member-2" })
			},
			"its owner goes": func(w *world) {
				w.change(w.Members[1], "x", func(cm *corev1.ConfigMap) { cm.Finalizers = []string{holding} })
				w.remove(w.Local, "a", client.PropagationPolicy(metav1.DeletePropagationForeground))
				w.letGo(w.Local, "a", metav1.FinalizerDeleteDependents)
			},
		} {
			t.Run(what+" while "+when, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, 2)
				one := w.Members[0]
				w.runFought(native)
				times, stop := w.undoes(one, w.mustGet(one, "fought"))
				remove(w)
				w.isPausedAndTold(times)
				stop()
				eventually(t, "it is nobody's, or gone", func() bool {
					now := w.get(one, "fought")
					return now == nil || len(now.Annotations) == 0 || now.DeletionTimestamp != nil
				})
			})
		}
	}
}

// runFought runs a reconciler whose owner has two dependents in each of two members. One of them has a native owner in the first member if it is to.
func (w *world) runFought(native bool) *process {
	w.t.Helper()
	r := w.spread()
	r.Desired = w.names
	p := w.run(r)
	owner := w.owner("a", "member-1", "member-2")
	owner.Data["value"] = "x fought"
	w.create(w.Local, owner)
	for _, cp := range w.Members {
		eventually(w.t, "both are there", func() bool { return w.get(cp, "fought") != nil && w.get(cp, "x") != nil })
	}
	if native {
		w.change(w.Members[0], "fought", func(cm *corev1.ConfigMap) {
			cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "native", UID: "native"}}
		})
	}
	return p
}

// isPausedAndTold waits until the owner is told that removals are undone, and they are not tried again for a second.
func (w *world) isPausedAndTold(times *atomic.Int32) {
	w.t.Helper()
	w.told(w.Local, "a", dependents.EventContended, "fought")
	if n := times.Load(); n < 4 {
		w.t.Errorf("it was told after %d removals were undone, want four at least", n)
	}
	w.isLeft(times)
	if n := times.Load(); n > 20 {
		w.t.Errorf("it was removed %d times before that", n)
	}
}

// isLeft waits until something was not done for a second.
func (w *world) isLeft(times *atomic.Int32) {
	w.t.Helper()
	last, since := times.Load(), time.Now()
	eventually(w.t, "it is left to them for a second", func() bool {
		if n := times.Load(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > time.Second
	})
}

// undoes starts somebody in a cluster who brings an object back, as it was before, whenever it is removed. What is deleted in the foreground
// goes, as its garbage collector has it.
func (w *world) undoes(cp *mctest.ControlPlane, before *corev1.ConfigMap) (times *atomic.Int32, stop func()) {
	return w.again(func(ctx context.Context) bool {
		now := &corev1.ConfigMap{}
		err := cp.Client().Get(ctx, client.ObjectKeyFromObject(before), now)
		patch := client.MergeFrom(now.DeepCopy())
		switch {
		case apierrors.IsNotFound(err):
			anew := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: before.Namespace, Name: before.Name, Labels: before.Labels, Annotations: before.Annotations,
			}}
			return cp.Client().Create(ctx, anew) == nil
		case err != nil:
		case now.DeletionTimestamp != nil:
			now.Finalizers = nil
			_ = cp.Client().Patch(ctx, now, patch) // it may be gone
		case len(now.Annotations) == 0:
			now.Labels, now.Annotations = maps.Clone(before.Labels), maps.Clone(before.Annotations)
			return cp.Client().Patch(ctx, now, patch) == nil
		}
		return false
	})
}

// TestAnOwnerGoesThoughRemovalsWereUndone, as soon as nobody does that any more. Until then nothing is listed in the member for changes of what is
// left to others.
func TestAnOwnerGoesThoughRemovalsWereUndone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	p := w.runFought(true)
	times, stop := w.undoes(one, w.mustGet(one, "fought"))
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "x" })
	w.isPausedAndTold(times)
	w.change(two, "x", func(cm *corev1.ConfigMap) { cm.Finalizers = []string{holding} })
	w.remove(w.Local, "a", client.PropagationPolicy(metav1.DeletePropagationForeground))
	w.letGo(w.Local, "a", metav1.FinalizerDeleteDependents)
	before := times.Load()
	eventually(t, "it is removed again at once, as its owner goes", func() bool { return times.Load() > before+3 })
	w.isLeft(times)
	w.letGo(one, "x", metav1.FinalizerDeleteDependents)
	w.isGone(one, "x")

	var lists atomic.Int32
	tap := func(req *http.Request) (answered func()) { //nolint:unparam // there is nothing to do with the answer
		if req.Method == http.MethodGet && req.URL.Host == hostOf(one) && strings.HasSuffix(req.URL.Path, "/configmaps") && !req.URL.Query().Has("watch") {
			lists.Add(1)
		}
		return nil
	}
	p.power.tap.Store(&tap)
	const changes = 30
	for i := range changes {
		w.change(one, "fought", func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"value": strconv.Itoa(i)} })
		eventually(t, "the program knows it", func() bool { return p.knows(one, w.mustGet(one, "fought")) })
	}
	if n := lists.Load(); n > changes/2 {
		t.Errorf("after %d changes the member was asked %d times for all that the owner has", changes, n)
	}

	stop()
	eventually(t, "it is nobody's", func() bool { return len(w.mustGet(one, "fought").Annotations) == 0 })
	w.letGo(two, "x", holding)
	w.letGo(two, "x", metav1.FinalizerDeleteDependents)
	w.isGone(w.Local, "a")
}

// TestWhoPutsBackWhatWasReleasedIsToldOf: the owner is let go, and its dependents are to stay.
func TestWhoPutsBackWhatWasReleasedIsToldOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one := w.Members[0]
	p := w.runFought(false)
	<-p.members.Remove("member-2") // for which the owner waits
	before := w.mustGet(one, "fought")
	times, stop := w.undoes(one, before)
	w.removeAsOrphan("a")
	w.isPausedAndTold(times)
	stop()
	w.isReleased(one, before)
}

// TestWhoPutsAnotherInThePlaceOfADependentIsToldOf: it is of an owner of the same name that is gone, and is removed.
func TestWhoPutsAnotherInThePlaceOfADependentIsToldOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one := w.Members[0]
	w.runFought(false)
	before := w.mustGet(one, "fought")
	owner := w.to(w.mustGet(w.Local, "a"), func(r *mcowner.Reference) { r.UID = "gone" })
	owner.Manager = controller
	former := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "fought"}}
	if err := mcowner.SetControllerReference(owner, former, mcowner.ByName("member-1")); err != nil {
		t.Fatal(err)
	}
	times, stop := w.again(func(ctx context.Context) bool {
		now := &corev1.ConfigMap{}
		err := one.Client().Get(ctx, client.ObjectKeyFromObject(before), now)
		if err == nil && now.Annotations[mcowner.DesiredAnnotation] != "" {
			_ = one.Client().Delete(ctx, now) // it may be gone
		}
		return one.Client().Create(ctx, former.DeepCopy()) == nil
	})
	w.isPausedAndTold(times)
	stop()
	eventually(t, "the owner's own is there", func() bool {
		now := w.get(one, "fought")
		return now != nil && now.Annotations[mcowner.DesiredAnnotation] != ""
	})
}
