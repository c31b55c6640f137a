package dependents_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// everyCluster is refused what is desired, see refusing.
const everyCluster = "every"

// refusing is a reconciler whose copies a cluster refuses, by its name.
func (w *world) refusing(r *dependents.Reconciler[*corev1.ConfigMap], by *atomic.Pointer[string]) *dependents.Reconciler[*corev1.ConfigMap] {
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		if name := *by.Load(); name == everyCluster || name == string(target.Cluster) {
			all[0].(*corev1.ConfigMap).Data = map[string]string{"no key": ""} //nolint:forcetypeassert // spread makes them so
		}
		return all, err
	}
	return r
}

// failedIn returns what the owner notes of failures.
func (w *world) failedIn() string {
	return w.mustGet(w.Local, "a").Annotations[keysDomain+"/failed-in"]
}

// halted returns how many clusters of the owner a wait since others have failed, and one that does not.
func (o *outcomes) halted() (waiting int, failed string) {
	for _, r := range o.of("a") {
		switch {
		case r.Err != nil && strings.Contains(r.Err.Error(), "clusters have failed"):
			waiting++
		case r.Err != nil:
			failed = string(r.Cluster)
		}
	}
	return waiting, failed
}

// isHalted waits until two clusters of the owner a wait since another has failed, and returns that one.
func (w *world) isHalted(p *process, told *outcomes) (failed string) {
	w.t.Helper()
	eventually(w.t, "it is halted", func() bool {
		var waiting int
		waiting, failed = told.halted()
		return waiting == 2 && failed != "" && strings.Contains(w.failedIn(), failed) && p.isAtRest()
	})
	return failed
}

// TestARolloutThatAClusterRefusedIsHaltedAfterARestart: whichever clusters are looked at first. Nothing is written then.
func TestARolloutThatAClusterRefusedIsHaltedAfterARestart(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(*world) *dependents.Reconciler[*corev1.ConfigMap]{"annotations": (*world).spread, "slices": (*world).sliced} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSlicedWorld(t, 3)
			var by atomic.Pointer[string]
			by.Store(new(everyCluster))
			begin := func() (*process, *outcomes) {
				r := w.refusing(of(w), &by)
				r.Rollout = dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1}
				told := listen(r)
				return w.run(r), told
			}
			p, told := begin()
			w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name, w.Members[2].Name))
			bad := w.isHalted(p, told)
			by.Store(&bad)
			for range 2 {
				p.stop()
				before := w.mustGet(w.Local, "a").ResourceVersion
				p, told = begin()
				eventually(t, "it is still halted", func() bool {
					waiting, failed := told.halted()
					return waiting == 2 && failed == bad && p.isAtRest()
				})
				if now := w.mustGet(w.Local, "a").ResourceVersion; now != before {
					t.Errorf("the owner was written, from version %s to %s", before, now)
				}
				for _, cp := range w.Members {
					if w.get(cp, copyOf("a")) != nil {
						t.Errorf("%s is changed, while %s has failed", cp.Name, bad)
					}
				}
			}
			by.Store(new(""))
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
			for _, cp := range w.Members {
				w.isCopied(cp, "a")
			}
			eventually(t, "no failure is noted", func() bool { return w.failedIn() == "" })
		})
	}
}

// TestFailuresCountUntilAllTargetsAreReady: they are noted before the rollout is halted, and over a restart.
func TestFailuresCountUntilAllTargetsAreReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	bad := w.Members[0].Name
	var by atomic.Pointer[string]
	by.Store(&bad)
	begin := func() *process {
		r := w.refusing(w.spread(), &by)
		r.Rollout = dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 2}
		return w.run(r)
	}
	p := begin()
	w.create(w.Local, w.owner("a", bad, w.Members[1].Name, w.Members[2].Name))
	w.isCopied(w.Members[1], "a")
	w.isCopied(w.Members[2], "a")
	eventually(t, "the failure is noted", func() bool { return strings.Contains(w.failedIn(), bad) && p.isAtRest() })
	before := w.failedIn()
	p.stop()
	p = begin()
	eventually(t, "it rests", p.isAtRest)
	if now := w.failedIn(); now != before {
		t.Errorf("the failures are %s, and were %s", now, before)
	}
	by.Store(new(""))
	w.isCopied(w.Members[0], "a")
	eventually(t, "no failure is noted", func() bool { return w.failedIn() == "" })
}

