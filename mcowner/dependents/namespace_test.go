package dependents_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// inNamespaces is a reconciler whose copies are in the namespace that the owner's data says.
func (w *world) inNamespaces() *dependents.Reconciler[*corev1.ConfigMap] {
	r := w.spread()
	r.CreateNamespaces = true
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		return []client.Object{&corev1.ConfigMap{ObjectMeta: metaOf(owner.Data["value"], copyOf(owner.Name))}}, nil
	}
	return r
}

// ownerIn returns an owner that is to have copies in a namespace of all members.
func (w *world) ownerIn(name, namespace string) *corev1.ConfigMap {
	to := make([]string, 0, len(w.Members))
	for _, cp := range w.Members {
		to = append(to, cp.Name)
	}
	owner := w.owner(name, to...)
	owner.Data["value"] = namespace
	return owner
}

// namespace returns a namespace, nil if there is none, or it is being deleted: no controller of namespaces runs.
func (w *world) namespace(cp *mctest.ControlPlane, name string) *corev1.Namespace {
	w.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if !w.isThere(cp, ns) || ns.DeletionTimestamp != nil {
		return nil
	}
	return ns
}

func (w *world) ownersOf(cp *mctest.ControlPlane, namespace string) int {
	w.t.Helper()
	ns := w.namespace(cp, namespace)
	if ns == nil {
		return 0
	}
	references, err := mcowner.References(ns, mcowner.ByName(mcreconcile.ClusterName(cp.Name)))
	if err != nil {
		w.t.Fatal(err)
	}
	return len(references)
}

// TestNamespacesAreCreatedSharedAndDeletedWithTheLastOwner: also if an owner is only retargeted, or wants another one.
func TestNamespacesAreCreatedSharedAndDeletedWithTheLastOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, ns, other := w.Members[0], w.ns+"-new", w.ns+"-other"
	w.run(w.inNamespaces())
	w.create(w.Local, w.ownerIn("a", ns))
	w.create(w.Local, w.ownerIn("b", ns))
	eventually(t, "both owners share the namespace", func() bool { return w.ownersOf(one, ns) == 2 })
	if controller, ok := mcowner.ControllerOf(w.namespace(one, ns), mcowner.ByName("member-1")); ok {
		t.Errorf("the namespace is controlled by %s", controller)
	}
	there := func(name string) bool { return w.isThere(one, &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf(name))}) }
	eventually(t, "the dependents are there", func() bool { return there("a") && there("b") })

	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	eventually(t, "the namespace has one owner", func() bool { return w.ownersOf(one, ns) == 1 })
	if !there("b") {
		t.Error("the dependent of the other owner is gone")
	}
	w.change(w.Local, "b", func(cm *corev1.ConfigMap) { cm.Data["value"] = other })
	eventually(t, "the other namespace is there", func() bool { return w.ownersOf(one, other) == 1 })
	eventually(t, "the first namespace is gone", func() bool { return w.namespace(one, ns) == nil })
	w.change(w.Local, "b", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
	eventually(t, "the other namespace is gone", func() bool { return w.namespace(one, other) == nil })
}

