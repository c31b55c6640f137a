package dependents_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// jobs is a reconciler whose dependents are a Job, named by the owner's data, and the copy. The job is ready once the test finishes it.
func (w *world) jobs(rollout dependents.Rollout) *dependents.Reconciler[*corev1.ConfigMap] {
	r := w.spread()
	r.Rollout = rollout
	r.Kinds = append(r.Kinds, &batchv1.Job{})
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		return append(all, w.job(jobOf(owner))), err
	}
	return r
}

func jobOf(owner *corev1.ConfigMap) string { return "job-" + owner.Data["value"] }

// having returns the members that have a job.
func (w *world) having(job string) []*mctest.ControlPlane {
	w.t.Helper()
	return slices.DeleteFunc(slices.Clone(w.Members), func(cp *mctest.ControlPlane) bool { return !w.isThere(cp, w.job(job)) })
}

// next waits until a member has a job that was not among those before, and returns it.
func (w *world) next(job string, before ...*mctest.ControlPlane) *mctest.ControlPlane {
	w.t.Helper()
	var there []*mctest.ControlPlane
	eventually(w.t, fmt.Sprintf("one more than %d members have %s", len(before), job), func() bool {
		there = w.having(job)
		return len(there) > len(before)
	})
	if len(there) != len(before)+1 {
		w.t.Errorf("%d members have %s, want %d", len(there), job, len(before)+1)
	}
	return there[slices.IndexFunc(there, func(cp *mctest.ControlPlane) bool { return !slices.Contains(before, cp) })]
}

// suspended returns in how many clusters something of the owner is suspended.
func (o *outcomes) suspended(owner string) int {
	n := 0
	for _, r := range o.of(owner) {
		if slices.ContainsFunc(r.Objects, func(obj dependents.ObjectResult) bool { return obj.State == dependents.Suspended }) {
			n++
		}
	}
	return n
}

// looked returns in how many clusters it was looked at what there is of the owner.
func (o *outcomes) looked(owner string) int {
	return len(slices.DeleteFunc(slices.Clone(o.of(owner)), func(r dependents.Result) bool { return len(r.Objects) == 0 }))
}

func (o *outcomes) waiting(owner string) int {
	n := 0
	for _, r := range o.of(owner) {
		if r.Err != nil && strings.Contains(r.Err.Error(), "are changed at once") {
			n++
		}
	}
	return n
}

// TestClustersAreChangedOneAfterTheOther: also after a restart, and when the owner changes meanwhile.
func TestClustersAreChangedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	names := []string{w.Members[0].Name, w.Members[1].Name, w.Members[2].Name}
	start := func() (*process, *outcomes) {
		r := w.jobs(dependents.Rollout{MaxParallel: intstr.FromString("10%")})
		told := listen(r)
		return w.run(r), told
	}
	p, told := start()
	w.create(w.Local, w.owner("a", names...))
	first := w.next("job-1")
	eventually(t, "the others say that they wait", func() bool { return told.waiting("a") == 2 })

	p.stop()
	_, told = start()
	eventually(t, "the others wait after the restart", func() bool { return told.waiting("a") == 2 })
	w.finish(first, "job-1")
	second := w.next("job-1", first)
	w.remove(first, copyOf("a"))
	w.isCopied(first, "a") // that is no change of the owner

	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	if changed := w.next("job-2"); changed != second {
		t.Errorf("%s is changed while %s is", changed.Name, second.Name)
	}
	w.finish(second, "job-2")
	third := w.next("job-2", second)
	w.finish(third, "job-2")
	w.finish(w.next("job-2", second, third), "job-2")
	eventually(t, "all is done", func() bool {
		return !slices.ContainsFunc(told.of("a"), func(r dependents.Result) bool { return r.Err != nil }) && len(w.having("job-1")) == 0
	})
}

