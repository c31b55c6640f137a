package dependents_test

import (
	"context"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestAPanicForOneClusterHoldsUpNoOther, nor does an object that is nil: also for the first cluster of an owner that is new.
func TestAPanicForOneClusterHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, desired := range map[string]func() []client.Object{
		"APanic":      func() []client.Object { panic("on purpose") },
		"ANil":        func() []client.Object { return []client.Object{nil} },
		"ANilPointer": func() []client.Object { return []client.Object{(*corev1.ConfigMap)(nil)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			r := w.spread()
			well := r.Desired
			r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
				if string(target.Cluster) == w.Members[0].Name && owner.Data["value"] == "1" {
					return desired(), nil
				}
				return well(ctx, owner, target)
			}
			w.run(r)
			w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name))
			w.isCopied(w.Members[1], "a")
			w.told(w.Local, "a", dependents.EventFailed, "finding what is desired")
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
			w.isCopied(w.Members[0], "a")
		})
	}
}

// TestWhatAnOwnerAsksForThatIsNotKnownIsTold: what it asked for before goes on.
func TestWhatAnOwnerAsksForThatIsNotKnownIsTold(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*dependents.Reconciler[*corev1.ConfigMap], func(*corev1.ConfigMap) bool){
		"APanicOfTargets": func(r *dependents.Reconciler[*corev1.ConfigMap], now func(*corev1.ConfigMap) bool) {
			r.Targets = func(_ context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
				if now(owner) {
					panic("on purpose")
				}
				return targetsOf(owner), nil
			}
		},
		"APanicOfPolicyOf": func(r *dependents.Reconciler[*corev1.ConfigMap], now func(*corev1.ConfigMap) bool) {
			r.PolicyOf = func(owner *corev1.ConfigMap) (none dependents.Policy) {
				if now(owner) {
					panic("on purpose")
				}
				return none
			}
		},
		"ARolloutThatMakesNoSense": func(r *dependents.Reconciler[*corev1.ConfigMap], now func(*corev1.ConfigMap) bool) {
			r.RolloutOf = func(owner *corev1.ConfigMap) (rollout dependents.Rollout) {
				if now(owner) {
					rollout.MaxParallel = intstr.FromString("on purpose")
				}
				return rollout
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			r := w.spread()
			fail(r, func(owner *corev1.ConfigMap) bool { return owner.Data["value"] == "2" })
			w.run(r)
			w.create(w.Local, w.owner("a", w.Members[0].Name))
			before := w.isCopied(w.Members[0], "a")
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
			w.told(w.Local, "a", dependents.EventFailed, "on purpose")
			w.remove(w.Members[0], copyOf("a"))
			if again := w.isCopied(w.Members[0], "a"); again.Data["value"] != before.Data["value"] {
				t.Errorf("the copy is %v", again.Data)
			}
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "3" })
			eventually(t, "the copy follows", func() bool { return w.isCopied(w.Members[0], "a").Data["value"] == "3" })
		})
	}
}

// TestAPanicOfStatusHidesNoEvent: and the next one is written.
func TestAPanicOfStatusHidesNoEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	r := w.spread()
	var ends atomic.Bool
	told := listen(r)
	status := r.Status
	r.Status = func(ctx context.Context, owner *corev1.ConfigMap, results []dependents.Result) error {
		if !ends.Load() {
			panic("on purpose")
		}
		return status(ctx, owner, results)
	}
	w.run(r)
	w.create(w.Local, w.owner("a", w.Members[0].Name))
	w.told(w.Local, "a", dependents.EventCreated, copyOf("a"))
	ends.Store(true)
	eventually(t, "the status is called again", func() bool { return len(told.of("a")) == 1 })
}
