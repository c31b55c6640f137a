package dependents_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// partly is a Desired that returns the copy, a ConfigMap "later" of the wave 1, and an error while the owner's value is "partly", or "waits".
func (w *world) partly(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
	var err error
	switch owner.Data["value"] {
	case "partly":
		err = errors.New("the rest is not known")
	case "waits":
		err = fmt.Errorf("the rest is not known: %w", dependents.ErrWaiting)
	}
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: metaOf(w.ns, copyOf(owner.Name)), Data: map[string]string{"value": owner.Data["value"]}},
		inWave("1", &corev1.ConfigMap{ObjectMeta: metaOf(w.ns, "later"), Data: map[string]string{"value": owner.Data["value"]}}),
	}, err
}

// TestALaterWaveWaitsForWhatIsNotKnown: the first is applied, and nothing is changed or deleted in the later ones.
func TestALaterWaveWaitsForWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Desired = w.partly
	told := listen(r)
	w.run(r)
	owner := w.owner("a", one.Name)
	owner.Data["value"] = "partly"
	w.create(w.Local, owner)
	w.isCopied(one, "a")
	waits := func() bool {
		results := told.of("a")
		return len(results) == 1 && len(results[0].Objects) == 2 && results[0].Objects[1].State == dependents.Waiting &&
			results[0].Err != nil && strings.Contains(results[0].Err.Error(), "the rest is not known")
	}
	eventually(t, "the later wave waits, and the result is the error", waits)
	if s := dependents.Summarize(told.of("a")); s.Failed != 1 || s.FirstError == nil {
		t.Errorf("the summary is %+v", s)
	}
	w.told(w.Local, "a", dependents.EventFailed, "the rest is not known")
	if w.get(one, "later") != nil {
		t.Error("the later wave went ahead")
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "all" })
	eventually(t, "the later wave is there", func() bool { return w.get(one, "later") != nil })
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "partly" })
	eventually(t, "the copy follows", func() bool { return w.mustGet(one, copyOf("a")).Data["value"] == "partly" })
	eventually(t, "the later wave waits again", waits)
	if value := w.mustGet(one, "later").Data["value"]; value != "all" {
		t.Errorf("the later wave went ahead: %q", value)
	}
}

// TestNothingIsRemovedForWhatAnotherReconcilerSays: Desired returns a part, and what is wrong with the dependents of another one.
func TestNothingIsRemovedForWhatAnotherReconcilerSays(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]error{"contended": dependents.ErrContended, "denied": dependents.ErrDenied} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			r := w.spread()
			desired := r.Desired
			r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
				all, err := desired(ctx, owner, target)
				if owner.Data["value"] == "2" {
					return all, fmt.Errorf("the rest is not known: %w", said)
				}
				return append(all, w.configMap("rest")), err
			}
			told := listen(r)
			w.run(r)
			w.create(w.Local, w.owner("a", one.Name))
			eventually(t, "all is there", func() bool { return dependents.Summarize(told.of("a")).Done == 1 && w.get(one, "rest") != nil })
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
			eventually(t, "it is told", func() bool {
				results := told.of("a")
				return len(results) == 1 && results[0].Err != nil && strings.Contains(results[0].Err.Error(), "the rest is not known")
			})
			if w.get(one, "rest") == nil {
				t.Error("the rest is gone")
			}
		})
	}
}

// TestWhatDesiredWaitsForIsTheResult, and not what waits because of that.
func TestWhatDesiredWaitsForIsTheResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	r := w.spread()
	r.Desired = w.partly
	told := listen(r)
	w.run(r)
	owner := w.owner("a", w.Members[0].Name)
	owner.Data["value"] = "waits"
	w.create(w.Local, owner)
	eventually(t, "the later wave waits", func() bool {
		return told.are("a", dependents.Applied, dependents.Waiting) || told.are("a", dependents.Unchanged, dependents.Waiting)
	})
	if !told.waits("a", "the rest is not known") {
		t.Errorf("the results are %v", told.of("a"))
	}
}

// TestAnErrorOfDesiredHaltsARollout though what it has returned beside that waits.
func TestAnErrorOfDesiredHaltsARollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	first, second := w.Members[0], w.Members[1]
	r := w.jobs(dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1})
	r.Targets = nil // all members
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		if inWave("1", all[0]); string(target.Cluster) == first.Name {
			err = errors.New("the rest is not known")
		}
		return all, err
	}
	told := listen(r)
	p := w.run(r)
	p.is(second, fleet.Ready)
	<-p.members.Remove(fleet.ClusterName(second.Name))
	w.create(w.Local, w.owner("a"))
	w.told(w.Local, "a", dependents.EventFailed, "the rest is not known")
	if err := p.members.Set(p.member(second)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is halted", func() bool { return told.waits("a", "1 clusters have failed") })
}
