package dependents_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// bothLeave has a member leave, of which all replicas hear. What it returns is closed when it has left the one that works on it.
func (w *world) bothLeave(cp *mctest.ControlPlane, replicas ...*process) (left <-chan struct{}) {
	w.t.Helper()
	for _, p := range replicas {
		works := p.owns(mcreconcile.ClusterName(cp.Name))
		over, err := p.members.Leave(p.member(cp))
		if err != nil {
			w.t.Fatal(err)
		}
		if works {
			left = over
		}
	}
	return left
}

// TestOwnersOfAMemberThatLeavesTakeLeaveElsewhere as is declared for owners, wherever their dependents are: the other members, and
// the local cluster, stay.
func TestOwnersOfAMemberThatLeavesTakeLeaveElsewhere(t *testing.T) {
	forEachLeave(t, func(w *world, policy dependents.LeavePolicy) {
		from, to := w.Members[0], w.Members[1]
		of := func() *dependents.Reconciler[*corev1.ConfigMap] {
			r := w.fromMembers(policy)
			r.DependentsIn = mcowner.Clusters{Local: true, Members: named(to.Name)}
			r.Targets = func(context.Context, *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
				return []mcreconcile.ClusterName{mcreconcile.LocalCluster, mcreconcile.ClusterName(to.Name)}, nil
			}
			return r
		}
		home, other := w.pair(of)
		w.create(from, w.owner("a"))
		before := map[*mctest.ControlPlane]*corev1.ConfigMap{}
		for _, cp := range []*mctest.ControlPlane{w.Local, to} {
			before[cp] = w.isCopied(cp, "a")
		}
		<-w.bothLeave(from, home, other)
		w.hasNothing(from, "a")
		for cp, before := range before {
			w.becomes(cp, before, policy)
		}
	})
}

// TestAMemberLeavesWhoseOwnersAreLetGo although a visit for them waits for a member that is away: of an owner that still has its dependents
// there, or is to have none there any more, or is gone.
func TestAMemberLeavesWhoseOwnersAreLetGo(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(w *world, from *mctest.ControlPlane){
		"HasDependents": func(*world, *mctest.ControlPlane) {},
		"HasOtherTargets": func(w *world, from *mctest.ControlPlane) {
			w.change(from, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
		},
		"IsGone": func(w *world, from *mctest.ControlPlane) {
			w.remove(from, "a") // from then on nobody puts the finalizer back
			w.change(from, "a", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
			w.isGone(from, "a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			from, to := w.Members[0], w.Members[1]
			p := w.runShared("one", w.fromMembers(dependents.LeaveAsIs))
			w.hasAll(p)
			w.create(from, w.owner("a", to.Name))
			before := w.isCopied(to, "a")
			to.Stop(t)
			p.is(to, fleet.Unreachable)
			w.change(from, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
			w.told(from, "a", dependents.EventClusterNotReady, to.Name)
			then(w, from)
			left := w.bothLeave(from, p)
			eventually(t, "the member has left", func() bool {
				select {
				case <-left:
					return true
				default:
					return false
				}
			})
			to.Restart(t)
			w.unharmed(to, before)
		})
	}
}

// TestAMemberLeavesAlthoughItsOwnerAsksForOneThatIsGone, and for one that is away: the visit of the second member waits for that one.
func TestAMemberLeavesAlthoughItsOwnerAsksForOneThatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	from, to, away := w.Members[0], w.Members[1], mcreconcile.ClusterName(w.Members[2].Name)
	r := w.fromMembers(dependents.LeaveAsIs)
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		if owner.Data["value"] == "1" {
			return desired(ctx, owner, target)
		}
		return nil, errors.Join(
			&fleet.StateError{Err: fleet.ErrGone, Status: fleet.Status{Name: "gone"}}, &fleet.StateError{Err: fleet.ErrNotReady, Status: fleet.Status{Name: away}},
		)
	}
	p := w.runShared("one", r)
	w.hasAll(p)
	w.create(from, w.owner("a", to.Name))
	before := w.isCopied(to, "a")
	w.Members[2].Stop(t)
	p.is(w.Members[2], fleet.Unreachable)
	w.change(from, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	w.told(from, "a", dependents.EventClusterNotReady, to.Name)
	left := w.bothLeave(from, p)
	eventually(t, "the member has left", func() bool {
		select {
		case <-left:
			return true
		default:
			return false
		}
	})
	w.unharmed(to, before)
}

// TestAMemberOfAnotherReplicaWaitsForWhatIsDeclared, however long it takes the replica that works on the owner: for dependents, also
// of kinds that the other replica knows from owners alone, and for the namespace that was created for them.
func TestAMemberOfAnotherReplicaWaitsForWhatIsDeclared(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		kind    string
		created bool // the namespace is
		of      func(*world) *dependents.Reconciler[*corev1.ConfigMap]
	}{
		"Dependents":          {"configmaps", true, (*world).inNamespaces},
		"Namespaces":          {"namespaces", true, (*world).inNamespaces},
		"DependentsMoreKinds": {"configmaps", false, (*world).ofMoreKinds},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			namespace := w.ns
			if tc.created {
				namespace += "-created"
			}
			home, other := w.pair(func() *dependents.Reconciler[*corev1.ConfigMap] {
				r := tc.of(w)
				r.OnMemberLeaving = dependents.LeaveDeleted
				return r
			})
			leaves := w.of(other)[0]
			owner := w.ownerIn("a", namespace)
			owner.Annotations["to"] = leaves.Name
			w.create(w.Local, owner)
			dependent := &corev1.ConfigMap{ObjectMeta: metaOf(namespace, copyOf("a"))}
			eventually(t, "there is a dependent", func() bool { return w.isThere(leaves, dependent) })
			open := home.holdDeletions(tc.kind)
			defer open()
			left := w.bothLeave(leaves, home, other)
			select {
			case <-left:
				t.Error("the member has left before all was deleted")
			case <-time.After(3 * time.Second): // nothing tells that nothing is about to happen
			}
			open()
			select {
			case <-left:
			case <-time.After(time.Minute): // long before it leaves whatever is left there
				t.Error("the member has not left")
			}
			if w.isThere(leaves, dependent) || tc.created && w.namespace(leaves, namespace) != nil {
				t.Error("the member has left with the dependent, or the namespace")
			}
		})
	}
}

