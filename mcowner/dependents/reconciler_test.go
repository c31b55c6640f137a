package dependents_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

func TestDependentsAreAsDesired(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	w.run(w.spread())
	w.create(w.Local, w.owner("a", one.Name, two.Name))

	t.Run("Created", func(t *testing.T) {
		cm := w.isCopied(one, "a")
		w.isCopied(two, "a")
		controller, ok := mcowner.ControllerOf(cm, mcowner.ByName("member-1"))
		if !ok || controller.UID != w.mustGet(w.Local, "a").UID || cm.Data["cluster"] != "member-1" {
			t.Errorf("the copy is %v, whose controller is %v", cm.Data, controller)
		}
		w.told(w.Local, "a", dependents.EventCreated, copyOf("a"))
	})
	t.Run("Changed", func(t *testing.T) {
		w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
		eventually(t, "the copy follows", func() bool { return w.get(one, copyOf("a")).Data["value"] == "2" })
		w.told(w.Local, "a", dependents.EventUpdated, copyOf("a"))
	})
	t.Run("ChangedBack", func(t *testing.T) {
		w.change(two, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Data["value"] = "7" })
		eventually(t, "the copy is as it was", func() bool { return w.get(two, copyOf("a")).Data["value"] == "2" })
	})
	t.Run("CreatedAnew", func(t *testing.T) {
		before := w.mustGet(one, copyOf("a")).UID
		w.remove(one, copyOf("a"))
		eventually(t, "there is another copy", func() bool { cm := w.get(one, copyOf("a")); return cm != nil && cm.UID != before })
	})
	t.Run("Retargeted", func(*testing.T) {
		w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = two.Name })
		w.isGone(one, copyOf("a"))
		w.isCopied(two, "a")
		w.told(w.Local, "a", dependents.EventDeleted, "member-1")
	})
	t.Run("NoTargets", func(t *testing.T) {
		w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
		w.isGone(two, copyOf("a"))
		eventually(t, "nothing is left of the controller on the owner", func() bool {
			owner := w.mustGet(w.Local, "a")
			return len(owner.Finalizers) == 0 && len(owner.Annotations) == 1
		})
	})
}

func TestFieldsThatAreNoLongerDesiredGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		return []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: copyOf(owner.Name)}, Data: owner.Data}}, nil
	}
	w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	w.isCopied(one, "a")
	w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Data["of"] = "somebody else" })
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"only": "this"} })
	want := map[string]string{"only": "this", "of": "somebody else"}
	var got map[string]string
	eventually(t, "the copy has the fields of the owner, and those of others", func() bool {
		got = w.get(one, copyOf("a")).Data
		return cmp.Equal(want, got)
	})
}

// TestNothingIsWrittenWhenNothingChanges: neither when owners are reconciled, nor after a restart.
func TestNothingIsWrittenWhenNothingChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	var reconciles atomic.Int32
	start := func() *process {
		r := w.spread()
		targets := r.Targets
		r.Targets = func(ctx context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
			reconciles.Add(1)
			return targets(ctx, owner)
		}
		return w.run(r)
	}
	p := start()
	w.create(w.Local, w.owner("a", "member-1", "member-2"))
	versions := func() string {
		all := w.mustGet(w.Local, "a").ResourceVersion
		for _, cp := range w.Members {
			all += " " + w.isCopied(cp, "a").ResourceVersion
		}
		return all
	}
	versions()
	// quiet waits until the owner was reconciled n times more.
	quiet := func(n int32) {
		before := reconciles.Load()
		for i := range n {
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"touched": fmt.Sprint(before + i)} })
			eventually(t, "the owner is reconciled", func() bool { return reconciles.Load() > before+i })
		}
	}
	quiet(3)
	copies := func() string { _, rest, _ := strings.Cut(versions(), " "); return rest }
	settled, writes := copies(), p.power.writes.Load()
	quiet(5)
	if got := copies(); got != settled {
		t.Errorf("the copies have the resource versions %s, before %s", got, settled)
	}
	if n := p.power.writes.Load() - writes; n > 0 {
		t.Errorf("%d writes while nothing was to be written", n)
	}
	all := versions()
	p.stop()
	start()
	quiet(2)
	if _, before, _ := strings.Cut(all, " "); copies() != before {
		t.Errorf("after a restart the copies have the resource versions %s, before %s", copies(), before)
	}
}