// TestAfterARestartTheClusterThatIsFurthestIsChangedFirst: what it has is ready by then, and others have asked before it.
func TestAfterARestartTheClusterThatIsFurthestIsChangedFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	var first atomic.Pointer[mctest.ControlPlane]
	waits := make(chan struct{})
	start := func() (*process, *outcomes) {
		r := w.jobs(dependents.Rollout{MaxParallel: intstr.FromInt32(1)})
		desired := r.Desired
		r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
			if cp := first.Load(); cp != nil && cp.Name == string(target.Cluster) && target.RESTMapper != nil {
				<-waits
			}
			all, err := desired(ctx, owner, target)
			return append(all, inWave("1", w.configMap("late"))), err
		}
		told := listen(r)
		return w.run(r), told
	}
	p, told := start()
	w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name))
	begun := w.next("job-1")
	eventually(t, "the other one waits", func() bool { return told.waiting("a") == 1 && p.isAtRest() })
	p.stop()
	w.finish(begun, "job-1")
	first.Store(begun)
	_, told = start()
	eventually(t, "the other one waits after the restart", func() bool { return told.waiting("a") == 1 })
	close(waits)
	w.next("job-1", begun)
	if w.get(begun, "late") == nil {
		t.Errorf("another cluster is changed while half of %s is", begun.Name)
	}
}

// TestAClusterThatIsReportedLateIsChangedBeforeTheNext: after a restart it is not known of it at first that it is being changed, nor that it is a
// target, where all members are.
func TestAClusterThatIsReportedLateIsChangedBeforeTheNext(t *testing.T) {
	t.Parallel()
	for name, everywhere := range map[string]bool{"named": false, "members": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3)
			r := w.jobs(dependents.Rollout{MaxParallel: intstr.FromInt32(1)})
			if everywhere {
				r.Targets = nil
			}
			p, told, first := w.restartsWithoutTheFirst(r, func(mcmanager.Manager) {})
			cfg, opened := p.member(first).Config, make(chan struct{})
			open := sync.OnceFunc(func() { close(opened) })
			defer open()
			late := p.member(first)
			late.Config, late.Load = nil, func() (*rest.Config, error) {
				<-opened
				return cfg, nil
			}
			if err := p.members.Set(late); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the others wait for it before it is connected", func() bool {
				return told.waiting("a") == 2 && len(told.of("a")) == 3 && p.isAtRest()
			})
			open()
			p.is(first, fleet.Ready)
			eventually(t, "the others wait for it", func() bool { return told.waiting("a") == 2 && p.isAtRest() })
			if having := w.having("job-1"); len(having) != 1 {
				t.Errorf("%d clusters are changed at once", len(having))
			}
			w.finish(first, "job-1")
			w.next("job-1", first)
		})
	}
}

// restartsWithoutTheFirst changes a first member, and starts the program anew while that is under way. Nobody reports the member.
func (w *world) restartsWithoutTheFirst(
	r *dependents.Reconciler[*corev1.ConfigMap], prepare func(mcmanager.Manager),
) (p *process, told *outcomes, first *mctest.ControlPlane) {
	w.t.Helper()
	told = listen(r)
	p = w.runWith(func(mgr mcmanager.Manager) error {
		prepare(mgr)
		return r.SetupWithManager(mgr)
	})
	w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name, w.Members[2].Name))
	first = w.next("job-1")
	eventually(w.t, "the others say that they wait", func() bool { return told.waiting("a") == 2 })
	p.stop()
	told = listen(r)
	p = w.runWith(func(mgr mcmanager.Manager) error {
		prepare(mgr)
		mgr.GetProvider().(*fleettest.Provider).Remove(fleet.ClusterName(first.Name)) //nolint:forcetypeassert // so are all here
		return r.SetupWithManager(mgr)
	})
	eventually(w.t, "the others wait after the restart", func() bool { return told.waiting("a") == 2 && p.isAtRest() })
	return p, told, first
}