// TestAMemberOfAnotherReplicaLeavesWithItsDependents if they are to stay as they are, which is so where nothing is declared.
func TestAMemberOfAnotherReplicaLeavesWithItsDependents(t *testing.T) {
	t.Parallel()
	for _, policy := range []dependents.LeavePolicy{"", dependents.LeaveAsIs} {
		t.Run("Policy"+string(policy), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			spread := func() *dependents.Reconciler[*corev1.ConfigMap] {
				r := w.spread()
				r.OnMemberLeaving = policy
				return r
			}
			home, other := w.pair(spread)
			leaves := w.of(other)[0]
			w.create(w.Local, w.owner("a", w.everyone()...))
			before := w.isCopied(leaves, "a")
			over := w.bothLeave(leaves, home, other)
			eventually(t, "the member has left", func() bool {
				select {
				case <-over:
					return true
				default:
					return false
				}
			})
			w.becomes(leaves, before, dependents.LeaveAsIs)
			w.remove(w.Local, "a")
			w.isGone(w.Local, "a")
			w.unharmed(leaves, before)
		})
	}
}

// TestAnOwnerDoesNotWaitForAMemberOfAnotherReplicaThatHasLeft with its dependents, before the owner's replica was done there.
func TestAnOwnerDoesNotWaitForAMemberOfAnotherReplicaThatHasLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	home, other := w.pair(func() *dependents.Reconciler[*corev1.ConfigMap] {
		r := w.spread()
		r.Timeout = 2 * time.Minute // a request hangs below until the member has left
		return r
	})
	leaves := w.of(other)[0]
	before := w.spreadOut(w.Local, "a")[leaves]
	eventually(t, "the replica is at rest", home.isAtRest)
	hangs, gone := make(chan struct{}, 1), make(chan struct{})
	open := sync.OnceFunc(func() { close(gone) })
	defer open()
	home.power.listen(func(req *http.Request) {
		if req.Method == http.MethodPatch && req.URL.Host == hostOf(leaves) && strings.HasSuffix(req.URL.Path, before.Name) {
			select {
			case hangs <- struct{}{}:
			default:
			}
			<-gone
		}
	})
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	<-hangs
	<-w.bothLeave(leaves, home, other)
	if !strings.Contains(placedIn(w.mustGet(w.Local, "a")), leaves.Name) {
		t.Fatal("the owner has done already what it does as the member leaves")
	}
	<-home.members.Remove(fleet.ClusterName(leaves.Name))
	open()
	eventually(t, "the owner waits for the member no more", func() bool {
		return !strings.Contains(placedIn(w.mustGet(w.Local, "a")), leaves.Name)
	})
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	w.unharmed(leaves, before)
}