func TestForeignObjectsAreLeftAlone(t *testing.T) {
	t.Parallel()
	cases := map[string]func(cm *corev1.ConfigMap){
		"WithoutReference": func(*corev1.ConfigMap) {},
		"NativelyControlled": func(cm *corev1.ConfigMap) {
			cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u", Controller: new(true)}}
		},
		"OfAnotherOwner": func(cm *corev1.ConfigMap) {
			other := mcowner.Reference{Fleet: fleetName, Manager: controller, Cluster: "member-9", APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "u"}
			_ = mcowner.SetControllerReference(other, cm, mcowner.ByName("member-1"))
		},
		"OfAnotherFleet": func(cm *corev1.ConfigMap) {
			other := mcowner.Reference{Fleet: "other", APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "u"}
			_ = mcowner.SetControllerReference(other, cm, mcowner.ByName("member-1"))
		},
		"Unreadable": func(cm *corev1.ConfigMap) {
			cm.Annotations = map[string]string{mcowner.KeyPrefix + "mine": "{"}
		},
	}
	w := newWorld(t, 1)
	one := w.Members[0]
	w.run(w.spread())
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			owner := strings.ToLower(name)
			foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: copyOf(owner)}, Data: map[string]string{"keep": "me"}}
			prepare(foreign)
			w.create(one, foreign)
			w.create(w.Local, w.owner(owner, one.Name))
			w.told(w.Local, owner, dependents.EventConflict, copyOf(owner))
			w.remove(w.Local, owner)
			w.isGone(w.Local, owner)
			if diff := cmp.Diff(foreign, w.get(one, copyOf(owner))); diff != "" {
				t.Errorf("the foreign object has changed (-before, +after):\n%s", diff)
			}
		})
	}
	t.Run("GoneAtLast", func(t *testing.T) {
		w.create(one, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: copyOf("z")}})
		w.create(w.Local, w.owner("z", one.Name))
		w.told(w.Local, "z", dependents.EventConflict, copyOf("z"))
		w.remove(one, copyOf("z"))
		eventually(t, "the dependent has its place", func() bool {
			cm := w.get(one, copyOf("z"))
			if cm == nil {
				return false
			}
			_, ok := mcowner.ControllerOf(cm, mcowner.ByName("member-1"))
			return ok
		})
	})
}

// TestTheObjectsOfAdmiraltyAreTakenOver: of multicluster-controller, if they say that they are this very owner's.
func TestTheObjectsOfAdmiraltyAreTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	owner := w.owner("a", one.Name)
	w.create(w.Local, owner)
	w.create(one, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: copyOf("a"), Annotations: map[string]string{
		"multicluster.admiralty.io/controller-reference": fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":%q,"controller":true,"blockOwnerDeletion":true,"clusterName":"","namespace":%q}`, owner.UID, w.ns),
	}}})
	before := w.mustGet(one, copyOf("a")).UID
	w.run(w.spread())
	eventually(t, "the object is as desired", func() bool { return w.mustGet(one, copyOf("a")).Data["value"] == "1" })
	if w.mustGet(one, copyOf("a")).UID != before {
		t.Error("the object was replaced")
	}
	w.remove(w.Local, "a")
	w.isGone(one, copyOf("a"))
}

