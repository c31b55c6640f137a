package dependents_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestARolloutGoesOnBesideAKindThatIsNotServed by one of its clusters: that one gets the rest, and the others get all.
func TestARolloutGoesOnBesideAKindThatIsNotServed(t *testing.T) {
	t.Parallel()
	for name, rollout := range map[string]dependents.Rollout{
		"all at once":           {MaxParallel: intstr.FromString("100%")},
		"one after the other":   {MaxParallel: intstr.FromInt32(1), HaltAfter: 2},
		"until there is a halt": {HaltAfter: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			lacking, serving := w.Members[0], w.Members[1]
			crd := w.gadgetCRD("v1")
			w.create(serving, crd)
			r := w.spread()
			r.Rollout = rollout
			gadget := w.withGadget(r)
			told := listen(r)
			w.run(r)
			w.create(w.Local, w.owner("a", lacking.Name, serving.Name))
			w.isCopied(lacking, "a")
			w.isCopied(serving, "a")
			eventually(t, "what is served is made", func() bool { return w.isThere(serving, gadget.DeepCopy()) })
			eventually(t, "the one cluster has failed", func() bool {
				s := dependents.Summarize(told.of("a"))
				return s.Failed == 1 && s.Done == 1
			})
			w.remove(w.Local, "a")
			w.isGone(w.Local, "a")
			if err := serving.Client().Delete(t.Context(), crd); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAKindThatAnOwnerBringsItselfHaltsNoRollout: it is not served at once when its CustomResourceDefinition is ready.
func TestAKindThatAnOwnerBringsItselfHaltsNoRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	crd, gadget := w.gadgetCRD("v1"), w.gadget("v1")
	r := w.spread()
	r.Rollout = dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1}
	r.Kinds = nil
	r.MoreKinds = func(schema.GroupVersionKind) error { return nil }
	r.Desired = func(context.Context, *corev1.ConfigMap, dependents.Target) ([]client.Object, error) {
		return []client.Object{gadget.DeepCopy(), crd.DeepCopy()}, nil
	}
	told := listen(r)
	w.run(r)
	w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name, w.Members[2].Name))
	for _, cp := range w.Members {
		eventually(t, "the object is there", func() bool { return w.isThere(cp, gadget.DeepCopy()) })
	}
	eventually(t, "all is done", func() bool { return dependents.Summarize(told.of("a")).Done == 3 })
	if notes := w.notes(w.Local, "a"); slices.ContainsFunc(notes, func(note string) bool {
		return strings.Contains(note, "Gadget") && strings.Contains(note, "no matches")
	}) {
		t.Errorf("the owner has the events %q", notes)
	}
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
}

// TestAVersionThatAnOwnerBringsItselfHaltsNoRollout: its CustomResourceDefinition is ready before, by another version.
func TestAVersionThatAnOwnerBringsItselfHaltsNoRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	r := w.spread()
	r.Rollout = dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1}
	r.Kinds = nil
	r.MoreKinds = func(schema.GroupVersionKind) error { return nil }
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		if owner.Data["value"] == "1" {
			return []client.Object{w.gadgetCRD("v1"), w.gadget("v1")}, nil
		}
		gadget := w.gadget("v2")
		gadget.Object["value"] = owner.Data["value"]
		return []client.Object{gadget, w.gadgetCRD("v1", "v2")}, nil
	}
	told := listen(r)
	w.run(r)
	w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name, w.Members[2].Name))
	eventually(t, "all is done", func() bool { return dependents.Summarize(told.of("a")).Done == 3 })
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	for _, cp := range w.Members {
		eventually(t, "the object is as desired", func() bool {
			gadget := w.gadget("v2")
			return w.isThere(cp, gadget) && gadget.Object["value"] == "2"
		})
	}
	if notes := w.notes(w.Local, "a"); slices.ContainsFunc(notes, func(note string) bool {
		return strings.Contains(note, "Gadget") && strings.Contains(note, "no matches")
	}) {
		t.Errorf("the owner has the events %q", notes)
	}
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
}