// TestARolloutGoesOnWithoutAMemberThatCannotBeVisited: one member of this replica, or of another one, is changed after the other,
// and the one that cannot be reached when it can.
func TestARolloutGoesOnWithoutAMemberThatCannotBeVisited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	w.connectTimeout = 2 * time.Second
	jobs := func() *dependents.Reconciler[*corev1.ConfigMap] {
		return w.jobs(dependents.Rollout{MaxParallel: intstr.FromInt32(1)})
	}
	_, other := w.pair(jobs)
	away, all := w.of(other)[0], w.everyone()
	away.Freeze(t)
	w.Members = slices.DeleteFunc(slices.Clone(w.Members), func(cp *mctest.ControlPlane) bool { return cp == away })
	w.create(w.Local, w.owner("a", all...))
	changed := make([]*mctest.ControlPlane, 0, len(w.Members))
	for range w.Members {
		cp := w.next("job-1", changed...)
		w.finish(cp, "job-1")
		changed = append(changed, cp)
	}
	away.Thaw(t)
	eventually(t, "the member has the job", func() bool { return w.isThere(away, w.job("job-1")) })
}

// TestAMemberThatIsHandedOverHasNotFailed in a rollout that halts: the replica that takes it connects it first.
func TestAMemberThatIsHandedOverHasNotFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	home, other := w.pair(func() *dependents.Reconciler[*corev1.ConfigMap] {
		return w.jobs(dependents.Rollout{HaltAfter: 1})
	})
	there := w.of(other)[0]
	w.create(w.Local, w.owner("a", w.everyone()...))
	for _, cp := range w.Members {
		eventually(t, "the members are being changed", func() bool { return w.isThere(cp, w.job("job-1")) })
	}
	eventually(t, "nothing is done any more", home.isAtRest)
	other.stop()
	w.hasAll(home)
	w.change(there, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Data["value"] = "by hand" })
	w.says(there, copyOf("a"), "1") // it is looked at again
	eventually(t, "nothing is done any more", home.isAtRest)
	if failed := w.failedIn(); failed != "" {
		t.Errorf("it is noted that it has failed: %s", failed)
	}
}

// TestAMemberOfAnotherReplicaThatHangsHoldsUpNoOther: it holds its share of the workers, however many owners have something to do there.
func TestAMemberOfAnotherReplicaThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	home, other := w.pair(func() *dependents.Reconciler[*corev1.ConfigMap] {
		r := w.spread()
		r.Workers, r.Timeout = 2, time.Hour // one worker at most for a member
		return r
	})
	hangs, healthy := w.of(other)[0], w.of(home)[0]
	opened := make(chan struct{})
	open := sync.OnceFunc(func() { close(opened) })
	defer open()
	var hanging atomic.Int32
	tap := func(req *http.Request) (answered func()) {
		if req.Method == http.MethodPatch && req.URL.Host == hostOf(hangs) {
			hanging.Add(1)
			<-opened
		}
		return func() {}
	}
	home.power.tap.Store(&tap)

	const many = 40 // more than half of the spare goroutines beside two workers
	for n := range many {
		w.create(w.Local, w.owner(fmt.Sprint("many-", n), hangs.Name))
	}
	eventually(t, "all of them wait for the member", func() bool {
		stats := home.GetFleet().Queues(mcreconcile.LocalCluster)[controller+"-placements"]
		return stats.Depth+stats.InFlight >= many
	})
	w.create(w.Local, w.owner("single", healthy.Name))
	w.isCopied(healthy, "single")
	if n := hanging.Load(); n != 1 {
		t.Errorf("%d visits hang, want one", n)
	}
	open()
	eventually(t, "all are served", func() bool { return len(w.list(hangs)) == many })
}

// TestDependentsElsewhereAreWrittenInTheNameOfTheUser, whose rights decide.
func TestDependentsElsewhereAreWrittenInTheNameOfTheUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	impersonated := func() *dependents.Reconciler[*corev1.ConfigMap] {
		r := w.spread()
		r.User = func(mcreconcile.Request) string { return "from-hub" }
		return r
	}
	_, other := w.pair(impersonated)
	target := w.of(other)[0]
	w.create(w.Local, w.owner("a", target.Name))
	w.told(w.Local, "a", dependents.EventForbidden, "from-hub")
	if w.get(target, copyOf("a")) != nil {
		t.Error("a dependent was created without the user's right")
	}
	w.grantCopies(target, "from-hub")
	w.isCopied(target, "a")
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	w.says(target, copyOf("a"), "2")
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	w.isGone(target, copyOf("a"))
}