func TestAnOwnerThatWasCreatedAnewHasDependentsOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	p := w.run(w.spread())
	w.create(w.Local, w.owner("a", one.Name))
	before := w.isCopied(one, "a")
	p.stop()
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	w.remove(w.Local, "a")
	w.create(w.Local, w.owner("a", one.Name))
	w.run(w.spread())
	eventually(t, "the dependent is another one, and of the new owner", func() bool {
		cm := w.get(one, copyOf("a"))
		if cm == nil || cm.UID == before.UID {
			return false
		}
		controller, ok := mcowner.ControllerOf(cm, mcowner.ByName("member-1"))
		return ok && controller.UID == w.mustGet(w.Local, "a").UID
	})
}

// TestTheFinalizerComesFirst: with the cluster down the owner has the finalizer, and is created when the cluster is up.
func TestTheFinalizerComesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	one.Stop(t)
	p := w.run(w.spread())
	w.create(w.Local, w.owner("a", one.Name, two.Name, "nobody"))
	w.isCopied(two, "a")
	w.told(w.Local, "a", dependents.EventClusterNotReady, "member-1")
	w.told(w.Local, "a", dependents.EventClusterNotReady, "nobody")
	if len(w.mustGet(w.Local, "a").Finalizers) == 0 {
		t.Error("the owner has no finalizer")
	}
	one.Restart(t)
	p.is(one, fleet.Ready)
	w.isCopied(one, "a")
	// A cluster that never was a member does not hold up the deletion.
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
}

// TestAFrozenClusterDoesNotHoldUpOthers although it is taken for ready at first.
func TestAFrozenClusterDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.spread()
	r.Timeout = 2 * time.Second
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name, two.Name))
	w.isCopied(one, "a")
	w.isCopied(two, "a")
	one.Freeze(t)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "the other cluster is up to date", func() bool { return w.mustGet(two, copyOf("a")).Data["value"] == "2" })
	p.is(one, fleet.Unreachable)
	one.Thaw(t)
	eventually(t, "the cluster that was frozen is too", func() bool { return w.mustGet(one, copyOf("a")).Data["value"] == "2" })
}

func TestAMemberThatJoinsGetsDependents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.spread()
	r.Targets, r.DependentsIn = nil, mcowner.Clusters{Members: everywhere}
	p := w.run(r)
	w.create(w.Local, w.owner("a"))
	w.isCopied(one, "a")
	w.isCopied(two, "a")
	<-p.members.Remove("member-2")
	w.remove(two, copyOf("a"))
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "the member that is left follows", func() bool { return w.mustGet(one, copyOf("a")).Data["value"] == "2" })
	if err := p.members.Set(p.member(two)); err != nil {
		t.Fatal(err)
	}
	if cm := w.isCopied(two, "a"); cm.Data["value"] != "2" {
		t.Errorf("the member that is back has %v", cm.Data)
	}
}

// TestAMemberThatIsBackWhileTargetsAreFoundKeepsItsDependents: it is missing among the targets, and can be used when the
// dependents are to be removed that are not among them.
func TestAMemberThatIsBackWhileTargetsAreFoundKeepsItsDependents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	var f *fleet.Fleet
	var p *process // before the program runs, which asks for the targets of whatever ConfigMaps there are
	var back atomic.Bool
	r := w.spread()
	r.Targets = func(ctx context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
		var targets []mcreconcile.ClusterName
		if _, known := f.Status("member-1"); known {
			targets = append(targets, "member-1")
		}
		if owner.Data["value"] == "2" && len(targets) == 0 {
			if err := p.members.Set(fleet.Member{Name: "member-1", Config: one.Config()}); err != nil {
				return nil, err
			}
			if !becomesReady(ctx, f, "member-1") {
				return nil, ctx.Err()
			}
			back.Store(true)
		}
		return targets, nil
	}
	p = w.runWith(func(mgr mcmanager.Manager) error {
		f = mgr.GetFleet()
		return r.SetupWithManager(mgr)
	})
	w.create(w.Local, w.owner("a", one.Name))
	before := w.isCopied(one, "a")
	<-p.members.Remove("member-1")
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "the member is back", back.Load)
	eventually(t, "the copy follows", func() bool {
		cm := w.get(one, copyOf("a"))
		return cm != nil && cm.Data["value"] == "2"
	})
	if after := w.mustGet(one, copyOf("a")); after.UID != before.UID {
		t.Error("the copy was deleted, and created anew")
	}
}