// TestAfterARestartTheOnlyMemberThatIsReportedWaitsForTheOthers: where all members are targets, those that are reported may be fewer than are
// changed at once.
func TestAfterARestartTheOnlyMemberThatIsReportedWaitsForTheOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	r := w.jobs(dependents.Rollout{MaxParallel: intstr.FromInt32(1)})
	r.Targets = nil
	told := listen(r)
	p := w.run(r)
	w.create(w.Local, w.owner("a"))
	first := w.next("job-1")
	eventually(t, "the other one says that it waits", func() bool { return told.waiting("a") == 1 && p.isAtRest() })
	p.stop()
	told = listen(r)
	p = w.runWith(func(mgr mcmanager.Manager) error {
		mgr.GetProvider().(*fleettest.Provider).Remove(fleet.ClusterName(first.Name)) //nolint:forcetypeassert // so are all here
		return r.SetupWithManager(mgr)
	})
	eventually(t, "the other one is looked at", func() bool {
		for _, r := range told.of("a") {
			if string(r.Cluster) != first.Name && !errors.Is(r.Err, dependents.ErrPending) {
				return p.isAtRest()
			}
		}
		return false
	})
	if having := w.having("job-1"); len(having) != 1 {
		t.Errorf("%d clusters are changed at once", len(having))
	}
}

// TestAfterARestartAClusterIsBeingChangedThatHasSomethingWrongInALaterWave: no other is changed beside it.
func TestAfterARestartAClusterIsBeingChangedThatHasSomethingWrongInALaterWave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	start := func() (*process, *outcomes) {
		r := w.jobs(dependents.Rollout{MaxParallel: intstr.FromInt32(1)})
		desired := r.Desired
		r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
			all, err := desired(ctx, owner, target)
			late := w.configMap("late")
			late.Annotations = map[string]string{dependents.WaveAnnotation: "1", dependents.ChangeAnnotation: "Never"}
			return append(all, late), err
		}
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

// TestNoClusterIsChangedWhileTheTargetsAreFoundAnew: a member that was just reported may be one, and is being changed.
func TestNoClusterIsChangedWhileTheTargetsAreFoundAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	r := w.jobs(dependents.Rollout{MaxParallel: intstr.FromInt32(1)})
	var stuck, looked atomic.Bool
	asked, found := make(chan struct{}, 100), make(chan struct{})
	find := sync.OnceFunc(func() { close(found) })
	defer find()
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		looked.Store(looked.Load() || target.Labels["name"] == "other")
		return desired(ctx, owner, target)
	}
	p, told, first := w.restartsWithoutTheFirst(r, func(mgr mcmanager.Manager) {
		r.Targets = func(context.Context, *corev1.ConfigMap) (all []mcreconcile.ClusterName, _ error) {
			if stuck.Load() {
				asked <- struct{}{}
				<-found
			}
			for _, m := range mgr.GetFleet().List(nil) {
				all = append(all, m.Name)
			}
			return all, nil
		}
	})
	stuck.Store(true)
	if err := p.members.Set(p.member(first)); err != nil {
		t.Fatal(err)
	}
	<-asked
	p.relabel(w.Members[(slices.Index(w.Members, first)+1)%len(w.Members)], "other")
	eventually(t, "another one is looked at", func() bool { return looked.Load() && p.isAtRest() })
	find()
	eventually(t, "the others wait for it", func() bool { return told.waiting("a") == 2 && len(told.of("a")) == 3 && p.isAtRest() })
	if having := w.having("job-1"); len(having) != 1 {
		t.Errorf("%d clusters are changed at once", len(having))
	}
}

// TestARolloutThatLimitsNothingWaitsForNoCluster, such as one that cannot be connected.
func TestARolloutThatLimitsNothingWaitsForNoCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.connectTimeout = time.Hour
	silent, other := w.Members[0], w.Members[1]
	r := w.spread()
	r.Rollout = dependents.Rollout{ProgressDeadline: time.Hour}
	silent.Freeze(t)
	w.run(r)
	w.create(w.Local, w.owner("a", silent.Name, other.Name))
	w.isCopied(other, "a")
	silent.Thaw(t)
	w.isCopied(silent, "a")
}

