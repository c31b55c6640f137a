package dependents_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// orphaning returns a reconciler that gives up members at once, and often looks for orphans.
func (w *world) orphaning() *dependents.Reconciler[*corev1.ConfigMap] {
	r := w.spread()
	r.StateNamespace = w.ns
	r.Sweep.Interval, r.Sweep.Listing = 50*time.Millisecond, 50*time.Millisecond
	return r
}

// removeAsOrphan deletes an owner with the policy Orphan, as the garbage collector lets it.
func (w *world) removeAsOrphan(name string) {
	w.t.Helper()
	w.remove(w.Local, name, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	w.letGo(w.Local, name, metav1.FinalizerOrphanDependents)
}

// isReleased waits until a dependent has no reference any more, and fails the test if it is not the one that it was.
func (w *world) isReleased(cp *mctest.ControlPlane, before *corev1.ConfigMap) {
	w.t.Helper()
	eventually(w.t, before.Name+" is nobody's, or gone", func() bool {
		now := w.get(cp, before.Name)
		return now == nil || len(now.Labels)+len(now.Annotations) == 0
	})
	w.unharmed(cp, before)
}

// TestWhatWasOrphanedWhileItsClusterWasAwayStays when that is back, however it was given up.
func TestWhatWasOrphanedWhileItsClusterWasAwayStays(t *testing.T) {
	t.Parallel()
	for name, giveUp := range map[string]struct {
		setUp func(*dependents.Reconciler[*corev1.ConfigMap])
		leave func(*world, *process) // with the owner there
		after func(*world)           // the owner was deleted
	}{
		"ReleaseAfter": {
			setUp: func(r *dependents.Reconciler[*corev1.ConfigMap]) { r.ReleaseAfter = time.Millisecond },
			leave: func(_ *world, p *process) { <-p.members.Remove("member-1") },
		},
		"ReleaseAfter before the deletion": {
			setUp: func(r *dependents.Reconciler[*corev1.ConfigMap]) { r.ReleaseAfter, r.Targets = time.Millisecond, nil },
			leave: func(w *world, p *process) {
				<-p.members.Remove("member-1")
				eventually(w.t, "the owner has no clusters", func() bool { return placedIn(w.mustGet(w.Local, "a")) == "" })
			},
		},
		"Annotation": {
			leave: func(_ *world, p *process) { <-p.members.Remove("member-1") },
			after: func(w *world) {
				w.told(w.Local, "a", dependents.EventClusterNotReady, "member-1")
				w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations[dependents.GiveUpAnnotation] = "other, member-1" })
			},
		},
		"Finalizers": {
			leave: func(_ *world, p *process) { <-p.members.Remove("member-1") },
			after: func(w *world) {
				w.told(w.Local, "a", dependents.EventClusterNotReady, "member-1")
				w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
			},
		},
		"OnMemberLeaving": {
			leave: func(w *world, p *process) { p.leave(w.Members[0]) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			r := w.orphaning()
			if giveUp.setUp != nil {
				giveUp.setUp(r)
			}
			p := w.run(r)
			w.create(w.Local, w.owner("a", one.Name))
			before := w.isCopied(one, "a")
			giveUp.leave(w, p)
			w.removeAsOrphan("a")
			if giveUp.after != nil {
				giveUp.after(w)
			}
			w.isGone(w.Local, "a")
			if err := p.members.Set(p.member(one)); err != nil {
				t.Fatal(err)
			}
			w.isReleased(one, before)
		})
	}
}

// TestWhatWasOrphanedStaysIfItsReferenceIsBack: its member is restored from a backup, or somebody applies what was exported before.
func TestWhatWasOrphanedStaysIfItsReferenceIsBack(t *testing.T) {
	t.Parallel()
	for name, bringBack := range map[string]func(w *world, restore func(), before *corev1.ConfigMap){
		"by a backup": func(_ *world, restore func(), _ *corev1.ConfigMap) { restore() },
		"by hand": func(w *world, _ func(), before *corev1.ConfigMap) {
			w.change(w.Members[0], before.Name, func(cm *corev1.ConfigMap) { cm.Annotations, cm.Labels = before.Annotations, before.Labels })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorldIn(t, mctest.Start(t, mctest.Options{Clusters: 1}))
			one := w.Members[0]
			p := w.run(w.orphaning())
			w.create(w.Local, w.owner("a", one.Name))
			before := w.isCopied(one, "a")
			eventually(t, "the program is at rest", p.isAtRest)
			restore := one.Backup(t)
			w.outlive(one)
			w.removeAsOrphan("a")
			w.isGone(w.Local, "a")
			w.isReleased(one, before)
			bringBack(w, restore, before)
			eventually(t, "the collector has seen it, and takes the reference alone", func() bool {
				now := &corev1.ConfigMap{}
				err := one.Client().Get(t.Context(), client.ObjectKeyFromObject(before), now)
				if apierrors.IsNotFound(err) {
					t.Fatal("it was deleted")
				}
				return err == nil && now.UID == before.UID && len(now.Annotations) == 0
			})
		})
	}
}