// becomesReady waits until a member is Ready. It is for goroutines that must not fail a test.
func becomesReady(ctx context.Context, f *fleet.Fleet, name fleet.ClusterName) bool {
	for range f.Changes(ctx) {
		if status, _ := f.Status(name); status.State == fleet.Ready {
			return true
		}
	}
	return false
}

// TestWhatWasDeletedBetweenTwoEngagementsIsCreatedAnew: no event tells of it, be it that the member was away, or that it was
// connected anew while its watches were silent.
func TestWhatWasDeletedBetweenTwoEngagementsIsCreatedAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	p := w.run(w.spread())
	w.create(w.Local, w.owner("a", one.Name))
	t.Run("Away", func(t *testing.T) {
		w.isCopied(one, "a")
		<-p.members.Remove("member-1")
		w.remove(one, copyOf("a"))
		if err := p.members.Set(p.member(one)); err != nil {
			t.Fatal(err)
		}
		w.isCopied(one, "a")
	})
	t.Run("ConnectedAnew", func(t *testing.T) {
		ear := newEar(t)
		deaf := fleet.Member{Name: "member-1", Config: ear.listen(one.Config())}
		deaf.Config.UserAgent = "deaf" // a change of which has the member connected anew
		if err := p.members.Set(deaf); err != nil {
			t.Fatal(err)
		}
		connected := func(cfg *rest.Config) func() bool {
			return func() bool {
				engagement, err := p.GetFleet().Engagement("member-1")
				return err == nil && engagement.Cluster().GetConfig().UserAgent == cfg.UserAgent
			}
		}
		eventually(t, "the member is connected", connected(deaf.Config))
		w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
		eventually(t, "the copy follows", func() bool { return w.mustGet(one, copyOf("a")).Data["value"] == "2" })
		ear.stop()
		w.remove(one, copyOf("a"))
		hearing := one.Config()
		hearing.UserAgent = "hearing"
		if err := p.members.Set(fleet.Member{Name: "member-1", Config: hearing}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the member is connected anew", connected(hearing))
		w.isCopied(one, "a")
	})
}

// TestAnOwnerThatWentBetweenTwoEngagementsIsForgotten: no event of its cluster's watches tells of it.
func TestAnOwnerThatWentBetweenTwoEngagementsIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	p, before := w.runFromMember(w.fromMembers(dependents.LeaveAsIs))
	connect := func(cfg *rest.Config, agent string) {
		m := p.member(one)
		m.Config, m.Revision = cfg, agent // a change of which has the member connected anew
		m.Config.UserAgent = agent
		if err := p.members.Set(m); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the member is connected as "+agent, func() bool {
			engagement, err := p.GetFleet().Engagement("member-1")
			return err == nil && engagement.Cluster().GetConfig().UserAgent == agent
		})
	}
	ear := newEar(t)
	connect(ear.listen(one.Config()), "deaf")
	ear.stop()
	w.change(one, "a", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	w.remove(one, "a")
	connect(one.Config(), "hearing")
	w.isGone(two, before.Name)
}