// TestAClusterThatTakesTheNameOfOneThatHasFailedHasNot: the rollout goes on.
func TestAClusterThatTakesTheNameOfOneThatHasFailedHasNot(t *testing.T) {
	t.Parallel()
	w, other := newWorldBeside(t, 2)
	one, two := w.Members[0], w.Members[1]
	w.policyThatQuotes(one, "weak")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "weak"}, StringData: map[string]string{"password": "a"}}
	var both atomic.Bool
	r := w.spread()
	r.Kinds = []client.Object{&corev1.Secret{}}
	r.Rollout = dependents.Rollout{HaltAfter: 1}
	r.Targets = func(_ context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
		targets := targetsOf(owner)
		if !both.Load() {
			targets = targets[:min(1, len(targets))]
		}
		return targets, nil
	}
	r.Desired = func(context.Context, *corev1.ConfigMap, dependents.Target) ([]client.Object, error) {
		return []client.Object{secret.DeepCopy()}, nil
	}
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name, two.Name))
	eventually(t, "the failure is noted", func() bool { return strings.Contains(w.failedIn(), one.Name) })
	both.Store(true)
	p.lead(other)
	eventually(t, "the other cluster of the name is changed", func() bool { return w.isThere(other, secret.DeepCopy()) })
	eventually(t, "the rollout goes on", func() bool { return w.isThere(two, secret.DeepCopy()) })
	eventually(t, "no failure is noted", func() bool { return w.failedIn() == "" })
}

// TestARolloutIsHaltedAfterARestartWhoeverIsReportedFirst: the targets are the members that there are, and the one that has failed comes last,
// maybe while it cannot be found that it is one.
func TestARolloutIsHaltedAfterARestartWhoeverIsReportedFirst(t *testing.T) {
	t.Parallel()
	for name, isFound := range map[string]bool{"and is found at once": true, "and is not found at first": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3)
			f := &failing{world: w}
			f.by.Store(new(everyCluster))
			p, told := f.run(func(*fleettest.Provider) {})
			w.create(w.Local, w.owner("a"))
			bad := w.isHalted(p, told)
			f.by.Store(&bad)
			p.stop()
			p, told = f.run(func(members *fleettest.Provider) {
				for _, cp := range w.Members {
					members.Remove(fleet.ClusterName(cp.Name))
				}
			})
			eventually(t, "the owner is looked at", func() bool { return f.asked.Load() > 0 && p.isAtRest() })
			i := slices.IndexFunc(w.Members, func(cp *mctest.ControlPlane) bool { return cp.Name == bad })
			last, others := w.Members[i], slices.Delete(slices.Clone(w.Members), i, i+1)
			p.report(nil, others...)
			eventually(t, "it is halted without the one that has failed", func() bool {
				waiting, _ := told.halted()
				return waiting == 2 && p.isAtRest()
			})
			f.away.Store(!isFound)
			before := f.asked.Load()
			p.report(nil, last)
			p.is(last, fleet.Ready)
			eventually(t, "it is asked for the targets", func() bool { return f.asked.Load() > before && p.isAtRest() })
			again := map[string]string{"other": "label"} // with which it is looked at again
			p.report(again, others...)
			eventually(t, "the program is at rest", p.isAtRest)
			f.away.Store(false)
			p.report(again, last)
			eventually(t, "it is halted by the one that has failed", func() bool {
				waiting, failed := told.halted()
				return waiting == 2 && failed == bad && p.isAtRest()
			})
			for _, cp := range w.Members {
				if w.get(cp, copyOf("a")) != nil {
					t.Errorf("%s is changed, while %s has failed", cp.Name, bad)
				}
			}
		})
	}
}

// failing is a program that changes all members, one after the other until one has failed.
type failing struct {
	*world
	by    atomic.Pointer[string] // the member that refuses what is desired, see refusing
	asked atomic.Int32           // for the targets, since the program began
	away  atomic.Bool            // is what says which these are
}