// TestANamespaceIsJoinedOnceTheClusterMayBeChanged, or created: either is a change of the cluster, also for an owner that was suspended when all
// clusters were looked at.
func TestANamespaceIsJoinedOnceTheClusterMayBeChanged(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]int{"another owner has created it": 1, "it is not there": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			ns := w.ns + "-new"
			r := w.inNamespaces()
			r.Kinds = append(r.Kinds, &batchv1.Job{})
			desired := r.Desired
			r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
				all, err := desired(ctx, owner, target)
				if owner.Name == "b" { // which is not ready before the test finishes it
					all = append(all, w.job(jobOf(owner)))
				}
				return all, err
			}
			r.RolloutOf = func(owner *corev1.ConfigMap) dependents.Rollout {
				if owner.Name == "b" {
					return dependents.Rollout{MaxParallel: intstr.FromInt32(1)}
				}
				return dependents.Rollout{}
			}
			told := listen(r)
			w.run(r)
			if others > 0 {
				w.create(w.Local, w.ownerIn("a", ns))
			}
			for _, cp := range w.Members {
				eventually(t, "the namespace is there for others", func() bool { return w.ownersOf(cp, ns) == others })
			}
			b := w.ownerIn("b", ns)
			b.Annotations[dependents.SuspendAnnotation] = "true"
			w.create(w.Local, b)
			eventually(t, "all clusters were looked at", func() bool { return told.suspended("b") == len(w.Members) })
			w.change(w.Local, "b", func(cm *corev1.ConfigMap) { delete(cm.Annotations, dependents.SuspendAnnotation) })
			first := w.next(jobOf(b))
			eventually(t, "the other one waits", func() bool { return told.waiting("b") == 1 })
			other := w.Members[0]
			if first == other {
				other = w.Members[1]
			}
			if n := w.ownersOf(other, ns); n != others {
				t.Errorf("in the cluster that waits, %d owners have the namespace", n)
			}
			w.finish(first, jobOf(b))
			eventually(t, "it is joined in the other one", func() bool { return w.ownersOf(other, ns) == others+1 })
		})
	}
}

// TestANamespaceThatHasNoRoomForAnotherOwnerSaysSo, and what to do: then it is for all that come. Those that have it already need no more room,
// also if their references are of before these said the kind.
func TestANamespaceThatHasNoRoomForAnotherOwnerSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, name := w.Members[0], w.ns+"-full"
	w.run(w.inNamespaces())
	w.create(w.Local, w.ownerIn("a", name))
	eventually(t, "the namespace is there", func() bool { return w.ownersOf(one, name) == 1 })
	annotate := func(change func(annotations map[string]string)) {
		ns := w.namespace(one, name)
		patch := client.MergeFrom(ns.DeepCopy())
		change(ns.Annotations)
		if err := one.Client().Patch(t.Context(), ns, patch); err != nil {
			t.Fatal(err)
		}
	}
	annotate(func(annotations map[string]string) { // as if six hundred owners had it
		used := 0
		for key, value := range annotations {
			annotations[key] = strings.ReplaceAll(value, `"kind":"Namespace",`, "")
			used += len(key) + len(annotations[key])
		}
		annotations["others"] = strings.Repeat("o", 256<<10-used-len("others"))
	})
	b := w.ownerIn("b", name)
	w.create(w.Local, b)
	w.told(w.Local, "b", dependents.EventFailed, "take the annotation "+mcowner.CreatedByAnnotation+" from it")
	inIt := &corev1.ConfigMap{ObjectMeta: metaOf(name, copyOf("a"))}
	if err := one.Client().Delete(t.Context(), inIt.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the owner that has it is served", func() bool { return w.isThere(one, inIt.DeepCopy()) })
	annotate(func(annotations map[string]string) { delete(annotations, mcowner.CreatedByAnnotation) })
	w.change(w.Local, "b", func(cm *corev1.ConfigMap) { cm.Data["again"] = "now" })
	eventually(t, "what is in it is there", func() bool { return w.isThere(one, &corev1.ConfigMap{ObjectMeta: metaOf(name, copyOf("b"))}) })
}