// TestWhatTheCacheDoesNotKnowYet: objects that were taken from the owner a moment ago are neither changed nor deleted.
func TestWhatTheCacheDoesNotKnowYet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	ear := newEar(t)
	r := w.spread()
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		if owner.Data["value"] == "none" {
			return nil, nil
		}
		return desired(ctx, owner, target)
	}
	p := w.runBehind(ear, one, r)
	before := map[string]*corev1.ConfigMap{}
	for _, name := range []string{"changed", "deleted"} {
		w.create(w.Local, w.owner(name, one.Name))
		w.isCopied(one, name)
	}
	eventually(t, "all is at rest, and the cache knows of it", func() bool {
		return p.isAtRest() && p.knows(one, w.mustGet(one, copyOf("changed"))) && p.knows(one, w.mustGet(one, copyOf("deleted")))
	})
	ear.stop()
	for _, name := range []string{"changed", "deleted"} {
		w.change(one, copyOf(name), func(cm *corev1.ConfigMap) { cm.Annotations, cm.Labels = nil, nil })
		before[name] = w.mustGet(one, copyOf(name))
	}
	w.change(w.Local, "changed", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	w.change(w.Local, "deleted", func(cm *corev1.ConfigMap) { cm.Data["value"] = "none" })
	w.told(w.Local, "changed", dependents.EventConflict, copyOf("changed"))
	eventually(t, "deleting was tried", func() bool { return p.power.deletions.Load() > 0 })
	for name, cm := range before {
		if diff := cmp.Diff(cm, w.get(one, copyOf(name))); diff != "" {
			t.Errorf("%s has changed (-before, +after):\n%s", name, diff)
		}
	}
}

// TestWhatOthersCreateAtThatVeryMomentIsLeftAlone: creating must not change what is there, be it there for an instant.
func TestWhatOthersCreateAtThatVeryMomentIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: copyOf("a")}, Data: map[string]string{"theirs": "yes"}}
	p := w.run(w.spread())
	var first sync.Once
	tap := func(req *http.Request) (answered func()) { //nolint:unparam // there is nothing to do with the answer
		if req.Method != http.MethodGet && req.URL.Host == hostOf(one) && strings.Contains(req.URL.Path, "/configmaps") {
			first.Do(func() {
				if err := one.Client().Create(t.Context(), theirs); err != nil {
					t.Error(err)
				}
			})
		}
		return nil
	}
	p.power.tap.Store(&tap)
	w.create(w.Local, w.owner("a", one.Name))
	w.told(w.Local, "a", dependents.EventConflict, copyOf("a"))
	if now := w.mustGet(one, copyOf("a")); theirs.ResourceVersion == "" || now.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("it is %v now, was %v", now, theirs)
	}
}

// TestWhatChangedWhileNothingRan is found by what the owner's metadata says, and by what is there.
func TestWhatChangedWhileNothingRan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	p := w.run(w.spread())
	for _, name := range []string{"retargeted", "unreadable", "deleted", "orphaned", "drifted"} {
		w.create(w.Local, w.owner(name, one.Name))
		w.isCopied(one, name)
	}
	p.kill()

	w.change(w.Local, "retargeted", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = two.Name })
	w.change(w.Local, "unreadable", func(cm *corev1.ConfigMap) {
		for key := range cm.Annotations {
			cm.Annotations[key] = "nonsense"
		}
		cm.Annotations["to"] = two.Name
	})
	w.remove(w.Local, "deleted")
	w.change(w.Local, "orphaned", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	w.remove(w.Local, "orphaned")
	w.change(one, copyOf("drifted"), func(cm *corev1.ConfigMap) { cm.Data["value"] = "7" })

	w.run(w.spread())
	for _, name := range []string{"retargeted", "unreadable", "deleted", "orphaned"} {
		w.isGone(one, copyOf(name))
	}
	w.isCopied(two, "retargeted")
	w.isCopied(two, "unreadable")
	w.isGone(w.Local, "deleted")
	eventually(t, "drift is reverted", func() bool { return w.mustGet(one, copyOf("drifted")).Data["value"] == "1" })
}

