package dependents_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// placed is a reconciler whose targets cannot be found while something fails, and which tells each time that it was so.
func (w *world) placed(fail *atomic.Bool, failed func()) *dependents.Reconciler[*corev1.ConfigMap] {
	r := w.spread()
	find := r.Targets
	r.Targets = func(ctx context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
		if fail.Load() {
			failed()
			return nil, errors.New("the placement service does not answer")
		}
		return find(ctx, owner)
	}
	return r
}

// TestTargetsThatCannotBeFoundLaterAreTold, once members have changed, and the account of what is in the clusters goes on.
func TestTargetsThatCannotBeFoundLaterAreTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	var fail atomic.Bool
	p := w.run(w.placed(&fail, func() {}))
	w.create(w.Local, w.owner("a", one.Name, two.Name))
	w.isCopied(one, "a")
	w.isCopied(two, "a")
	eventually(t, "the program is at rest", p.isAtRest)
	fail.Store(true)
	<-p.members.Remove(fleet.ClusterName(two.Name))
	w.told(w.Local, "a", dependents.EventFailed, "placement service")
	w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) { clear(cm.Annotations) })
	w.told(w.Local, "a", dependents.EventConflict, copyOf("a"))
}

// TestTargetsThatCannotBeFoundAreAskedForLessAndLess, also where a member is back of which it is to be known whether it is a target. What the
// owner has there is removed once they are found.
func TestTargetsThatCannotBeFoundAreAskedForLessAndLess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	var fail atomic.Bool
	var last atomic.Pointer[time.Time]
	p := w.run(w.placed(&fail, func() { last.Store(new(time.Now())) }))
	w.create(w.Local, w.owner("a", one.Name, two.Name))
	w.isCopied(one, "a")
	w.isCopied(two, "a")
	<-p.members.Remove(fleet.ClusterName(two.Name))
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = one.Name })
	w.told(w.Local, "a", dependents.EventClusterNotReady, two.Name)
	eventually(t, "the program is at rest", p.isAtRest)
	fail.Store(true)
	if err := p.members.Set(p.member(two)); err != nil {
		t.Fatal(err)
	}
	w.told(w.Local, "a", dependents.EventFailed, "placement service")
	p.is(two, fleet.Ready)
	eventuallyWithin(t, 30*time.Second, "they were not asked for in the last second", func() bool { return time.Since(*last.Load()) > time.Second })
	w.unharmed(two, w.mustGet(two, copyOf("a")))
	fail.Store(false)
	w.isGone(two, copyOf("a"))
}

// TestWhatIsInAClusterThatWasGivenUpStaysUntilTargetsAreKnown, once the cluster is back: it may be a target.
func TestWhatIsInAClusterThatWasGivenUpStaysUntilTargetsAreKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	var fail atomic.Bool
	r := w.placed(&fail, func() {})
	r.Sweep = orphans.Sweep{Interval: 50 * time.Millisecond, Listing: 50 * time.Millisecond}
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name, two.Name))
	w.isCopied(one, "a")
	copied := w.isCopied(two, "a")
	<-p.members.Remove(fleet.ClusterName(two.Name))
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) {
		cm.Annotations["to"], cm.Annotations[dependents.GiveUpAnnotation] = one.Name, two.Name
	})
	w.told(w.Local, "a", dependents.EventReleased, two.Name)
	isNoted := func() bool {
		for key, said := range w.mustGet(w.Local, "a").Annotations {
			if key != dependents.GiveUpAnnotation && strings.Contains(said, two.Name) {
				return true
			}
		}
		return false
	}
	eventually(t, "it is noted no more", func() bool { return !isNoted() })
	fail.Store(true)
	if err := p.members.Set(p.member(two)); err != nil {
		t.Fatal(err)
	}
	w.told(w.Local, "a", dependents.EventFailed, "placement service")
	p.is(two, fleet.Ready)
	eventually(t, "it is noted again", isNoted)
	w.unharmed(two, copied)
	fail.Store(false)
	w.isGone(two, copyOf("a"))
}

// TestAnOwnerWhoseTargetsNeedAMemberThatWasGoneIsPlannedOnceItIsBack, be it new, or changed meanwhile.
func TestAnOwnerWhoseTargetsNeedAMemberThatWasGoneIsPlannedOnceItIsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.spread()
	var p atomic.Pointer[process]
	find := r.Targets
	r.Targets = func(ctx context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
		if owner.Data["value"] == "2" {
			if _, err := p.Load().GetFleet().Engagement(fleet.ClusterName(two.Name)); err != nil {
				return nil, err
			}
		}
		return find(ctx, owner)
	}
	p.Store(w.run(r))
	w.create(w.Local, w.owner("changed", one.Name))
	w.isCopied(one, "changed")
	p.Load().is(two, fleet.Ready)
	<-p.Load().members.Remove(fleet.ClusterName(two.Name))
	w.change(w.Local, "changed", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	created := w.owner("new", one.Name)
	created.Data["value"] = "2"
	w.create(w.Local, created)
	for _, name := range []string{"changed", "new"} {
		w.told(w.Local, name, dependents.EventClusterNotReady, "was removed")
	}
	if err := p.Load().members.Set(p.Load().member(two)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"changed", "new"} {
		eventually(t, name+" is planned", func() bool { return w.isCopied(one, name).Data["value"] == "2" })
	}
}
