package dependents_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestNothingIsWrittenWhileItIsSuspended, and all that is due is done after that.
func TestNothingIsWrittenWhileItIsSuspended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	withOverrides(r)
	all := reportsOf(t, r)
	p := w.run(r)
	suspend := map[string]string{"by-owner": dependents.SuspendAnnotation, "by-object": "dependent." + dependents.SuspendAnnotation}
	for name, annotation := range suspend {
		owner := w.owner(name, one.Name)
		owner.Annotations[annotation] = "true"
		w.create(w.Local, owner)
		all.is(name, dependents.Suspended)
		if w.get(one, copyOf(name)) != nil {
			t.Errorf("%s: it was created", name)
		}
		w.change(w.Local, name, func(cm *corev1.ConfigMap) { delete(cm.Annotations, annotation) })
		cm := w.isCopied(one, name)
		all.is(name, dependents.Applied, dependents.Unchanged)
		eventually(t, "the cache has it", func() bool { return p.knows(one, cm) })
		w.change(w.Local, name, func(cm *corev1.ConfigMap) { cm.Annotations[annotation], cm.Data["value"] = "true", "2" })
		if got := all.is(name, dependents.Suspended); got.Object == nil || got.Err != nil {
			t.Errorf("%s: the result is %v", name, got)
		}
		w.change(one, copyOf(name), func(cm *corev1.ConfigMap) { cm.Data["more"] = "drift" })
		eventually(t, "the drift was seen", func() bool {
			cm, ok := all.object(name).Object.(*corev1.ConfigMap)
			return ok && cm.Data["more"] == "drift"
		})
		if cm := w.mustGet(one, copyOf(name)); cm.Data["value"] != "1" {
			t.Errorf("%s: it was changed: %v", name, cm.Data)
		}
		w.change(w.Local, name, func(cm *corev1.ConfigMap) { cm.Annotations[annotation] = "false" })
		eventually(t, name+" is as desired", func() bool { return w.mustGet(one, copyOf(name)).Data["value"] == "2" })
		w.change(w.Local, name, func(cm *corev1.ConfigMap) { cm.Annotations[annotation] = "yes" })
		got := all.is(name, dependents.Failed)
		if want := strings.TrimPrefix(annotation, "dependent."); !strings.Contains(got.Err.Error(), want) {
			t.Errorf("the error names not the annotation %s: %v", want, got.Err)
		}
		w.change(w.Local, name, func(cm *corev1.ConfigMap) { cm.Annotations[annotation], cm.Annotations["to"] = "true", "" })
		w.isGone(one, copyOf(name)) // what is not desired is removed all the same
	}
	p.stop()

	r = w.spread()
	r.Policy.Suspend = true
	withOverrides(r)
	all = reportsOf(t, r)
	w.create(w.Local, w.owner("by-policy", one.Name))
	w.create(w.Local, w.overriding("not-this", dependents.SuspendAnnotation, "false"))
	w.run(r)
	all.is("by-policy", dependents.Suspended)
	w.isCopied(one, "not-this")
	if w.get(one, copyOf("by-policy")) != nil {
		t.Error("it was created while all is suspended")
	}
}

// TestNothingIsRemovedForWhatIsSuspended: what an object takes the place of stays until that may be created.
func TestNothingIsRemovedForWhatIsSuspended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		return []client.Object{&corev1.ConfigMap{ObjectMeta: metaOf(owner.Namespace, owner.Data["value"])}}, nil
	}
	all := reportsOf(t, r)
	w.run(r)
	owner := w.owner("a", one.Name)
	owner.Data["value"] = "old"
	w.create(w.Local, owner)
	all.is("a", dependents.Applied, dependents.Unchanged)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) {
		cm.Annotations[dependents.SuspendAnnotation], cm.Data["value"] = "true", "new"
	})
	all.is("a", dependents.Suspended)
	if w.get(one, "old") == nil || w.get(one, "new") != nil {
		t.Error("the old object is gone, or the new one is there, while all is suspended")
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { delete(cm.Annotations, dependents.SuspendAnnotation) })
	w.isGone(one, "old")
	if w.get(one, "new") == nil {
		t.Error("the old object was removed before the new one was there")
	}
}