// TestANamespaceWithObjectsOfOthersStays: whether it was there before, or was created for dependents (AS-9.6).
func TestANamespaceWithObjectsOfOthersStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, prod, made := w.Members[0], w.ns+"-prod", w.ns+"-made"
	keep := func(ns string) {
		w.create(one, &corev1.ConfigMap{ObjectMeta: metaOf(ns, "keep")})
		w.create(one, &corev1.Secret{ObjectMeta: metaOf(ns, "db")})
	}
	w.create(one, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: prod}})
	keep(prod)
	before := w.namespace(one, prod)
	w.run(w.inNamespaces())
	w.create(w.Local, w.ownerIn("a", prod))
	w.create(w.Local, w.ownerIn("b", made))
	for owner, ns := range map[string]string{"a": prod, "b": made} {
		eventually(t, owner+" has its dependent", func() bool { return w.isThere(one, &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf(owner))}) })
	}
	if now := w.namespace(one, prod); now.ResourceVersion != before.ResourceVersion {
		t.Errorf("the namespace of others was changed to %v", now)
	}
	keep(made)
	for owner, ns := range map[string]string{"a": prod, "b": made} {
		w.remove(w.Local, owner)
		w.isGone(w.Local, owner)
		if w.isThere(one, &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf(owner))}) {
			t.Errorf("the dependent in %s is still there", ns)
		}
		now := w.namespace(one, ns)
		if now == nil || !w.isThere(one, &corev1.ConfigMap{ObjectMeta: metaOf(ns, "keep")}) || !w.isThere(one, &corev1.Secret{ObjectMeta: metaOf(ns, "db")}) {
			t.Fatalf("of the namespace %s there is %v", ns, now)
		}
		if w.ownersOf(one, ns) != 0 || now.Annotations[mcowner.CreatedByAnnotation] != "" || now.Labels[mcowner.FleetLabel] != "" {
			t.Errorf("the namespace %s has the annotations %v", ns, now.Annotations)
		}
	}
}

// TestANamespaceIsCreatedAgain: one that somebody deletes comes back once it is gone.
func TestANamespaceIsCreatedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, ns := w.Members[0], w.ns+"-new"
	one.StartControllerManager(t, "namespace-controller")
	w.run(w.inNamespaces())
	w.create(w.Local, w.ownerIn("a", ns))
	there := func() bool { return w.isThere(one, &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf("a"))}) }
	eventually(t, "the dependent is there", there)
	before := w.namespace(one, ns)
	if err := one.Client().Delete(t.Context(), before.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is another one", func() bool { now := w.namespace(one, ns); return now != nil && now.UID != before.UID })
	eventually(t, "the dependent is there again", there)
}

// TestANamespaceOfOthersIsNotAskedForWhileAllIsThere, where caches are limited to dependents. It is created anew with what is in it.
func TestANamespaceOfOthersIsNotAskedForWhileAllIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, ns := w.Members[0], w.ns+"-theirs"
	one.StartControllerManager(t, "namespace-controller")
	w.clusterOptions = func(fleet.Member) []cluster.Option { return []cluster.Option{dependents.OnlyLabelled(fleetName)} }
	w.create(one, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	job := func() *batchv1.Job {
		job := w.job(copyOf("a"))
		job.Namespace = ns
		return job
	}
	var runs atomic.Int32
	r := w.inNamespaces()
	r.Kinds = []client.Object{&batchv1.Job{}}
	r.Desired = func(_ context.Context, _ *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		if target.RESTMapper != nil {
			runs.Add(1)
		}
		return []client.Object{job()}, nil
	}
	p := w.run(r)
	w.create(w.Local, w.ownerIn("a", ns))
	changed := func() {
		t.Helper()
		there, before := job(), runs.Load()
		if !w.isThere(one, there) {
			t.Fatal("the Job is gone")
		}
		there.Status.Active++
		if err := one.Client().Status().Update(t.Context(), there); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it was looked at", func() bool { return runs.Load() > before && p.hasRead(one, there, &batchv1.Job{}) })
	}
	eventually(t, "the Job is there", func() bool { return w.isThere(one, job()) })
	changed() // what is worked on from now on is known to be there
	var gets atomic.Int32
	tap := func(req *http.Request) (answered func()) { //nolint:unparam // there is nothing to do with the answer
		if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/namespaces/"+ns) {
			gets.Add(1)
		}
		return nil
	}
	p.power.tap.Store(&tap)
	for range 10 {
		changed()
	}
	if n := gets.Load(); n > 0 {
		t.Errorf("the namespace was asked for %d times", n)
	}
	before := w.namespace(one, ns)
	if err := one.Client().Delete(t.Context(), before.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is another one", func() bool { now := w.namespace(one, ns); return now != nil && now.UID != before.UID })
	eventually(t, "the Job is there again", func() bool { return w.isThere(one, job()) })
}