func TestSeveralKindsAndWhatIsNoLongerDesired(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Kinds = []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}}
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		var desired []client.Object
		for name := range strings.FieldsSeq(owner.Data["value"]) {
			obj := metav1.ObjectMeta{Namespace: w.ns, Name: name}
			switch {
			case strings.HasPrefix(name, "secret"):
				desired = append(desired, &corev1.Secret{ObjectMeta: obj})
			case name == "pod":
				desired = append(desired, &corev1.Pod{ObjectMeta: obj})
			case name == "error":
				return nil, errors.New("no idea")
			case name == "panic":
				panic("no idea")
			case name == "once" && len(target.Dependents) == 0:
				// It was deleted, and is not wanted back.
			default:
				desired = append(desired, &corev1.ConfigMap{ObjectMeta: obj})
			}
		}
		return desired, nil
	}
	w.run(r)
	has := func(kind client.Object, name string) func() bool {
		return func() bool {
			return one.Client().Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, kind) == nil
		}
	}
	hasNot := func(kind client.Object, name string) func() bool { return func() bool { return !has(kind, name)() } }
	want := func(value string) { w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = value }) }
	owner := w.owner("a", one.Name)
	owner.Data["value"] = "one secret-one"
	w.create(w.Local, owner)
	eventually(t, "the ConfigMap is there", has(&corev1.ConfigMap{}, "one"))
	eventually(t, "the Secret is there", has(&corev1.Secret{}, "secret-one"))
	want("one two")
	eventually(t, "the other ConfigMap is there", has(&corev1.ConfigMap{}, "two"))
	eventually(t, "the Secret is gone", hasNot(&corev1.Secret{}, "secret-one"))
	want("two three two")
	w.told(w.Local, "a", dependents.EventFailed, "desired twice")
	eventually(t, "the others are as desired", has(&corev1.ConfigMap{}, "three"))
	want("four pod")
	w.told(w.Local, "a", dependents.EventFailed, "not one of the controller's Kinds")
	eventually(t, "the others are as desired", has(&corev1.ConfigMap{}, "four"))
	want("error")
	w.told(w.Local, "a", dependents.EventFailed, "no idea")
	want("panic")
	w.told(w.Local, "a", dependents.EventFailed, "panic: no idea")
	if !has(&corev1.ConfigMap{}, "four")() {
		t.Error("a dependent was deleted although nobody knows what is desired")
	}
	want("five")
	eventually(t, "all is well again", has(&corev1.ConfigMap{}, "five"))
}

// TestResultsBecomeTheStatus: owners are Deployments here, which have one.
func TestResultsBecomeTheStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	var lastErr atomic.Value
	r := &dependents.Reconciler[*appsv1.Deployment]{
		Fleet: fleetName, Name: "status", OwnersIn: mcowner.Clusters{Local: true},
		Kinds: []client.Object{&appsv1.Deployment{}},
		Desired: func(_ context.Context, owner *appsv1.Deployment, _ dependents.Target) ([]client.Object, error) {
			return []client.Object{&appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name}, Spec: owner.Spec,
			}}, nil
		},
		Status: func(_ context.Context, owner *appsv1.Deployment, results []dependents.Result) error {
			owner.Status.Replicas, owner.Status.ReadyReplicas = 0, 0
			for _, r := range results {
				if r.Err != nil {
					lastErr.Store(r)
				}
				for _, d := range r.Dependents() {
					owner.Status.Replicas += 3
					owner.Status.ReadyReplicas += d.(*appsv1.Deployment).Status.ReadyReplicas
				}
			}
			return nil
		},
		Sweep: orphans.Sweep{Interval: time.Hour},
	}
	p := w.run(r)
	app := map[string]string{"app": "a"}
	w.create(w.Local, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "a"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "nginx"}}},
			},
		},
	})
	status := func() appsv1.DeploymentStatus {
		owner := &appsv1.Deployment{}
		if err := w.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "a"}, owner); err != nil {
			t.Fatal(err)
		}
		return owner.Status
	}
	eventually(t, "the status counts the dependents", func() bool { return status().Replicas == 6 })

	dependent := &appsv1.Deployment{}
	if err := one.Client().Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "a"}, dependent); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all is at rest", p.isAtRest)
	writes := p.power.writes.Load()
	dependent.Status.Replicas, dependent.Status.ReadyReplicas = 3, 3
	if err := one.Client().Status().Update(t.Context(), dependent); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the status of a dependent arrives", func() bool { return status().ReadyReplicas == 3 })
	if n := p.power.writes.Load() - writes; n != 1 {
		t.Errorf("the status of a dependent led to %d writes, want that of the owner's alone", n)
	}

	two.Stop(t)
	eventually(t, "the status knows of the cluster that is down", func() bool {
		r, ok := lastErr.Load().(dependents.Result)
		state, isState := errors.AsType[*fleet.StateError](r.Err)
		return ok && isState && r.Cluster == "member-2" && r.Targeted && state.Status.State == fleet.Unreachable
	})
	two.Restart(t)
}