// TestSlicesHaveWhatCameOfMembersElsewhere: they go on with another replica, and go with their owner.
func TestSlicesHaveWhatCameOfMembersElsewhere(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 2)
	home, other := w.pair(w.sliced)
	w.create(w.Local, w.owner("a", w.everyone()...))
	w.areSliced(w.Members...)
	drifts := w.of(other)[0]
	before := w.mustGet(drifts, copyOf("a")).UID
	w.remove(drifts, copyOf("a"))
	eventually(t, "the slice has the new dependent", func() bool {
		objects := w.inSlices()[drifts.Name].Objects
		return len(objects) == 2 && objects[0].UID != "" && objects[0].UID != before
	})
	home.stop()
	w.hasAll(other)
	stay := w.Members[1:]
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = strings.Join(names(stay), ",") })
	w.areSliced(stay...)
	w.isGone(w.Members[0], copyOf("a"))
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	if left := w.slices(); len(left) > 0 {
		t.Errorf("the owner is gone, and %d slices are not", len(left))
	}
}

// TestAMemberOfAnotherReplicaThatGivesNoAnswerIsTold although nothing is to be done there, and that it does again.
func TestAMemberOfAnotherReplicaThatGivesNoAnswerIsTold(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 2)
	_, other := w.pair(w.sliced)
	w.create(w.Local, w.owner("a", w.everyone()...))
	w.areSliced(w.Members...)
	away := w.of(other)[0]
	before := w.mustGet(away, copyOf("a")).UID
	says := func() string { return w.inSlices()[away.Name].Error }
	away.Stop(t)
	eventually(t, "the slice says that the member cannot be reached", func() bool { return strings.Contains(says(), "Unreachable") })
	away.Restart(t)
	eventually(t, "the slice says nothing against it", func() bool { return says() == "" })
	if now := w.mustGet(away, copyOf("a")).UID; now != before {
		t.Error("the dependent is another one")
	}
}

// TestOwnersAreLetGoWhoeverSweepsTheirDependents: their cluster was taken from those of owners while no replica ran.
func TestOwnersAreLetGoWhoeverSweepsTheirDependents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	from, to := w.Members[0], w.Members[1]
	of := func(members string) *dependents.Reconciler[*corev1.ConfigMap] {
		r := w.fromMembers("")
		r.OwnersIn = mcowner.Clusters{Members: named(members)}
		return r
	}
	home, other := w.pair(func() *dependents.Reconciler[*corev1.ConfigMap] { return of(from.Name) })
	w.create(from, w.owner("a", to.Name))
	before := w.isCopied(to, "a")
	home.stop()
	other.stop()
	w.share(w.runShared("three", of("another")), w.runShared("four", of("another")))
	w.hasNothing(from, "a")
	w.becomes(to, before, dependents.LeaveAsIs)
}

// givesUp runs a pair of replicas with an owner that has given up a member, and left a dependent there. Calling back reports the member again.
func (w *world) givesUp() (home *process, away *mctest.ControlPlane, back func()) {
	w.t.Helper()
	home, other := w.pair(func() *dependents.Reconciler[*corev1.ConfigMap] {
		r := w.spread()
		r.ReleaseAfter, r.StateNamespace = time.Millisecond, w.ns
		dependents.Hasten(r, time.Second)
		return r
	})
	away = w.of(other)[0]
	w.create(w.Local, w.owner("a", w.everyone()...))
	w.isCopied(away, "a")
	for _, p := range []*process{home, other} {
		p.members.Remove(mcreconcile.ClusterName(away.Name))
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
	eventually(w.t, "the member was given up", func() bool {
		owner := w.mustGet(w.Local, "a")
		return owner.Annotations[keysDomain+"/given-up"] != "" && !strings.Contains(placedIn(owner), away.Name)
	})
	return home, away, func() {
		for _, p := range []*process{home, other} {
			if err := p.members.Set(p.member(away)); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// TestWhatWasLeftInAMemberThatWasGivenUpIsFoundWhenItIsBack, whichever replica works on it then.
func TestWhatWasLeftInAMemberThatWasGivenUpIsFoundWhenItIsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	_, away, back := w.givesUp()
	back()
	w.isGone(away, copyOf("a"))
}

// refuseLooks has a program's lists of what it left in a cluster fail until open is called. failed waits until one has.
func (p *process) refuseLooks(in *mctest.ControlPlane) (failed, open func()) {
	p.t.Helper()
	open = p.refuse(http.MethodGet, in, "/configmaps")
	var asked atomic.Bool
	p.power.tap.Store(new(func(req *http.Request) (answered func()) { //nolint:unparam // as taps are
		if req.Method == http.MethodGet && req.URL.Host == hostOf(in) && !req.URL.Query().Has("watch") && strings.HasSuffix(req.URL.Path, "/configmaps") {
			asked.Store(true)
		}
		return nil
	}))
	return func() {
		p.t.Helper()
		eventually(p.t, "it was looked for", asked.Load)
		eventually(p.t, "all is at rest", p.isAtRest)
	}, open
}

// TestWhatWasLeftIsFoundAlthoughTheFirstLookFails, in a member that another replica works on, whose sweep does not tell of it.
func TestWhatWasLeftIsFoundAlthoughTheFirstLookFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	home, away, back := w.givesUp()
	failed, open := home.refuseLooks(away)
	back()
	failed()
	open()
	w.isGone(away, copyOf("a"))
}

// TestWhatAnOwnerLeftIsFoundWhenItIsTakenBack, although its cluster and that of the dependent are different replicas', and the first look may
// fail: it was let go, and has other targets since.
func TestWhatAnOwnerLeftIsFoundWhenItIsTakenBack(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]bool{"AtOnce": false, "AfterAFailure": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			from, to := w.Members[0], w.Members[1]
			home, other := w.pair(func() *dependents.Reconciler[*corev1.ConfigMap] {
				r := w.fromMembers(dependents.LeaveAsIs)
				dependents.Hasten(r, time.Second)
				return r
			})
			relabel := func(name string) {
				for _, p := range []*process{home, other} {
					p.relabel(from, name)
				}
			}
			w.create(from, w.owner("a", to.Name))
			before := w.isCopied(to, "a")
			relabel("another")
			w.hasNothing(from, "a")
			w.becomes(to, before, dependents.LeaveAsIs)
			w.change(from, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
			failed, open := func() {}, func() {}
			if fails {
				if !home.owns(mcreconcile.ClusterName(from.Name)) {
					home = other
				}
				failed, open = home.refuseLooks(to)
			}
			relabel(from.Name)
			failed()
			open()
			w.isGone(to, before.Name)
		})
	}
}