// TestWhatIsAsDesiredIsNotSuspended, although others have written what is theirs.
func TestWhatIsAsDesiredIsNotSuspended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	all := reportsOf(t, r)
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	all.is("a", dependents.Applied, dependents.Unchanged)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations[dependents.SuspendAnnotation] = "true" })
	all.is("a", dependents.Unchanged)
	w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Annotations["example.com/revision"] = "7" })
	eventually(t, "that is seen", func() bool { return all.object("a").Object.GetAnnotations()["example.com/revision"] == "7" })
	if state := all.object("a").State; state != dependents.Unchanged {
		t.Errorf("it is %s", state)
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	all.is("a", dependents.Suspended)
	eventually(t, "the program is at rest", p.isAtRest)
	if cm := w.mustGet(one, copyOf("a")); cm.Data["value"] != "1" {
		t.Errorf("it was written: %v", cm.Data)
	}
}

// TestWhatIsSuspendedWaitsForNothing: a namespace that is not there, a kind that its owner brings, or a wave before, which are suspended too.
func TestWhatIsSuspendedWaitsForNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	gadget := w.withGadget(r)
	r.CreateNamespaces = true
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		elsewhere := &corev1.ConfigMap{ObjectMeta: metaOf(w.ns+"-new", "elsewhere")}
		return append(all, w.gadgetCRD("v1"), elsewhere, inWave("1", w.configMap("late"))), err
	}
	r.Policy.Suspend = true
	r.Kinds = append(r.Kinds, w.gadgetCRD("v1"))
	all := reportsOf(t, r)
	w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	eventually(t, "nothing says that it waits", func() bool {
		result, _ := all.first("a")
		isSuspended := func(obj dependents.ObjectResult) bool { return obj.State == dependents.Suspended }
		return len(result.Objects) == 5 && len(slices.DeleteFunc(slices.Clone(result.Objects), isSuspended)) == 0 &&
			dependents.Summarize([]dependents.Result{result}).Suspended == 1
	})
	if w.namespace(one, w.ns+"-new") != nil || w.isThere(one, w.gadgetCRD("v1")) || w.isThere(one, gadget) {
		t.Error("something was created")
	}
}

// TestANamespaceIsNotCreatedForWhatIsSuspended, and is once something there may be written.
func TestANamespaceIsNotCreatedForWhatIsSuspended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, ns := w.Members[0], w.ns+"-new"
	r := w.inNamespaces()
	withOverrides(r)
	all := reportsOf(t, r)
	w.run(r)
	a, suspend := w.ownerIn("a", ns), "dependent."+dependents.SuspendAnnotation
	a.Annotations[suspend] = "true"
	w.create(w.Local, a)
	all.is("a", dependents.Suspended)
	if w.namespace(one, ns) != nil {
		t.Error("it was created")
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { delete(cm.Annotations, suspend) })
	eventually(t, "it is there", func() bool { return w.namespace(one, ns) != nil })
	all.is("a", dependents.Applied, dependents.Unchanged)
}

// TestWhatIsWrongIsToldBesideWhatIsSuspended in a namespace that is not there.
func TestWhatIsWrongIsToldBesideWhatIsSuspended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	r := w.inNamespaces()
	ns := w.ns + "-new"
	r.Desired = func(context.Context, *corev1.ConfigMap, dependents.Target) ([]client.Object, error) {
		one, two := &corev1.ConfigMap{ObjectMeta: metaOf(ns, "one")}, &corev1.ConfigMap{ObjectMeta: metaOf(ns, "two")}
		one.Annotations = map[string]string{dependents.SuspendAnnotation: "true"}
		two.Annotations = map[string]string{dependents.ChangeAnnotation: "Never"}
		return []client.Object{one, two}, nil
	}
	all := reportsOf(t, r)
	w.run(r)
	w.create(w.Local, w.ownerIn("a", ns))
	eventually(t, "it is told what is wrong", func() bool {
		result, _ := all.first("a")
		return slices.ContainsFunc(result.Objects, func(obj dependents.ObjectResult) bool {
			return obj.Key.Name == "two" && obj.State == dependents.Failed
		})
	})
}

