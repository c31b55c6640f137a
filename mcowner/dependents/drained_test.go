package dependents_test

import (
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// drainable is a program whose owners are in a member that people drain, and fill again.
type drainable struct {
	*process
	home    *mctest.ControlPlane
	drained *atomic.Bool
}

func (w *world) runDrainable(home *mctest.ControlPlane, r *dependents.Reconciler[*corev1.ConfigMap]) drainable {
	w.t.Helper()
	d := drainable{home: home, drained: &atomic.Bool{}}
	r.OwnersIn = mcowner.Clusters{Members: labels.SelectorFromSet(labels.Set{"name": home.Name})}
	d.process = w.runWith(func(mgr mcmanager.Manager) error {
		mgr.GetFleet().HoldBy(func(name fleet.ClusterName) fleet.Hold {
			return fleet.Hold{Drained: name == fleet.ClusterName(home.Name) && d.drained.Load()}
		})
		return r.SetupWithManager(mgr)
	})
	return d
}

// drain drains the member while something happens there.
func (d drainable) drain(meanwhile func()) {
	d.t.Helper()
	d.drained.Store(true)
	d.GetFleet().HoldChanged(fleet.ClusterName(d.home.Name))
	d.is(d.home, fleet.Drained)
	meanwhile()
	d.drained.Store(false)
	d.GetFleet().HoldChanged(fleet.ClusterName(d.home.Name))
	d.is(d.home, fleet.Ready)
}

// TestWhatAnOwnerHasLeftThatWentWhileItsClusterWasDrainedGoes: no event tells that the owner is gone.
func TestWhatAnOwnerHasLeftThatWentWhileItsClusterWasDrainedGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	home, one := w.Members[0], w.Members[1]
	r := w.spread()
	r.Sweep.Interval = time.Hour
	w.create(home, w.owner("a", one.Name))
	p := w.runDrainable(home, r)
	w.isCopied(one, "a")
	eventually(t, "the program is at rest", p.isAtRest)
	p.drain(func() {
		w.change(home, "a", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
		w.remove(home, "a")
		w.isGone(home, "a")
	})
	w.isGone(one, copyOf("a"))
}

// TestWhatIsTakenFromASliceWhileItsClusterIsDrainedIsPutBack, as where its storage is restored from a backup meanwhile: the next connection has a
// cache of its own, which tells of all slices as of new ones.
func TestWhatIsTakenFromASliceWhileItsClusterIsDrainedIsPutBack(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 2)
	home, one := w.Members[0], w.Members[1]
	w.create(home, w.owner("a", one.Name))
	p := w.runDrainable(home, w.sliced())
	has := func() bool {
		all := w.slicesIn(home)
		return len(all) == 1 && len(all[0].Clusters) == 1 && all[0].Clusters[0].MayHaveDependents && len(all[0].Clusters[0].Objects) == 2
	}
	eventually(t, "the slice has the member", has)
	eventually(t, "the program is at rest", p.isAtRest)
	p.drain(func() {
		changed := w.slicesIn(home)[0]
		changed.Clusters = []v1alpha1.Cluster{{Name: "elsewhere"}}
		if err := home.Client().Update(t.Context(), &changed); err != nil {
			t.Fatal(err)
		}
	})
	eventually(t, "the slice has the member again", has)
}