// TestWhatAnOwnersRecordDoesNotHaveIsAsTheOwnerSays, where another replica sees it before that of the owner, such as after a restore: what is desired
// stays, or may be, and so does what is to stay, without the reference.
func TestWhatAnOwnersRecordDoesNotHaveIsAsTheOwnerSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	home, other := w.pair(func() *dependents.Reconciler[*corev1.ConfigMap] {
		r := w.spread()
		r.PolicyOf = func(owner *corev1.ConfigMap) dependents.Policy {
			return dependents.Policy{Keep: owner.Data["keep"] != ""}
		}
		r.Targets = func(_ context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
			if owner.Data["fails"] != "" {
				return nil, errors.New("not now")
			}
			return targetsOf(owner), nil
		}
		r.Sweep = orphans.Sweep{Interval: 100 * time.Millisecond, Listing: 100 * time.Millisecond}
		return r
	})
	one, two := w.of(home)[0], w.of(other)[0]
	saved := map[string]*corev1.ConfigMap{}
	for _, name := range []string{"desired", "unknown", "kept", "deleted"} {
		w.create(w.Local, w.owner(name, one.Name))
		w.isCopied(one, name)
		before := w.mustGet(w.Local, name)
		w.change(w.Local, name, func(cm *corev1.ConfigMap) { cm.Annotations["to"] += "," + two.Name })
		saved[name] = w.isCopied(two, name)
		if name != "desired" {
			w.change(w.Local, name, func(cm *corev1.ConfigMap) { cm.Annotations["to"] = one.Name })
			w.isGone(two, copyOf(name))
		}
		eventually(t, "the replica is at rest", home.isAtRest)
		open := home.refuse(http.MethodPatch, w.Local, "/configmaps/"+name) // nothing is noted
		switch name {
		case "desired":
			w.change(w.Local, name, func(cm *corev1.ConfigMap) {
				before.Annotations["to"] = cm.Annotations["to"]
				cm.Annotations = before.Annotations
			})
			lookedAt(t, other)
			w.unharmed(two, saved[name])
		case "unknown":
			w.change(w.Local, name, func(cm *corev1.ConfigMap) { cm.Data["fails"] = "yes" })
			restored := w.restore(two, saved[name])
			lookedAt(t, other)
			w.unharmed(two, restored)
		case "kept":
			w.change(w.Local, name, func(cm *corev1.ConfigMap) { cm.Data["keep"] = "yes" })
			restored := w.restore(two, saved[name])
			eventually(t, "it is nobody's", func() bool { return w.mustGet(two, restored.Name).Labels[mcowner.FleetLabel] == "" })
			w.unharmed(two, restored)
		case "deleted":
			w.restore(two, saved[name])
			w.isGone(two, copyOf(name))
		}
		open()
	}
}