// TestWhatIsToStaySinceItsClusterWasAwayStays: its policy is to keep it, which could not be written there. Its owner goes with the finalizer
// or without.
func TestWhatIsToStaySinceItsClusterWasAwayStays(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		leave func(*world, *process)
		ends  func(*world)
	}{
		"Given up": {
			leave: func(w *world, p *process) { p.leave(w.Members[0]) },
			ends:  func(w *world) { w.remove(w.Local, "a") },
		},
		"Finalizers": {
			leave: func(_ *world, p *process) { <-p.members.Remove("member-1") },
			ends: func(w *world) {
				w.remove(w.Local, "a")
				w.told(w.Local, "a", dependents.EventClusterNotReady, "member-1")
				w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			r := w.orphaning()
			r.PolicyOf = func(owner *corev1.ConfigMap) dependents.Policy {
				return dependents.Policy{Keep: owner.Data["keep"] != ""}
			}
			p := w.run(r)
			w.create(w.Local, w.owner("a", one.Name))
			before := w.isCopied(one, "a")
			tc.leave(w, p)
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["keep"] = "yes" })
			tc.ends(w)
			w.isGone(w.Local, "a")
			if err := p.members.Set(p.member(one)); err != nil {
				t.Fatal(err)
			}
			w.isReleased(one, before)
		})
	}
}

// TestAnOwnerThatIsNotPlannedKeepsWhatItSaysIsToStay: somebody takes the finalizer while its targets cannot be found. There is the plan
// from before it said so, or none.
func TestAnOwnerThatIsNotPlannedKeepsWhatItSaysIsToStay(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]bool{"A plan before": false, "No plan": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			r := w.orphaning()
			targets, fails := r.Targets, &atomic.Bool{}
			r.Targets = func(ctx context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
				if fails.Load() {
					return nil, errors.New("the test knows no targets of " + owner.Annotations[dependents.DeletionPolicyAnnotation])
				}
				return targets(ctx, owner)
			}
			p := w.run(r)
			w.create(w.Local, w.owner("a", one.Name))
			before := w.isCopied(one, "a")
			fails.Store(true)
			if restarts {
				p.stop()
			}
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) {
				cm.Annotations[dependents.DeletionPolicyAnnotation], cm.Finalizers = "Orphan", nil
			})
			if restarts {
				w.run(r)
			}
			w.told(w.Local, "a", dependents.EventFailed, "no targets of Orphan")
			w.remove(w.Local, "a")
			w.isGone(w.Local, "a")
			w.isReleased(one, before)
		})
	}
}

// TestAnOwnerThatGoesBeforeItIsReadKeepsWhatIsToStay: it is not known which cluster it is in, so nothing is done for it, and somebody takes
// its finalizer.
func TestAnOwnerThatGoesBeforeItIsReadKeepsWhatIsToStay(t *testing.T) {
	t.Parallel()
	for deleted, said := range map[string]string{"once": "", "in the foreground before": "Foreground"} {
		t.Run(deleted, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one, name := w.Members[0], "unread"
			p := w.run(w.orphaning())
			w.create(w.Local, w.owner(name, one.Name))
			before := w.isCopied(one, name)
			p.stop()
			if said != "" {
				w.change(w.Local, name, func(cm *corev1.ConfigMap) { cm.Annotations[dependents.DeletionPolicyAnnotation] = said })
			}
			rules := []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}},
				{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
				{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"}},
			}
			var seen atomic.Bool
			see := func(b *mcbuilder.Builder) {
				b.WithEventFilter(predicate.NewPredicateFuncs(func(obj client.Object) bool {
					seen.Store(seen.Load() || obj.GetName() == name)
					return true
				}))
			}
			w.runAs(w.Local.AddUser(t, "no-identity", rules...), func(mgr mcmanager.Manager) error { return w.orphaning().SetupWithManager(mgr, see) })
			eventually(t, "what happens to it from now on is seen", seen.Load)
			w.removeAsOrphan(name)
			w.change(w.Local, name, func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
			w.isGone(w.Local, name)
			w.Local.AddUser(t, "no-identity", slices.Concat(rules, []rbacv1.PolicyRule{{
				APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"},
			}})...)
			w.isReleased(one, before)
		})
	}
}

// TestAnOwnerIsFreeOnceItIsSaidThatNothingIsLeft in the clusters that were given up.
func TestAnOwnerIsFreeOnceItIsSaidThatNothingIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	r := w.orphaning()
	r.ReleaseAfter, r.Targets = time.Millisecond, nil
	p := w.run(r)
	w.create(w.Local, w.owner("a"))
	w.isCopied(w.Members[0], "a")
	<-p.members.Remove("member-1")
	eventually(t, "the owner has no clusters", func() bool { return placedIn(w.mustGet(w.Local, "a")) == "" })
	if owner := w.mustGet(w.Local, "a"); !holds(owner) || owner.Annotations[keysDomain+"/given-up"] == "" {
		t.Fatalf("the owner is %v", owner)
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { delete(cm.Annotations, keysDomain+"/given-up") })
	eventually(t, "the owner has nothing of the controller", func() bool {
		owner := w.mustGet(w.Local, "a")
		return !holds(owner) && len(owner.Annotations) == 1 // its own
	})
}