// needsMember has what a reconciler desires in a cluster need a member, and counts how often that was away.
func needsMember(r *dependents.Reconciler[*corev1.ConfigMap], in, needed *mctest.ControlPlane) (setUpFunc, *atomic.Int32) {
	desired, away := r.Desired, &atomic.Int32{}
	return func(mgr mcmanager.Manager) error {
		r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
			_, err := mgr.GetFleet().Engagement(fleet.ClusterName(needed.Name))
			if err != nil && target.Cluster == fleet.ClusterName(in.Name) {
				away.Add(1)
				return nil, err
			}
			return desired(ctx, owner, target)
		}
		return r.SetupWithManager(mgr)
	}, away
}

// TestARolloutGoesOnWhereDesiredNeedsAMemberThatIsAway: the cluster for which it does is changed once that is back.
func TestARolloutGoesOnWhereDesiredNeedsAMemberThatIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	needing, other, needed := w.Members[0], w.Members[1], w.Members[2]
	r := w.jobs(dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1})
	needed.Stop(t)
	setUp, _ := needsMember(r, needing, needed)
	w.runWith(setUp)
	w.create(w.Local, w.owner("a", needing.Name, other.Name))
	if first := w.next("job-1"); first != other {
		t.Errorf("%s is changed first", first.Name)
	}
	w.finish(other, "job-1")
	needed.Restart(t)
	w.next("job-1", other)
}

// TestAClusterIsLookedAtOnceTheMemberIsBackThatDesiredNeeds, which was gone: it holds its place in the rollout until then.
func TestAClusterIsLookedAtOnceTheMemberIsBackThatDesiredNeeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	needing, other, needed := w.Members[0], w.Members[1], w.Members[2]
	r := w.jobs(dependents.Rollout{MaxParallel: intstr.FromInt32(1)})
	told := listen(r)
	setUp, away := needsMember(r, needing, needed)
	p := w.runWith(setUp)
	w.create(w.Local, w.owner("a", needing.Name))
	w.next("job-1")
	<-p.members.Remove(fleet.ClusterName(needed.Name))
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = needing.Name + "," + other.Name })
	eventually(t, "one lacks the member, and the other waits", func() bool {
		return told.waiting("a") == 1 && slices.ContainsFunc(told.of("a"), func(r dependents.Result) bool { return errors.Is(r.Err, fleet.ErrGone) })
	})
	eventually(t, "all rests", p.isAtRest)
	before := away.Load()
	w.finish(needing, "job-1")
	eventually(t, "it was looked at in vain", func() bool { return away.Load() > before })
	if err := p.members.Set(p.member(needed)); err != nil {
		t.Fatal(err)
	}
	w.next("job-1", needing)
}

// TestAMemberThatLeavesGivesItsPermitBack: whether it leaves the fleet, or is no target any more.
func TestAMemberThatLeavesGivesItsPermitBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	r := w.jobs(dependents.Rollout{MaxParallel: intstr.FromInt32(1)})
	r.Targets = nil // all members
	told := listen(r)
	p := w.run(r)
	w.create(w.Local, w.owner("a"))
	first := w.next("job-1")
	eventually(t, "the others say that they wait", func() bool { return told.waiting("a") == 2 })
	<-p.members.Remove(fleet.ClusterName(first.Name))
	w.next("job-1", first)
}