// TestAVersionThatNobodyBringsIsNotWaitedFor, although another object of the kind is served.
func TestAVersionThatNobodyBringsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	r := w.spread()
	r.Kinds = nil
	r.MoreKinds = func(schema.GroupVersionKind) error { return nil }
	dependents.AwaitKindsFor(r, time.Second)
	other := w.gadget("v2")
	other.SetName("other")
	r.Desired = func(context.Context, *corev1.ConfigMap, dependents.Target) ([]client.Object, error) {
		return []client.Object{w.gadgetCRD("v1"), w.gadget("v1"), other.DeepCopy()}, nil
	}
	told := listen(r)
	w.run(r)
	w.create(w.Local, w.owner("a", w.Members[0].Name))
	eventually(t, "it is not served", func() bool {
		return slices.ContainsFunc(told.of("a"), func(c dependents.Result) bool {
			return slices.ContainsFunc(c.Objects, func(o dependents.ObjectResult) bool {
				return o.Key.Name == "other" && o.State == dependents.NotServed
			})
		})
	})
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
}

// TestARolloutPassesOverAMemberThatIsPaused, and what it waits for is told.
func TestARolloutPassesOverAMemberThatIsPaused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	paused, other := w.Members[0], w.Members[1]
	var resumed atomic.Bool
	r := w.spread()
	r.Rollout = dependents.Rollout{MaxParallel: intstr.FromInt32(1)}
	told := listen(r)
	p := w.runWith(func(mgr mcmanager.Manager) error {
		mgr.GetFleet().HoldBy(func(name fleet.ClusterName) fleet.Hold {
			return fleet.Hold{Paused: name == fleet.ClusterName(paused.Name) && !resumed.Load()}
		})
		return r.SetupWithManager(mgr)
	})
	w.create(w.Local, w.owner("a", paused.Name, other.Name))
	w.isCopied(other, "a")
	eventually(t, "the result says so", func() bool {
		s := dependents.Summarize(told.of("a"))
		return s.Done == 1 && s.Unreachable == 1
	})
	if text := dependents.Summarize(told.of("a")).String(); !strings.Contains(text, "the cluster is paused") || strings.Contains(text, "not ready") {
		t.Errorf("the summary of a member that is Ready, and paused: %s", text)
	}
	if w.isThere(paused, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: copyOf("a")}}) {
		t.Error("the member that is paused has a copy")
	}
	resumed.Store(true)
	p.GetFleet().HoldChanged(fleet.ClusterName(paused.Name))
	w.isCopied(paused, "a")
	eventually(t, "all is done", func() bool {
		return !slices.ContainsFunc(told.of("a"), func(r dependents.Result) bool { return r.Err != nil })
	})
}

// TestWhatIsOnlyCreatedIsPutBackAfterARestart while another cluster has the only place of the rollout.
func TestWhatIsOnlyCreatedIsPutBackAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	start := func() (*process, *outcomes) {
		r := w.jobs(dependents.Rollout{MaxParallel: intstr.FromInt32(1)})
		r.Policy.Change = dependents.CreateOnly
		told := listen(r)
		return w.run(r), told
	}
	p, _ := start()
	w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name))
	first := w.next("job-1")
	w.finish(first, "job-1")
	w.next("job-1", first)
	eventually(t, "the program is at rest", p.isAtRest)
	p.stop()
	p, told := start()
	eventually(t, "both clusters were looked at", func() bool {
		return p.isAtRest() && len(told.of("a")) == 2 && !slices.ContainsFunc(told.of("a"), func(r dependents.Result) bool {
			return len(r.Objects) == 0 || slices.ContainsFunc(r.Objects, func(o dependents.ObjectResult) bool { return o.State == dependents.Waiting })
		})
	})
	w.remove(first, copyOf("a"))
	w.isCopied(first, "a")
}