// TestOwnersOfManyClusters: owners of the same name in two members, with dependents in the local cluster.
func TestOwnersOfManyClusters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	r := w.spread()
	r.OwnersIn, r.DependentsIn = mcowner.Clusters{}, mcowner.Clusters{Local: true}
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		origin, _ := mcreconcile.ClusterNameFrom(ctx)
		name := mcowner.UniqueName(63, string(origin), owner.Name)
		if owner.Data["value"] == "same" {
			name = "same"
		}
		return []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}}, nil
	}
	r.Targets = func(_ context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
		if owner.Annotations["to"] == "local" {
			return []mcreconcile.ClusterName{mcreconcile.LocalCluster}, nil
		}
		return nil, nil
	}
	w.run(r)
	for _, cp := range w.Members {
		w.create(cp, w.owner("a", "local"))
	}
	eventually(t, "each owner has a dependent", func() bool { return len(w.list(w.Local)) == 2 })

	// Both want the same object: one has it, the other is told, and has it when the first is gone.
	same := w.owner("same", "local")
	same.Data["value"] = "same"
	w.create(w.Members[0], same.DeepCopy())
	eventually(t, "the first has the object", func() bool { return w.get(w.Local, "same") != nil })
	w.create(w.Members[1], same.DeepCopy())
	w.told(w.Members[1], "same", dependents.EventConflict, "member-1")
	w.remove(w.Members[0], "same")
	eventually(t, "the second has the object", func() bool {
		cm := w.get(w.Local, "same")
		if cm == nil {
			return false
		}
		controller, _ := mcowner.ControllerOf(cm, mcowner.ByName(mcreconcile.LocalCluster))
		return controller.Cluster == "member-2"
	})
}

// TestTwoControllersShareOwners without removing each other's dependents.
func TestTwoControllersShareOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	second := w.spread()
	second.Name = "second"
	second.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		return []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: owner.Name + "-second"}}}, nil
	}
	w.runWith(func(mgr mcmanager.Manager) error {
		return errors.Join(w.spread().SetupWithManager(mgr), second.SetupWithManager(mgr))
	})
	w.create(w.Local, w.owner("a", one.Name))
	w.isCopied(one, "a")
	eventually(t, "the second has its dependent", func() bool { return w.get(one, "a-second") != nil })
	first := w.mustGet(one, copyOf("a")).UID
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "the owner was reconciled", func() bool { return w.mustGet(one, copyOf("a")).Data["value"] == "2" })
	if w.mustGet(one, copyOf("a")).UID != first {
		t.Error("the dependent of the first was replaced")
	}
	if owner := w.mustGet(w.Local, "a"); len(owner.Finalizers) != 2 {
		t.Errorf("the owner has the finalizers %v, want one of each controller", owner.Finalizers)
	}
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	w.isGone(one, copyOf("a"))
	w.isGone(one, "a-second")
}