// TestAFailureIsKeptWhileAllIsSuspended: nothing has become as desired by that.
func TestAFailureIsKeptWhileAllIsSuspended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	var by atomic.Pointer[string]
	by.Store(new(everyCluster))
	start := func(suspend bool) (*process, *outcomes) {
		r := w.refusing(w.spread(), &by)
		r.Rollout = dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1}
		r.Policy.Suspend = suspend
		told := listen(r)
		return w.run(r), told
	}
	p, told := start(false)
	w.create(w.Local, w.owner("a", names(w.Members)...))
	bad := w.isHalted(p, told)
	p.stop()
	p, told = start(true)
	eventually(t, "all is suspended", func() bool { return told.suspended("a") == 3 && p.isAtRest() })
	if in := w.failedIn(); !strings.Contains(in, bad) {
		t.Errorf("what has failed is forgotten: %q", in)
	}
}

// jobsBeforeWhatIsSuspended is jobs with something in a later wave that is suspended, in a namespace that is not there.
func (w *world) jobsBeforeWhatIsSuspended(rollout dependents.Rollout) *dependents.Reconciler[*corev1.ConfigMap] {
	r := w.jobs(rollout)
	r.CreateNamespaces = true
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		late := w.configMap("late")
		late.Namespace += "-new"
		late.Annotations = map[string]string{dependents.WaveAnnotation: "1", dependents.SuspendAnnotation: "true"}
		return append(all, late), err
	}
	return r
}

// TestWhatHasFailedHaltsARolloutBeforeAWaveThatIsSuspended: what is suspended there was not reached.
func TestWhatHasFailedHaltsARolloutBeforeAWaveThatIsSuspended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	r := w.jobsBeforeWhatIsSuspended(dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1})
	p := w.run(r)
	w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name))
	first := w.next("job-1")
	eventually(t, "the program is at rest", p.isAtRest)
	w.fail(first, "job-1")
	eventually(t, "it is noted that the one has failed", func() bool { return strings.Contains(w.failedIn(), first.Name) })
}

// TestAfterARestartAClusterIsBeingChangedThatHasSomethingSuspendedInALaterWave: no other is changed beside it.
func TestAfterARestartAClusterIsBeingChangedThatHasSomethingSuspendedInALaterWave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	start := func() (*process, *outcomes) {
		r := w.jobsBeforeWhatIsSuspended(dependents.Rollout{MaxParallel: intstr.FromInt32(1)})
		told := listen(r)
		return w.run(r), told
	}
	p, _ := start()
	w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name))
	w.next("job-1")
	eventually(t, "the program is at rest", p.isAtRest)
	p.stop()
	p, told := start()
	eventually(t, "both clusters were looked at", func() bool { return p.isAtRest() && told.looked("a") == 2 })
	if n := len(w.having("job-1")); n != 1 {
		t.Errorf("%d clusters are being changed at once", n)
	}
}

// TestWhatIsExemptFromSuspensionGetsItsNamespace, though all else of its owner is suspended.
func TestWhatIsExemptFromSuspensionGetsItsNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, ns := w.Members[0], w.ns+"-new"
	r := w.inNamespaces()
	withOverrides(r)
	all := reportsOf(t, r)
	w.run(r)
	a := w.ownerIn("a", ns)
	a.Annotations[dependents.SuspendAnnotation] = "true"
	a.Annotations["dependent."+dependents.SuspendAnnotation] = "false"
	w.create(w.Local, a)
	eventually(t, "its namespace is there", func() bool { return w.namespace(one, ns) != nil })
	all.is("a", dependents.Applied, dependents.Unchanged)
}
