package dependents_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// sweepsOften is spread, of which all members are looked at all the while.
func (w *world) sweepsOften() *dependents.Reconciler[*corev1.ConfigMap] {
	r := w.spread()
	r.Sweep = orphans.Sweep{Interval: 100 * time.Millisecond, Listing: 100 * time.Millisecond, QPS: 1000}
	return r
}

// besideOneThatHolds is a reconciler beside a controller that keeps members which are about to leave.
type besideOneThatHolds struct {
	*dependents.Reconciler[*corev1.ConfigMap]
}

func (r besideOneThatHolds) SetupWithManager(mgr mcmanager.Manager, more ...func(*mcbuilder.Builder)) error {
	holds := mcreconcile.Func(func(ctx context.Context, _ mcreconcile.Request) (reconcile.Result, error) {
		if mcreconcile.Leaving(ctx) {
			return reconcile.Result{}, errors.New("it stays for now")
		}
		return reconcile.Result{}, nil
	})
	err := mcbuilder.ControllerManagedBy(mgr).Named("holds").For(&corev1.ConfigMap{}, mcbuilder.InMembers(everywhere)).Complete(holds)
	return errors.Join(err, r.Reconciler.SetupWithManager(mgr, more...))
}

// TestWhatIsInAMemberThatLeavesStaysWhateverItsOwnerWants, where the owner's replica has let the member go AsIs, and another one sweeps it: all is as
// it was while it leaves, and if it stays after all, what is not desired there goes.
func TestWhatIsInAMemberThatLeavesStaysWhateverItsOwnerWants(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	of := func() besideOneThatHolds { return besideOneThatHolds{w.sweepsOften()} }
	home, other := w.share(w.runShared("one", of()), w.runShared("two", of()))
	near, leaves := w.of(home)[0], w.of(other)[0]
	before := w.spreadOut(w.Local, "a")
	left := w.bothLeave(leaves, home, other)
	eventually(t, "the owner has let the member go", func() bool { return !strings.Contains(placedIn(w.mustGet(w.Local, "a")), leaves.Name) })
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = near.Name })
	lookedAt(t, other)
	w.becomes(leaves, before[leaves], dependents.LeaveAsIs)
	if isDone(left) {
		t.Fatal("the member has left")
	}
	for _, p := range []*process{home, other} {
		if err := p.members.Set(p.member(leaves)); err != nil {
			t.Fatal(err)
		}
	}
	w.isGone(leaves, copyOf("a"))
	w.unharmed(near, before[near])
}

// TestWhatNoRecordHasInAMemberThatLeavesGoesIfThatIsDeclared, where another replica than that of its owner sweeps the member, which waits for it. Else it
// stays as it is: what is released is not to go because it says how it goes with its owner.
func TestWhatNoRecordHasInAMemberThatLeavesGoesIfThatIsDeclared(t *testing.T) {
	t.Parallel()
	for _, policy := range []dependents.LeavePolicy{dependents.LeaveDeleted, dependents.LeaveReleased} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			home, other := w.pair(func() *dependents.Reconciler[*corev1.ConfigMap] {
				r := w.sweepsOften()
				r.OnMemberLeaving = policy
				return r
			})
			near, leaves := w.of(home)[0], w.of(other)[0]
			before := w.spreadOut(w.Local, "a")
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = near.Name })
			w.isGone(leaves, copyOf("a"))
			eventually(t, "the replica is at rest", home.isAtRest)
			list := other.refuse(http.MethodGet, leaves, "/configmaps")
			left := w.bothLeave(leaves, home, other)
			eventually(t, "it leaves", func() bool {
				status, _ := other.GetFleet().Status(fleet.ClusterName(leaves.Name))
				return status.Leaving
			})
			before[leaves].Annotations[mcowner.DeletionPolicyAnnotation] = "Background"
			back := w.restore(leaves, before[leaves])
			list()
			if policy == dependents.LeaveReleased {
				lookedAt(t, other)
				w.unharmed(leaves, back)
				return
			}
			eventually(t, "it has left", func() bool { return isDone(left) })
			w.becomes(leaves, back, policy)
		})
	}
}

// isDone reports whether a channel that tells of something has done so.
func isDone[T any](told <-chan T) bool {
	select {
	case <-told:
		return true
	default:
		return false
	}
}

// holdReads lets no read of an object get through to a cluster, until open is called. asked waits for the first.
func (p *process) holdReads(in *mctest.ControlPlane, path string) (asked, open func()) {
	p.t.Helper()
	first, opened := make(chan struct{}), make(chan struct{})
	note := sync.OnceFunc(func() { close(first) })
	p.power.listen(func(req *http.Request) {
		if req.Method == http.MethodGet && req.URL.Host == hostOf(in) && strings.HasSuffix(req.URL.Path, path) {
			note()
			<-opened
		}
	})
	return func() {
		p.t.Helper()
		eventually(p.t, "it is read", func() bool { return isDone(first) })
	}, sync.OnceFunc(func() { close(opened) })
}

// TestWhatIsInAMemberThatIsNoneOfDependentsStays, also if it is none since its sweep has begun, by another replica than that of the owner: the record
// of that does not have the member, and it is no target. The sweep goes on after it.
func TestWhatIsInAMemberThatIsNoneOfDependentsStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	selector := parsed(t, "name notin (another)")
	home, other := w.pair(func() *dependents.Reconciler[*corev1.ConfigMap] {
		r := w.sweepsOften()
		r.DependentsIn = mcowner.Clusters{Members: selector}
		return r
	})
	near, swept := w.of(home)[0], w.of(other)[0]
	relabel := func(name string) {
		for _, p := range []*process{home, other} {
			p.relabel(swept, name)
		}
	}
	before := w.spreadOut(w.Local, "a")
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = near.Name })
	w.isGone(swept, copyOf("a"))
	eventually(t, "the replica is at rest", home.isAtRest)
	note := home.refuse(http.MethodPatch, w.Local, "/configmaps/a") // what it sees of what comes back
	asked, open := other.holdReads(w.Local, "/configmaps/a")
	defer open()
	list := other.refuse(http.MethodGet, swept, "/configmaps")
	back := w.restore(swept, before[swept])
	w.owned(swept, "orphan", w.goneOwner(func(r *mcowner.Reference) { r.Manager = controller }))
	list() // both are in one list
	asked()
	relabel("another")
	open()
	w.isGone(swept, "orphan")
	w.unharmed(swept, back)
	relabel(swept.Name)
	note()
	w.isGone(swept, back.Name)
	w.unharmed(near, before[near])
}
