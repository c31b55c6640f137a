package dependents_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// outlive makes versions of a cluster grow until some time after it is restored they are still those that were counted before.
func (w *world) outlive(cp *mctest.ControlPlane) {
	w.t.Helper()
	for i := range 300 {
		w.create(cp, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: fmt.Sprint("filler-", i)}})
	}
}

// TestOwnersInAClusterThatIsRestoredAreServedAsTheyAreThere although they were written in later versions before: by the program, or by others
// alone. Where they had dependents since the backup, and are to have none, these go.
func TestOwnersInAClusterThatIsRestoredAreServedAsTheyAreThere(t *testing.T) {
	t.Parallel()
	w := newWorldIn(t, mctest.Start(t, mctest.Options{Clusters: 3})) // not of the pool: storage is replaced
	home, one, two := w.Members[0], w.Members[1], w.Members[2]
	r := w.spread()
	r.OwnersIn = mcowner.Clusters{Members: labels.SelectorFromSet(labels.Set{"name": home.Name})}
	for _, name := range []string{"left-alone", "changed", "deleted", "moved"} {
		w.create(home, w.owner(name, one.Name))
	}
	p := w.run(r)
	for _, name := range []string{"left-alone", "changed", "deleted", "moved"} {
		w.isCopied(one, name)
	}
	eventually(t, "the program is at rest", p.isAtRest)
	restore := home.Backup(t)
	w.outlive(home)
	w.change(home, "left-alone", func(cm *corev1.ConfigMap) { cm.Data["value"] = "since the backup" })
	w.says(one, copyOf("left-alone"), "since the backup")
	for _, name := range []string{"changed", "deleted", "moved"} {
		w.change(home, name, func(cm *corev1.ConfigMap) { cm.Annotations["to"] = two.Name })
		w.isCopied(two, name)
		w.isGone(one, copyOf(name))
	}
	eventually(t, "the program is at rest", p.isAtRest)
	restore()
	w.change(home, "changed", func(cm *corev1.ConfigMap) { cm.Data["value"] = "after it" })
	w.remove(home, "deleted")
	w.says(one, copyOf("left-alone"), "1")
	w.says(one, copyOf("changed"), "after it")
	w.says(one, copyOf("moved"), "1")
	for _, name := range []string{"changed", "deleted", "moved"} {
		w.isGone(two, copyOf(name))
	}
	w.isGone(home, "deleted")
	w.isGone(one, copyOf("deleted"))
}

// TestSlicesInAClusterThatIsRestoredAreWrittenAnew, although they were written in later versions before, and nothing else happens.
func TestSlicesInAClusterThatIsRestoredAreWrittenAnew(t *testing.T) {
	t.Parallel()
	w := newWorldIn(t, mctest.Start(t, withSlices(t, 2))) // not of the pool: storage is replaced
	home, one := w.Members[0], w.Members[1]
	r := w.sliced()
	r.OwnersIn = mcowner.Clusters{Members: labels.SelectorFromSet(labels.Set{"name": home.Name})}
	w.create(home, w.owner("a", one.Name))
	p := w.run(r)
	isSliced := func() bool {
		there := w.get(one, copyOf("a"))
		return there != nil && slices.ContainsFunc(w.slicesIn(home), func(s v1alpha1.DependentSlice) bool {
			return slices.ContainsFunc(s.Clusters[0].Objects, func(o v1alpha1.Object) bool { return o.UID == there.UID })
		})
	}
	eventually(t, "the slice has the dependent", isSliced)
	eventually(t, "the program is at rest", p.isAtRest)
	restore := home.Backup(t)
	w.outlive(home)
	before := w.mustGet(one, copyOf("a")).UID
	w.remove(one, copyOf("a"))
	eventually(t, "the slice has the next dependent", func() bool { return isSliced() && w.mustGet(one, copyOf("a")).UID != before })
	eventually(t, "the program has seen that", func() bool {
		cached := &metav1.PartialObjectMetadata{}
		cached.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.Kind))
		there := w.slicesIn(home)
		return len(there) == 1 && p.hasRead(home, &there[0], cached)
	})
	restore()
	eventually(t, "the slice has the next dependent again", isSliced)
}

