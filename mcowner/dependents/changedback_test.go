package dependents_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestWritersThatFightAreTold and not fought for ever: what else there is goes on, and the last word is the owner's.
func TestWritersThatFightAreTold(t *testing.T) {
	t.Parallel()
	for name, fight := range map[string]func(context.Context, client.Client, *corev1.ConfigMap) error{
		"by changes": func(ctx context.Context, c client.Client, cm *corev1.ConfigMap) error {
			patch := client.MergeFrom(cm.DeepCopy())
			cm.Data["value"] = "theirs"
			return c.Patch(ctx, cm, patch)
		},
		"by deletions": func(ctx context.Context, c client.Client, cm *corev1.ConfigMap) error { return c.Delete(ctx, cm) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			r := w.spread()
			r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
				rest, err := w.names(ctx, owner, target)
				return append([]client.Object{&corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "fought", Annotations: map[string]string{dependents.WaveAnnotation: "-1"}},
					Data:       map[string]string{"value": "ours"},
				}}, rest...), err
			}
			w.run(r)
			owner := w.owner("a", one.Name)
			owner.Data["value"] = "x"
			w.create(w.Local, owner)
			eventually(t, "both waves are there", func() bool { return w.get(one, "fought") != nil && w.get(one, "x") != nil })

			times, stop := w.fights(one, "fought", fight)
			w.told(w.Local, "a", dependents.EventContended, "fought")
			if n := times.Load(); n < 5 {
				t.Errorf("it was told after %d corrections, which nobody else need know of", n)
			}
			if name == "by changes" {
				w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "y" })
				eventually(t, "what is new of a later wave is there", func() bool { return w.get(one, "y") != nil })
				w.isGone(one, "x")
			}
			stop()
			eventually(t, "it is as desired", func() bool {
				cm := w.get(one, "fought")
				return cm != nil && cm.Data["value"] == "ours"
			})
			if n := times.Load(); n > 20 {
				t.Errorf("it was corrected %d times", n)
			}
		})
	}
}

// fights starts somebody in a cluster that does something to an object whenever it is as desired.
func (w *world) fights(
	cp *mctest.ControlPlane, name string, fight func(context.Context, client.Client, *corev1.ConfigMap) error,
) (times *atomic.Int32, stop func()) {
	times = &atomic.Int32{}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			cm := &corev1.ConfigMap{}
			if err := cp.Client().Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, cm); err != nil || cm.Data["value"] != "ours" {
				continue
			}
			if fight(ctx, cp.Client(), cm) == nil {
				times.Add(1)
			}
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	w.t.Cleanup(stop)
	return times, stop
}