// TestDependentsAreWatchedWhereTheyMayBe: a kind of dependents is of no concern to other members.
func TestDependentsAreWatchedWhereTheyMayBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	cannotList := two.AddUser(t, "cannot-list")
	w.Members = w.Members[:1]
	r := w.spread()
	r.DependentsIn, r.ByName = mcowner.Clusters{Members: named(one.Name)}, true
	p := w.run(r)
	if err := p.members.Set(fleet.Member{Name: "member-2", Config: cannotList}); err != nil {
		t.Fatal(err)
	}
	p.is(two, fleet.Ready)
	w.create(w.Local, w.owner("a", one.Name, two.Name))
	w.isCopied(one, "a")
	w.told(w.Local, "a", dependents.EventFailed, `cluster "member-2" is a target, and not one of the clusters of DependentsIn`)
	reason := ""
	eventually(t, "nothing is wrong with the other member", func() bool {
		status, _ := p.GetFleet().Status("member-2")
		if status.Reason != reason {
			reason = status.Reason
			t.Logf("the other member has %q: %s", reason, status.Message)
		}
		return reason == ""
	})
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a") // nothing was ever put into the other member
}

// TestAClaimDoesNotMakeAnOwner: an object of a cluster that has no owners stays what it is, whatever others refer to it.
func TestAClaimDoesNotMakeAnOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.spread()
	r.OwnersIn = mcowner.Clusters{Members: named(one.Name)}
	w.run(r)
	w.create(one, w.owner("owner", two.Name))
	bystander := w.owner("bystander", two.Name)
	w.create(two, bystander)
	w.owned(two, "claim", mcowner.Reference{
		Fleet: fleetName, Manager: controller, Cluster: "member-2", APIVersion: "v1", Kind: "ConfigMap",
		Namespace: w.ns, Name: bystander.Name, UID: bystander.UID,
	})
	w.isCopied(two, "owner")
	w.change(two, "claim", func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"more": "events"} })
	w.change(one, "owner", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "a later event was handled", func() bool { return w.mustGet(two, copyOf("owner")).Data["value"] == "2" })
	if diff := cmp.Diff(bystander, w.mustGet(two, "bystander")); diff != "" {
		t.Errorf("the bystander has changed (-before, +after):\n%s", diff)
	}
	if w.get(two, copyOf("bystander")) != nil {
		t.Error("the bystander has a dependent")
	}
}

func TestSettingUpSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	cases := map[string]struct {
		change func(*dependents.Reconciler[*corev1.ConfigMap])
		want   string
	}{
		"NoFleet":    {func(r *dependents.Reconciler[*corev1.ConfigMap]) { r.Fleet = "" }, "Fleet"},
		"NoName":     {func(r *dependents.Reconciler[*corev1.ConfigMap]) { r.Name = "no name" }, "Name"},
		"NoKinds":    {func(r *dependents.Reconciler[*corev1.ConfigMap]) { r.Kinds = nil }, "and Desired are required"},
		"NoDesired":  {func(r *dependents.Reconciler[*corev1.ConfigMap]) { r.Desired = nil }, "and Desired are required"},
		"OfMetadata": {func(r *dependents.Reconciler[*corev1.ConfigMap]) { r.Kinds = []client.Object{metadataOf("ConfigMap")} }, "whole objects"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			mgr, err := mcmanager.New(w.Local.Config(), nil, mcmanager.Options{})
			if err != nil {
				t.Fatal(err)
			}
			r := w.spread()
			tc.change(r)
			if err := r.SetupWithManager(mgr); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("SetupWithManager returned %v, want an error about %q", err, tc.want)
			}
		})
	}
}

func metadataOf(kind string) *metav1.PartialObjectMetadata {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return meta
}

// TestANamespaceForAKindWithoutIsRefused: the API server would drop it, and the dependent would not be where its reference
// says.
func TestANamespaceForAKindWithoutIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	r := w.spread()
	r.Kinds = append(r.Kinds, &corev1.PersistentVolume{})
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		return []client.Object{&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name}}}, nil
	}
	w.run(r)
	w.create(w.Local, w.owner("a", w.Members[0].Name))
	w.told(w.Local, "a", dependents.EventFailed, "its kind has none")
}
