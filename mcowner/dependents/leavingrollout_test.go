package dependents_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestAMemberThatLeavesWellHaltsNoRollout: it is being changed, is named by the owner, and has failed in nothing. Once it is back, it is changed
// in its turn, or counts as being changed if it has kept what is not ready.
func TestAMemberThatLeavesWellHaltsNoRollout(t *testing.T) {
	t.Parallel()
	for _, policy := range []dependents.LeavePolicy{dependents.LeaveAsIs, dependents.LeaveDeleted} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3)
			r := w.jobs(dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1})
			r.OnMemberLeaving = policy
			told := listen(r)
			p := w.run(r)
			w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name, w.Members[2].Name))
			first := w.next("job-1")
			eventually(t, "the others say that they wait", func() bool { return told.waiting("a") == 2 })
			p.leave(first)
			eventually(t, "another one is being changed, and a third waits", func() bool {
				return told.waiting("a") == 1 && p.isAtRest() && len(w.havingBut(first, "job-1")) == 1
			})
			if said := w.failedIn(); said != "" {
				t.Errorf("there are failures: %s", said)
			}
			second := w.havingBut(first, "job-1")[0]
			if err := p.members.Set(p.member(first)); err != nil {
				t.Fatal(err)
			}
			if policy == dependents.LeaveDeleted {
				eventually(t, "it waits like the third", func() bool { return told.waiting("a") == 2 && p.isAtRest() })
				w.finish(second, "job-1")
				third := w.next("job-1", second)
				w.finish(third, "job-1")
				w.finish(w.next("job-1", second, third), "job-1")
			} else {
				eventually(t, "it has its dependents back", func() bool { return told.waiting("a") == 1 && told.unready("a") == 2 && p.isAtRest() })
				w.finish(second, "job-1")
				eventually(t, "it alone is being changed", func() bool { return told.waiting("a") == 1 && told.unready("a") == 1 && p.isAtRest() })
				w.finish(first, "job-1")
				w.finish(w.next("job-1", first, second), "job-1")
			}
			eventually(t, "all is done", func() bool {
				return !slices.ContainsFunc(told.of("a"), func(r dependents.Result) bool { return r.Err != nil || r.Unready != nil })
			})
		})
	}
}

// TestAMemberThatTakesLongToLeaveHoldsUpNoRollout: its place is another one's at once, though a Job of its last wave is held.
func TestAMemberThatTakesLongToLeaveHoldsUpNoRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	r := w.jobs(dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1})
	r.OnMemberLeaving = dependents.LeaveDeleted
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		all[1].SetAnnotations(map[string]string{dependents.WaveAnnotation: "1"})
		return all, err
	}
	told := listen(r)
	p := w.run(r)
	w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name))
	first := w.next("job-1")
	eventually(t, "the other one says that it waits", func() bool { return told.waiting("a") == 1 })
	hold := func(finalizers string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": `+finalizers+`}}`))
		if err := first.Client().Patch(t.Context(), w.job("job-1"), patch); err != nil {
			t.Fatal(err)
		}
	}
	hold(`["example.com/hold"]`)
	left, err := p.members.Leave(p.member(first))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other one is being changed", func() bool { return len(w.havingBut(first, "job-1")) == 1 })
	if status, _ := p.GetFleet().Status(mcreconcile.ClusterName(first.Name)); !status.Leaving {
		t.Errorf("the member has left, or stays: %+v", status)
	}
	hold("null")
	<-left
	if said := w.failedIn(); said != "" {
		t.Errorf("there are failures: %s", said)
	}
}

// TestAClusterThatHasFailedCountsOnOnceItLeavesWell, as the owner still names it.
func TestAClusterThatHasFailedCountsOnOnceItLeavesWell(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	var by atomic.Pointer[string]
	by.Store(new(everyCluster))
	r := w.refusing(w.spread(), &by)
	r.Rollout = dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1}
	told := listen(r)
	p := w.run(r)
	w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name, w.Members[2].Name))
	bad := w.isHalted(p, told)
	p.leave(w.Members[slices.IndexFunc(w.Members, func(cp *mctest.ControlPlane) bool { return cp.Name == bad })])
	if now := w.isHalted(p, told); now != bad {
		t.Errorf("%s has failed, not %s", now, bad)
	}
}

// havingBut returns the members that have a job, but for one.
func (w *world) havingBut(but *mctest.ControlPlane, job string) []*mctest.ControlPlane {
	w.t.Helper()
	return slices.DeleteFunc(w.having(job), func(cp *mctest.ControlPlane) bool { return cp == but })
}

// unready returns in how many clusters something of the owner is not ready.
func (o *outcomes) unready(owner string) (n int) {
	for _, r := range o.of(owner) {
		if r.Unready != nil {
			n++
		}
	}
	return n
}