// run runs it, with members that are prepared before.
func (f *failing) run(prepare func(*fleettest.Provider)) (*process, *outcomes) {
	f.t.Helper()
	r := f.refusing(f.spread(), &f.by)
	r.Rollout = dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1}
	told := listen(r)
	f.asked.Store(0)
	return f.runWith(func(mgr mcmanager.Manager) error {
		r.Targets = func(context.Context, *corev1.ConfigMap) (all []mcreconcile.ClusterName, _ error) {
			f.asked.Add(1)
			if f.away.Load() {
				return nil, errors.New("no answer")
			}
			for _, m := range mgr.GetFleet().List(nil) {
				all = append(all, m.Name)
			}
			return all, nil
		}
		prepare(mgr.GetProvider().(*fleettest.Provider)) //nolint:forcetypeassert // so are all here
		return r.SetupWithManager(mgr)
	}), told
}

// report lets the provider report members with labels.
func (p *process) report(labels map[string]string, members ...*mctest.ControlPlane) {
	p.t.Helper()
	for _, cp := range members {
		member := p.member(cp)
		member.Labels = labels
		if err := p.members.Set(member); err != nil {
			p.t.Fatal(err)
		}
	}
}

// TestTwoControllersOfAnOwnerHaltEachForItself: what one notes on the owner is no change of it for the other.
func TestTwoControllersOfAnOwnerHaltEachForItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	var by atomic.Pointer[string]
	by.Store(new(everyCluster))
	first := w.refusing(w.spread(), &by)
	first.Rollout = dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1}
	second := w.spread()
	second.Name, second.Rollout = "second", first.Rollout
	second.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		return []client.Object{&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: "second-" + owner.Name}, Data: map[string]string{"no key": ""},
		}}, nil
	}
	of := []*outcomes{listen(first), listen(second)}
	p := w.runWith(func(mgr mcmanager.Manager) error {
		return errors.Join(first.SetupWithManager(mgr), second.SetupWithManager(mgr))
	})
	w.create(w.Local, w.owner("a", w.Members[0].Name, w.Members[1].Name, w.Members[2].Name))
	eventually(t, "both are halted, and nothing goes on", func() bool {
		a, _ := of[0].halted()
		b, _ := of[1].halted()
		return a == 2 && b == 2 && p.isAtRest()
	})
}

// TestAClusterThatWasBegunGoesOnAfterARestartOfAHaltedRollout: the program itself has deleted there what it is to create anew.
func TestAClusterThatWasBegunGoesOnAfterARestartOfAHaltedRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	begun, bad := w.Members[0], w.Members[1]
	var by atomic.Pointer[string]
	by.Store(new(""))
	deleted := make(chan struct{})
	start := func() *process {
		r := w.refusing(w.spread(), &by)
		r.Rollout = dependents.Rollout{MaxParallel: intstr.FromInt32(2), HaltAfter: 1}
		r.Policy.Immutable = dependents.Recreate
		desired := r.Desired
		r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
			if owner.Data["value"] == "2" && string(target.Cluster) == bad.Name && target.RESTMapper != nil {
				<-deleted
			}
			all, err := desired(ctx, owner, target)
			all[0].(*corev1.ConfigMap).Immutable = new(true) //nolint:forcetypeassert // spread makes them so
			return all, err
		}
		return w.run(r)
	}
	p := start()
	w.create(w.Local, w.owner("a", begun.Name, bad.Name))
	w.isCopied(begun, "a")
	w.isCopied(bad, "a")
	w.change(begun, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Finalizers = []string{holding} })
	by.Store(&bad.Name)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "the copy is deleted", func() bool { return w.mustGet(begun, copyOf("a")).DeletionTimestamp != nil })
	close(deleted)
	eventually(t, "the other cluster has failed", func() bool { return strings.Contains(w.failedIn(), bad.Name) && p.isAtRest() })
	p.stop()
	w.letGo(begun, copyOf("a"), holding)
	w.isGone(begun, copyOf("a"))
	before := w.mustGet(w.Local, "a").ResourceVersion
	p = start()
	if cm := w.isCopied(begun, "a"); cm.Data["value"] != "2" {
		t.Errorf("it was created anew with the value %s", cm.Data["value"])
	}
	eventually(t, "no cluster is noted as being changed", func() bool {
		return w.mustGet(w.Local, "a").ResourceVersion != before && !strings.Contains(w.failedIn(), begun.Name) && p.isAtRest()
	})
	if !strings.Contains(w.failedIn(), bad.Name) {
		t.Errorf("the other one has failed, and this is noted: %s", w.failedIn())
	}
}