// TestWhatGoesInWavesHoldsAPlaceInARollout until the last wave is going, which holds none.
func TestWhatGoesInWavesHoldsAPlaceInARollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	r := w.spread()
	r.Rollout = dependents.Rollout{MaxParallel: intstr.FromInt32(1)}
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		if owner.Data["value"] == "1" {
			early, late := w.configMap("early"), w.configMap("late")
			early.Finalizers, late.Finalizers = []string{holding}, []string{holding}
			all = append(all, early, inWave("1", late))
		}
		return all, err
	}
	told := listen(r)
	p := w.run(r)
	w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name))
	eventually(t, "all is done", func() bool { return dependents.Summarize(told.of("a")).Done == 2 })
	going := func(name string) []*mctest.ControlPlane {
		return slices.DeleteFunc(slices.Clone(w.Members), func(cp *mctest.ControlPlane) bool {
			cm := w.get(cp, name)
			return cm != nil && cm.DeletionTimestamp == nil
		})
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "what is of the last wave goes, and the other cluster waits", func() bool {
		return len(going("late")) > 0 && told.waiting("a") == 1 && p.isAtRest()
	})
	first := going("late")
	if len(first) != 1 || len(going("early")) > 0 {
		t.Fatalf("what is of the last wave goes in %d clusters, want 1, and of the one before in %d, want 0", len(first), len(going("early")))
	}
	w.letGo(first[0], "late", holding)
	eventually(t, "it is the turn of the other cluster", func() bool { return len(going("late")) == 2 })
	if !slices.Equal(going("early"), first) {
		t.Errorf("what is of the wave before goes in %d clusters, want the one of the first", len(going("early")))
	}
	w.letGo(first[0], "early", holding)
	w.isGone(first[0], "early")
}

// TestARolloutHaltsWhereAClusterRefuses: until the owner is changed.
func TestARolloutHaltsWhereAClusterRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	r := w.spread()
	r.Rollout = dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1}
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		data := map[string]string{owner.Data["value"]: "1"}
		return []client.Object{&corev1.ConfigMap{ObjectMeta: metaOf(w.ns, copyOf(owner.Name)), Data: data}}, nil
	}
	told := listen(r)
	w.run(r)
	owner := w.owner("a", w.Members[0].Name, w.Members[1].Name, w.Members[2].Name)
	owner.Data["value"] = "no key"
	w.create(w.Local, owner)
	halted := func() (n int) {
		for _, r := range told.of("a") {
			if r.Err != nil && strings.Contains(r.Err.Error(), "1 clusters have failed") {
				n++
			}
		}
		return n
	}
	eventually(t, "the others say that it is halted", func() bool { return halted() == 2 })
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "key" })
	for _, cp := range w.Members {
		w.isCopied(cp, "a")
	}
}

// TestARolloutHaltsWhereWhatWasAppliedHasFailed: its API server refuses nothing, and no other cluster is changed until the owner is.
func TestARolloutHaltsWhereWhatWasAppliedHasFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	r := w.jobs(dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1})
	told := listen(r)
	p := w.run(r)
	w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name, w.Members[2].Name))
	bad := w.next("job-1")
	eventually(t, "the others say that they wait", func() bool { return told.waiting("a") == 2 })
	w.fail(bad, "job-1")
	eventually(t, "the others say that it is halted", func() bool {
		waiting, _ := told.halted()
		return waiting == 2 && strings.Contains(w.failedIn(), bad.Name) && p.isAtRest()
	})
	for _, cp := range w.Members {
		if cp != bad && (w.isThere(cp, w.job("job-1")) || w.get(cp, copyOf("a")) != nil) {
			t.Errorf("%s is changed, while %s has failed", cp.Name, bad.Name)
		}
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	done := make([]*mctest.ControlPlane, 0, len(w.Members))
	for range w.Members {
		cp := w.next("job-2", done...)
		w.finish(cp, "job-2")
		done = append(done, cp)
	}
	eventually(t, "no failure is noted", func() bool { return w.failedIn() == "" })
}