// TestOwnersOfANamespaceThatIsHeldUpWaitForTheNextOne: it is being deleted, and an object of somebody else keeps it from going. One
// owner goes meanwhile, and one comes.
func TestOwnersOfANamespaceThatIsHeldUpWaitForTheNextOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, ns := w.Members[0], w.ns+"-new"
	one.StartControllerManager(t, "namespace-controller")
	w.run(w.inNamespaces())
	there := func(owner string) bool {
		return w.isThere(one, &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf(owner))})
	}
	for _, owner := range []string{"goes", "stays"} {
		w.create(w.Local, w.ownerIn(owner, ns))
		eventually(t, owner+" has its dependent", func() bool { return there(owner) })
	}
	held := &corev1.ConfigMap{ObjectMeta: metaOf(ns, "held")}
	held.Finalizers = []string{"example.com/held"}
	w.create(one, held)
	before := w.namespace(one, ns)
	if err := one.Client().Delete(t.Context(), before.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the dependents are gone with it", func() bool { return !there("goes") && !there("stays") })
	w.create(w.Local, w.ownerIn("comes", ns))
	w.remove(w.Local, "goes")
	w.isGone(w.Local, "goes")
	for _, owner := range []string{"stays", "comes"} {
		w.told(w.Local, owner, dependents.EventTerminating, ns)
	}
	if err := one.Client().Get(t.Context(), client.ObjectKeyFromObject(before), before); err != nil || before.DeletionTimestamp == nil {
		t.Fatalf("the namespace does not go any more: %v", err)
	}

	let := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := one.Client().Patch(t.Context(), held, let); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next namespace is theirs", func() bool { return w.ownersOf(one, ns) == 2 && there("stays") && there("comes") })
	if there("goes") {
		t.Error("the dependent of the owner that is gone is back")
	}
}

// TestANamespaceOfAnOwnerThatIsGoneIsCollected: the owner went while no controller ran. With objects of others in it, it stays.
func TestANamespaceOfAnOwnerThatIsGoneIsCollected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, empty, used := w.Members[0], w.ns+"-empty", w.ns+"-used"
	p := w.run(w.inNamespaces())
	for owner, ns := range map[string]string{"a": empty, "b": used} {
		w.create(w.Local, w.ownerIn(owner, ns))
		eventually(t, owner+" has its dependent", func() bool { return w.isThere(one, &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf(owner))}) })
	}
	p.stop()
	w.create(one, &corev1.Secret{ObjectMeta: metaOf(used, "db")})
	for _, owner := range []string{"a", "b"} {
		w.change(w.Local, owner, func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
		w.remove(w.Local, owner)
	}
	r := w.inNamespaces()
	r.Sweep.Interval, r.Sweep.Listing = 100*time.Millisecond, 100*time.Millisecond
	w.run(r)
	eventually(t, "the namespace is gone", func() bool { return w.namespace(one, empty) == nil })
	eventually(t, "the other one is nobody's", func() bool { return w.ownersOf(one, used) == 0 })
	if w.namespace(one, used) == nil || !w.isThere(one, &corev1.Secret{ObjectMeta: metaOf(used, "db")}) {
		t.Error("what others use is gone")
	}
}