// TestWhatWasLeftInAMemberIsCollectedWhenItIsBack, also if its owner went meanwhile, and it was away for less time than there is
// between two lists.
func TestWhatWasLeftInAMemberIsCollectedWhenItIsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.ReleaseAfter, r.StateNamespace, r.Sweep.Interval = time.Millisecond, w.ns, 5*time.Second
	w.Members = nil
	p := w.run(r)
	var lists atomic.Int32 // by the collector
	p.power.tap.Store(new(func(req *http.Request) (answered func()) {
		if req.URL.Query().Get("labelSelector") == mcowner.FleetLabel+"="+fleetName && req.URL.Query().Has("limit") {
			return func() { lists.Add(1) }
		}
		return nil
	}))
	back := func() {
		t.Helper()
		if err := p.members.Set(p.member(one)); err != nil {
			t.Fatal(err)
		}
	}
	back()
	w.create(w.Local, w.owner("a", one.Name))
	w.isCopied(one, "a")
	eventually(t, "what is there was listed", func() bool { return lists.Load() > 0 })
	<-p.members.Remove("member-1")
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	back()
	w.isGone(one, copyOf("a"))
}

// leave lets a member leave in good order, and returns when it has.
func (p *process) leave(cp *mctest.ControlPlane) {
	p.t.Helper()
	left, err := p.members.Leave(p.member(cp))
	if err != nil {
		p.t.Fatal(err)
	}
	isClosed := func() bool {
		select {
		case <-left:
			return true
		default:
			return false
		}
	}
	eventually(p.t, cp.Name+" has left", isClosed) // far less than fleet.Options.LeaveTimeout
	if problems := p.GetFleet().Problems(); slices.ContainsFunc(problems, func(q fleet.Problem) bool { return q.Reason == fleet.ReasonLeftUndone }) {
		p.t.Errorf("%s has left undone: %v", cp.Name, problems)
	}
	<-p.members.Remove(fleet.ClusterName(cp.Name))
}

// TestWhatWasOrphanedIsNotTakenByAnOwnerOfTheSameName, although that takes the place of the one before otherwise.
func TestWhatWasOrphanedIsNotTakenByAnOwnerOfTheSameName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.orphaning()
	r.ReleaseAfter = time.Millisecond
	r.Sweep.Interval, r.Sweep.Listing = time.Hour, time.Hour // the reconciler meets it first
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	before := w.isCopied(one, "a")
	<-p.members.Remove("member-1")
	w.removeAsOrphan("a")
	w.isGone(w.Local, "a")
	w.create(w.Local, w.owner("a", one.Name))
	if err := p.members.Set(p.member(one)); err != nil {
		t.Fatal(err)
	}
	w.isReleased(one, before)
	w.told(w.Local, "a", dependents.EventConflict, "no reference")
	w.unharmed(one, before)
}

// TestAnOwnerWaitsUntilItIsNotedThatItsDependentsStay: without the right, and where it is not known in which namespace.
func TestAnOwnerWaitsUntilItIsNotedThatItsDependentsStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	owners := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch", "patch"}}
	rules := []rbacv1.PolicyRule{
		owners,
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"}},
	}
	for name, c := range map[string]struct {
		state, reason, says string
		mend                func(*dependents.Reconciler[*corev1.ConfigMap])
	}{
		"right": {w.ns, dependents.EventForbidden, `spread.test.fleet-runtime.dev`, func(*dependents.Reconciler[*corev1.ConfigMap]) {
			all := owners.DeepCopy()
			all.Verbs = append(all.Verbs, "get", "create")
			w.Local.AddUser(t, "no-state", append(rules, *all)...)
		}},
		"namespace": {"", dependents.EventFailed, "set Reconciler.StateNamespace", func(r *dependents.Reconciler[*corev1.ConfigMap]) { r.StateNamespace = w.ns }},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.orphaning()
			r.ReleaseAfter, r.StateNamespace = time.Millisecond, c.state
			run := func() *process {
				if name == "right" {
					return w.runAs(w.Local.AddUser(t, "no-state", rules...), func(mgr mcmanager.Manager) error { return r.SetupWithManager(mgr) })
				}
				return w.run(r)
			}
			p := run()
			w.create(w.Local, w.owner("a", one.Name))
			before := w.isCopied(one, "a")
			<-p.members.Remove("member-1")
			w.removeAsOrphan("a")
			w.told(w.Local, "a", c.reason, c.says)
			if owner := w.get(w.Local, "a"); !holds(owner) || owner.Annotations[dependents.DeletionPolicyAnnotation] != "Orphan" {
				t.Fatalf("the owner did not wait, or forgets how it is deleted: %v", owner)
			}
			c.mend(r)
			if name == "namespace" {
				p.stop()
				members := w.Members
				w.Members = nil
				p = w.run(r)
				w.Members = members
			}
			w.isGone(w.Local, "a")
			if err := p.members.Set(p.member(one)); err != nil {
				t.Fatal(err)
			}
			w.isReleased(one, before)
			w.remove(one, before.Name)
			p.stop()
		})
	}
}