// TestDependentsInAClusterThatIsRestoredAreAsTheirOwnersSay although they were written in later versions before.
func TestDependentsInAClusterThatIsRestoredAreAsTheirOwnersSay(t *testing.T) {
	t.Parallel()
	w := newWorldIn(t, mctest.Start(t, mctest.Options{Clusters: 1})) // not of the pool: storage is replaced
	one := w.Members[0]
	for _, name := range []string{"changed", "left"} {
		w.create(w.Local, w.owner(name, one.Name))
	}
	p := w.run(w.spread())
	w.isCopied(one, "changed")
	w.isCopied(one, "left")
	eventually(t, "the program is at rest", p.isAtRest)
	restore := one.Backup(t)
	w.outlive(one)
	w.change(w.Local, "changed", func(cm *corev1.ConfigMap) { cm.Data["value"] = "since the backup" })
	w.change(w.Local, "left", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
	w.create(w.Local, w.owner("created", one.Name))
	w.says(one, copyOf("changed"), "since the backup")
	w.isGone(one, copyOf("left"))
	w.isCopied(one, "created")
	eventually(t, "the program is at rest", p.isAtRest)
	restore()
	w.says(one, copyOf("changed"), "since the backup")
	w.isGone(one, copyOf("left"))
	w.isCopied(one, "created")
	w.change(w.Local, "changed", func(cm *corev1.ConfigMap) { cm.Data["value"] = "after it" })
	w.says(one, copyOf("changed"), "after it")
}

// TestAKindThatItsOwnerHasNoMoreIsSeenWhereABackupBringsItBack, or where somebody applies a manifest that was saved: it is neither noted on the
// owner nor watched there, and a sweep sees it. It goes as what is not desired, since the owner is there.
func TestAKindThatItsOwnerHasNoMoreIsSeenWhereABackupBringsItBack(t *testing.T) {
	t.Parallel()
	w := newWorldIn(t, mctest.Start(t, mctest.Options{Clusters: 1})) // not of the pool: storage is replaced
	one := w.Members[0]
	var results latest
	r := w.withSecrets(&results)
	r.Sweep = orphans.Sweep{Interval: 100 * time.Millisecond, Listing: 100 * time.Millisecond}
	w.Members = nil // it joins below
	start := func() (*process, *lookout) {
		p := w.run(r)
		return p, p.joinAs(one, "configmaps", "secrets")
	}
	p, _ := start()
	owner := w.owner("a", one.Name)
	owner.Data["secret"] = one.Name
	w.create(w.Local, owner)
	w.isCopied(one, "a")
	secret := &corev1.Secret{ObjectMeta: metaOf(w.ns, copyOf("a"))}
	eventually(t, "the Secret is there", func() bool { return w.isThere(one, secret.DeepCopy()) })
	saved := secret.DeepCopy()
	w.isThere(one, saved)
	eventually(t, "the program is at rest", p.isAtRest)
	p.stop()
	restore := one.Backup(t)
	p, at := start() // where a connection is replaced, what was watched before is kept for a while
	forgets := func() {
		t.Helper()
		eventually(t, "the Secret is gone", func() bool { return !w.isThere(one, secret.DeepCopy()) })
		eventually(t, "Secrets are not noted", func() bool { return !w.hasNoted(w.Local, "a", "Secret") })
		eventually(t, "Secrets are not watched", func() bool { return at.open.Load() == 0 && !w.hasNoted(w.Local, "a", "Secret") })
		eventually(t, "the program is at rest", p.isAtRest)
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["secret"] = "" })
	forgets()
	restore()
	p.is(one, fleet.Ready)
	forgets()
	saved.UID, saved.ResourceVersion = "", ""
	w.create(one, saved)
	forgets()
	if w.mustGet(one, copyOf("a")).DeletionTimestamp != nil {
		t.Error("what is desired went with it")
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" }) // nor has it anything else, anywhere
	w.isGone(one, copyOf("a"))
	forgets()
	saved.UID, saved.ResourceVersion = "", ""
	w.create(one, saved)
	forgets()
	eventually(t, "the owner is free", func() bool { return len(w.mustGet(w.Local, "a").Finalizers) == 0 })
}