// TestANamespaceGoesAfterWhatItsOwnerThatIsGoneHasThere: what is there is of a kind that the program knows by other owners alone, some time after its
// start. What says that it is to stay keeps its namespace.
func TestANamespaceGoesAfterWhatItsOwnerThatIsGoneHasThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, left, used := w.Members[0], w.ns+"-left", w.ns+"-used"
	ofMoreKinds := func() *dependents.Reconciler[*corev1.ConfigMap] {
		r := w.inNamespaces()
		r.Kinds, r.MoreKinds = nil, func(schema.GroupVersionKind) error { return nil }
		r.Sweep.Interval, r.Sweep.Listing = 100*time.Millisecond, 100*time.Millisecond
		return r
	}
	there := func(owner, ns string) bool {
		return w.isThere(one, &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf(owner))})
	}
	p := w.run(ofMoreKinds())
	for owner, ns := range map[string]string{"a": left, "b": used, "stays": w.ns + "-other"} {
		w.create(w.Local, w.ownerIn(owner, ns))
		eventually(t, owner+" has its dependent", func() bool { return there(owner, ns) })
	}
	p.stop()
	kept := &corev1.ConfigMap{ObjectMeta: metaOf(used, copyOf("b"))}
	keep := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+dependents.DeletionPolicyAnnotation+`":"Orphan"}}}`))
	if err := one.Client().Patch(t.Context(), kept, keep); err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{"a", "b"} {
		w.change(w.Local, owner, func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
		w.remove(w.Local, owner)
	}
	w.run(ofMoreKinds())
	eventually(t, "what is there is gone, and then the namespace", func() bool { return !there("a", left) && w.namespace(one, left) == nil })
	eventually(t, "the other one is nobody's", func() bool { return w.ownersOf(one, used) == 0 })
	if w.namespace(one, used) == nil || !there("b", used) {
		t.Error("what is to stay is gone")
	}
}

// TestANamespaceThatIsTakenForOnesThatWereThereHoldsUpNothing: what is in it is desired still.
func TestANamespaceThatIsTakenForOnesThatWereThereHoldsUpNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, ns := w.Members[0], w.ns+"-new"
	r := w.inNamespaces()
	r.PolicyOf = func(owner *corev1.ConfigMap) dependents.Policy {
		return dependents.Policy{ExistingNamespaces: owner.Annotations["namespaces"] == "existing"}
	}
	w.run(r)
	w.create(w.Local, w.ownerIn("a", ns))
	there := func() bool { return w.isThere(one, &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf("a"))}) }
	eventually(t, "the dependent is there", there)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["namespaces"] = "existing" })
	eventually(t, "the namespace is nobody's", func() bool { return w.ownersOf(one, ns) == 0 })
	if w.namespace(one, ns) == nil || !there() {
		t.Error("what is desired is gone")
	}
}

// TestTheRightsToCreateNamespacesSuffice: those that docs/ownership.md lists. Without the right to list all, it cannot be proved
// that a namespace is empty, so it stays.
func TestTheRightsToCreateNamespacesSuffice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	may, mayNot := w.Members[0], w.Members[1]
	working := rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"},
	}
	listing := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"list"}}
	users := map[*mctest.ControlPlane]*rest.Config{
		may:    may.AddUser(t, "controller", working, listing),
		mayNot: mayNot.AddUser(t, "controller", working),
	}
	owner, ns := w.ownerIn("a", w.ns+"-new"), w.ns+"-new"
	w.Members = nil // reported below
	p := w.run(w.inNamespaces())
	for cp, user := range users {
		p.add(cp, user)
	}
	w.create(w.Local, owner)
	for cp := range users {
		eventually(t, cp.Name+" has the dependent", func() bool { return w.isThere(cp, &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf("a"))}) })
	}
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	if w.namespace(may, ns) != nil {
		t.Error("the namespace that is proved to be empty is still there")
	}
	left := w.namespace(mayNot, ns)
	if left == nil || left.Annotations[mcowner.CreatedByAnnotation] != "" || left.Labels[mcowner.FleetLabel] != "" {
		t.Errorf("where it cannot be proved, the namespace is %v", left)
	}
	for cp := range users {
		if w.isThere(cp, &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf("a"))}) {
			t.Errorf("%s still has the dependent", cp.Name)
		}
	}
}