// TestWhatIsNotKnownYetGetsNoPermit: clusters for which Desired cannot tell at first what is desired are changed one after the other all the same.
func TestWhatIsNotKnownYetGetsNoPermit(t *testing.T) {
	t.Parallel()
	for name, why := range map[string]error{"pending": dependents.ErrPending, "waiting": dependents.ErrWaiting} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3)
			r := w.jobs(dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1})
			desired := r.Desired
			var known atomic.Bool
			var asked sync.Map
			r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
				if target.RESTMapper != nil && !known.Load() {
					asked.Store(target.Cluster, true)
					return nil, fmt.Errorf("%w: not known yet", why)
				}
				return desired(ctx, owner, target)
			}
			told := listen(r)
			p := w.run(r)
			w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name, w.Members[2].Name))
			for _, cp := range w.Members {
				eventually(t, "it is asked what is desired", func() bool { _, is := asked.Load(fleet.ClusterName(cp.Name)); return is })
			}
			known.Store(true)
			w.next("job-1")
			eventually(t, "the others say that they wait", func() bool { return told.waiting("a") == 2 && p.isAtRest() })
			if n := len(w.having("job-1")); n != 1 {
				t.Errorf("%d clusters are changed at once", n)
			}
		})
	}
}

// TestAPanicHoldsUpNoOtherCluster: one that panics before anything is written there.
func TestAPanicHoldsUpNoOtherCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	r := w.spread()
	r.Rollout = dependents.Rollout{MaxParallel: intstr.FromInt32(1)}
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		if string(target.Cluster) == w.Members[0].Name && owner.Data["value"] == "2" {
			panic("on purpose")
		}
		return desired(ctx, owner, target)
	}
	w.run(r)
	const owners = 20
	value := func(cp *mctest.ControlPlane, i int) string { return w.isCopied(cp, fmt.Sprint("a", i)).Data["value"] }
	for i := range owners {
		w.create(w.Local, w.owner(fmt.Sprint("a", i), w.Members[0].Name, w.Members[1].Name, w.Members[2].Name))
	}
	for i := range owners {
		for _, cp := range w.Members {
			value(cp, i)
		}
		w.change(w.Local, fmt.Sprint("a", i), func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	}
	for i := range owners {
		for _, cp := range w.Members[1:] {
			eventually(t, "the copy follows", func() bool { return value(cp, i) == "2" })
		}
	}
}

// TestAHundredOwnersAreRolledOut side by side: each to one cluster at a time, with the program killed in between.
func TestAHundredOwnersAreRolledOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	const owners = 100
	changing := inFlight{of: regexp.MustCompile(`/configmaps/(.+)-copy$`)}
	tap := changing.tap
	start := func() *process {
		r := w.spread()
		r.Rollout = dependents.Rollout{MaxParallel: intstr.FromInt32(1)}
		p := w.run(r)
		p.power.tap.Store(&tap)
		return p
	}
	p := start()
	for i := range owners {
		w.create(w.Local, w.owner(fmt.Sprint("a", i), w.Members[0].Name, w.Members[1].Name, w.Members[2].Name))
	}
	follow := func(value string) bool {
		for _, cp := range w.Members {
			copies := w.list(cp)
			if len(copies) != owners || slices.ContainsFunc(copies, func(cm corev1.ConfigMap) bool { return cm.Data["value"] != value }) {
				return false
			}
		}
		return true
	}
	eventually(t, "each owner has all its copies", func() bool { return follow("1") })
	for i := range owners {
		w.change(w.Local, fmt.Sprint("a", i), func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
		if i == owners/2 {
			p.kill()
			p = start()
		}
	}
	eventually(t, "all copies follow", func() bool { return follow("2") })
	if most := changing.most(); most != 1 {
		t.Errorf("up to %d clusters of one owner were changed at once, want 1", most)
	}
}

// inFlight counts changes that are under way, for each name that the expression finds in their path.
type inFlight struct {
	of *regexp.Regexp

	mu      sync.Mutex // guards what follows
	now     map[string]int
	highest int
}

func (f *inFlight) tap(req *http.Request) (answered func()) {
	name := f.of.FindStringSubmatch(req.URL.Path)
	if req.Method != http.MethodPatch || name == nil {
		return nil
	}
	f.count(name[1], 1)
	return func() { f.count(name[1], -1) }
}

func (f *inFlight) count(name string, by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now == nil {
		f.now = map[string]int{}
	}
	f.now[name] += by
	f.highest = max(f.highest, f.now[name])
}

func (f *inFlight) most() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.highest
}