// TestANamespaceThatCannotBeCreatedHoldsUpWhatBelongsThere, and nothing else but later waves.
func TestANamespaceThatCannotBeCreatedHoldsUpWhatBelongsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, going := w.Members[0], w.ns+"-going"
	w.create(one, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: going}})
	if err := one.Client().Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: going}}); err != nil {
		t.Fatal(err)
	}
	r := w.inNamespaces()
	later := metaOf(w.ns, "later")
	later.Annotations = map[string]string{dependents.WaveAnnotation: "1"}
	r.Desired = func(context.Context, *corev1.ConfigMap, dependents.Target) ([]client.Object, error) {
		return []client.Object{
			&corev1.ConfigMap{ObjectMeta: metaOf(going, "waits")}, &corev1.ConfigMap{ObjectMeta: metaOf("Not_A_Namespace", "impossible")}, &corev1.ConfigMap{ObjectMeta: metaOf(w.ns, "beside")},
			&corev1.ConfigMap{ObjectMeta: metaOf(w.ns+"-new", "elsewhere")}, &corev1.ConfigMap{ObjectMeta: later},
		}, nil
	}
	var mu sync.Mutex // guards states
	states := map[string]dependents.State{}
	r.Status = func(_ context.Context, _ *corev1.ConfigMap, all []dependents.Result) error {
		mu.Lock()
		defer mu.Unlock()
		for _, result := range all {
			for _, o := range result.Objects {
				states[o.Key.Name] = o.State
			}
		}
		return nil
	}
	w.run(r)
	w.create(w.Local, w.ownerIn("a", ""))
	there := func(namespace, name string) bool {
		return w.isThere(one, &corev1.ConfigMap{ObjectMeta: metaOf(namespace, name)})
	}
	eventually(t, "what is beside it is there", func() bool { return there(w.ns, "beside") && there(w.ns+"-new", "elsewhere") })
	eventually(t, "what belongs there waits, and so does the next wave", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return states["waits"] == dependents.Waiting && states["impossible"] == dependents.Waiting && states["later"] == dependents.Waiting
	})
	if there(w.ns, "later") || there(going, "waits") {
		t.Error("what should wait is there")
	}
}

// TestANamespaceStaysIfOneOfItsOwnersKeeps what is its own, though it joined later, and goes before the others.
func TestANamespaceStaysIfOneOfItsOwnersKeeps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, ns := w.Members[0], w.ns+"-new"
	r := w.inNamespaces()
	r.PolicyOf = func(owner *corev1.ConfigMap) dependents.Policy { return dependents.Policy{Keep: owner.Name == "b"} }
	w.run(r)
	at := func(name string) *corev1.ConfigMap { return &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf(name))} }
	for _, name := range []string{"a", "b"} {
		w.create(w.Local, w.ownerIn(name, ns))
		eventually(t, "the dependent of "+name+" is there", func() bool { return w.isThere(one, at(name)) })
	}
	w.remove(w.Local, "b")
	w.isGone(w.Local, "b")
	if err := one.Client().Delete(t.Context(), at("b")); err != nil {
		t.Fatal(err)
	}
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	if w.namespace(one, ns) == nil {
		t.Error("it went")
	}
	if w.isThere(one, at("a")) {
		t.Error("what was not to be kept is there")
	}
}

// TestANamespaceIsNotCreatedForWhatHasNone: an object of a kind without namespaces that says one is an error, and nothing beside it.
func TestANamespaceIsNotCreatedForWhatHasNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, ns, wrong := w.Members[0], w.ns+"-new", w.ns+"-wrong"
	r := w.inNamespaces()
	r.Kinds = append(r.Kinds, &rbacv1.ClusterRole{})
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		return append([]client.Object{&rbacv1.ClusterRole{ObjectMeta: metaOf(wrong, w.ns)}}, all...), err
	}
	w.run(r)
	w.create(w.Local, w.ownerIn("a", ns))
	w.told(w.Local, "a", dependents.EventFailed, `it has the namespace "`+wrong+`", and its kind has none`)
	eventually(t, "what is beside it is there", func() bool { return w.isThere(one, &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf("a"))}) })
	if there := w.namespace(one, wrong); there != nil {
		t.Errorf("there is a namespace for it: %v", there.Annotations)
	}
}
