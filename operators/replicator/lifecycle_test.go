package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	inventoryv1alpha1 "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	slicesv1alpha1 "github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// TestReplicatorsInSeveralMembers shows who is chosen, in which order they are changed, and what stays as members and namespaces go.
func TestReplicatorsInSeveralMembers(t *testing.T) {
	t.Parallel()
	w := prepare(t, 3)
	stage.ApplyCRD(t, w.Local, decisionsCRD(t))
	w.run("--placement-decisions")
	for i, name := range []string{"a", "b", "c"} {
		w.join(w.Members[i], name)
	}
	t.Run("a scheduler's decision is followed, and says which member it means", func(t *testing.T) { w.testDecisions(t) })
	t.Run("a failure halts a rollout, which is told as stuck, until the Replicator is changed", func(t *testing.T) { w.testHalt(t) })
	t.Run("a wave waits until what is before it is ready", func(t *testing.T) { w.testWaves(t) })
	t.Run("Adopt takes what is nobody's, and nothing of another Replicator", func(t *testing.T) { w.testAdopt(t) })
	t.Run("a member that leaves keeps what it has, and is followed when it is back", func(t *testing.T) { w.testLeave(t) })
	t.Run("a member that leaves well keeps what it has, and no Replicator waits for it", func(t *testing.T) { w.testLeaveWell(t) })
	t.Run("when the namespace in the hub is deleted, deletion policies are followed", func(t *testing.T) { w.testHubNamespace(t) })
}

// decisionsCRD returns the path of the CRD of PlacementDecisions, in the module that has the types.
func decisionsCRD(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-inventory-api").Output()
	must(t, err)
	return filepath.Join(strings.TrimSpace(string(out)), "config", "crd", "bases", "multicluster.x-k8s.io_placementdecisions.yaml")
}

// testDecisions has two slices of one decision. The profiles b are of two inventories.
func (w *world) testDecisions(t *testing.T) {
	t.Helper()
	decision := func(name string, profiles ...inventoryv1alpha1.ClusterProfileReference) *inventoryv1alpha1.PlacementDecision {
		d := &inventoryv1alpha1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{
			Namespace: tenant, Name: name, Labels: map[string]string{inventoryv1alpha1.DecisionKeyLabel: "web"},
		}}
		d.Decisions = []inventoryv1alpha1.ClusterDecision{}
		for _, p := range profiles {
			d.Decisions = append(d.Decisions, inventoryv1alpha1.ClusterDecision{ClusterProfileRef: p})
		}
		return d
	}
	first := decision("web-0", inventoryv1alpha1.ClusterProfileReference{Namespace: "fleet", Name: "a"})
	second := decision("web-1", inventoryv1alpha1.ClusterProfileReference{Name: "b"})
	create(t, w.Local, first, second)
	r := replicator("decided", nil, configMap("decided"))
	r.Spec.Clusters.DecisionKey = "web"
	create(t, w.Local, r)
	isThere(t, w.members["a"], configMap("decided"))
	w.condition("decided", v1alpha1.ConditionSynced, "Unreachable", tenant+"/b")
	if get(t, w.members["b"], configMap("decided")) != nil {
		t.Error("a profile of another namespace is taken for the member of its name")
	}
	second.Decisions[0].ClusterProfileRef = inventoryv1alpha1.ClusterProfileReference{Namespace: "fleet", Name: "c"}
	must(t, w.Local.Client().Update(t.Context(), second))
	isThere(t, w.members["c"], configMap("decided"))
	w.synced("decided")
	remove(t, w.Local, first)
	isGone(t, w.members["a"], configMap("decided"))
	isThere(t, w.members["c"], configMap("decided"))
	w.end("decided")
}

// testHalt has a alone as a target until it has failed, since clusters have their turn in any order.
func (w *world) testHalt(t *testing.T) {
	t.Helper()
	theirs := configMap("place")
	create(t, w.members["a"], theirs)
	r := replicator("rollout", nil, configMap("place"))
	r.Spec.Clusters.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"rollout": "yes"}}
	r.Spec.Rollout = v1alpha1.Rollout{MaxParallel: new(intstr.FromInt32(1)), HaltAfter: 1, ProgressDeadlineSeconds: 2}
	w.label(t, "a", "rollout")
	create(t, w.Local, r)
	w.condition("rollout", v1alpha1.ConditionSynced, "Failed", "a")
	w.label(t, "b", "rollout")
	w.label(t, "c", "rollout")
	w.condition("rollout", v1alpha1.ConditionProgressing, v1alpha1.ReasonHalted, "a")
	for _, name := range []string{"b", "c"} {
		if get(t, w.members[name], configMap("place")) != nil {
			t.Errorf("%s was changed after the failure", name)
		}
	}
	remove(t, w.members["a"], theirs)
	w.change("rollout", func(r *v1alpha1.Replicator) { r.Spec.Manifests[0] = manifest(configMap("place", "try", "2")) })
	w.synced("rollout")
	for _, name := range []string{"a", "b", "c"} {
		becomes(t, w.members[name], configMap("place"), "has what was said last", func(cm *corev1.ConfigMap) bool { return cm.Data["try"] == "2" })
	}
	w.end("rollout")
}

// label gives a member a label.
func (w *world) label(t *testing.T, member, label string) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: member}}
	must(t, w.Local.Client().Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"yes"}}}`, label))))
}

// testWaves has a Deployment that the test makes ready, as no controller of Kubernetes runs.
func (w *world) testWaves(t *testing.T) {
	t.Helper()
	later := configMap("second")
	later.Annotations = map[string]string{"fleet-runtime.dev/wave": "1"}
	create(t, w.Local, replicator("waves", []string{"a"}, deployment("first", 1), later))
	isThere(t, w.members["a"], deployment("first", 1))
	w.condition("waves", v1alpha1.ConditionProgressing, "Pending", "1 clusters are pending")
	stage.Eventually(t, "a slice says what waits", func() bool { return w.isIn("waves", "second", "Waiting") })
	if get(t, w.members["a"], configMap("second")) != nil {
		t.Error("the second wave came before the first was ready")
	}
	ready := get(t, w.members["a"], deployment("first", 1))
	ready.Status = appsv1.DeploymentStatus{
		ObservedGeneration: ready.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
		Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue},
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
		},
	}
	must(t, w.members["a"].Client().Status().Update(t.Context(), ready))
	isThere(t, w.members["a"], configMap("second"))
	w.synced("waves")
	w.end("waves")
}

func (w *world) testAdopt(t *testing.T) {
	t.Helper()
	b := w.members["b"]
	nobodys := configMap("nobodys", "is", "old", "more", "kept")
	create(t, b, nobodys)
	create(t, w.Local, replicator("has", []string{"b"}, configMap("had", "is", "first")))
	w.synced("has")
	r := replicator("adopts", []string{"b"}, configMap("nobodys", "is", "new"), configMap("had", "is", "second"))
	r.Spec.Conflicts = v1alpha1.ConflictAdopt
	create(t, w.Local, r)
	becomes(t, b, nobodys, "is taken over", func(cm *corev1.ConfigMap) bool {
		return cm.UID == nobodys.UID && cm.Data["is"] == "new" && cm.Data["more"] == "kept"
	})
	w.condition("adopts", v1alpha1.ConditionSynced, "Failed", "had")
	if now := get(t, b, configMap("had")); now == nil || now.Data["is"] != "first" {
		t.Errorf("what another Replicator has is %v", now)
	}
	w.end("adopts")
	isGone(t, b, nobodys)
	isThere(t, b, configMap("had"))
	w.end("has")
}

// testLeave proves with a second Replicator that the program has seen the member go.
func (w *world) testLeave(t *testing.T) {
	t.Helper()
	c := w.members["c"]
	r := replicator("everywhere", nil, configMap("stays", "is", "1"))
	r.Spec.Clusters.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "name", Operator: "Exists"}}}
	create(t, w.Local, r, replicator("named", []string{"c"}, configMap("named")))
	w.synced("everywhere")
	w.synced("named")
	before := get(t, c, configMap("stays"))
	left := &corev1.Secret{}
	must(t, w.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "c"}, left))
	remove(t, w.Local, left.DeepCopy())
	stage.Eventually(t, "the status says that the member is unknown", func() bool { return w.replicator("named").Status.NotSyncedIn == "c (Unknown)" })
	stage.Eventually(t, "two members are targets", func() bool { return w.replicator("everywhere").Status.Targets == 2 })
	w.change("everywhere", func(r *v1alpha1.Replicator) { r.Spec.Manifests[0] = manifest(configMap("stays", "is", "2")) })
	becomes(t, w.members["a"], configMap("stays"), "follows", func(cm *corev1.ConfigMap) bool { return cm.Data["is"] == "2" })
	if now := get(t, c, configMap("stays")); now == nil || now.ResourceVersion != before.ResourceVersion {
		t.Errorf("in the member that has left it is %v", now)
	}
	left.ResourceVersion, left.UID = "", ""
	create(t, w.Local, left)
	becomes(t, c, configMap("stays"), "follows", func(cm *corev1.ConfigMap) bool { return cm.Data["is"] == "2" && cm.UID == before.UID })
	w.synced("everywhere")
	w.end("everywhere")
	w.end("named")
}

// testLeaveWell deletes a Replicator once its only target has left. It would wait for one whose Secret was gone at once.
func (w *world) testLeaveWell(t *testing.T) {
	t.Helper()
	c := w.members["c"]
	create(t, w.Local, replicator("ends", []string{"c"}, configMap("left")))
	w.synced("ends")
	before := get(t, c, configMap("left"))
	described := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c"}}
	must(t, w.Local.Client().Patch(t.Context(), described, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["`+objects.LeaveFinalizer+`"]}}`))))
	stage.Leave(t, w.Local, described)
	w.end("ends")
	if now := get(t, c, configMap("left")); now == nil || now.ResourceVersion != before.ResourceVersion {
		t.Errorf("in the member that has left it is %v", now)
	}
}

// testHubNamespace does what Kubernetes' controller of namespaces does. In a namespace that is being deleted, nothing can be created.
func (w *world) testHubNamespace(t *testing.T) {
	t.Helper()
	orphans := replicator("orphans", []string{"a", "b"}, configMap("orphan"))
	orphans.Spec.DeletionPolicy = v1alpha1.DeletionOrphan
	create(t, w.Local, orphans, replicator("deletes", []string{"a", "b"}, configMap("deleted")))
	w.synced("orphans")
	w.synced("deletes")
	remove(t, w.Local, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}})
	for _, all := range []client.Object{&slicesv1alpha1.DependentSlice{}, &v1alpha1.Replicator{}} {
		must(t, w.Local.Client().DeleteAllOf(t.Context(), all, client.InNamespace(tenant)))
	}
	for _, name := range []string{"orphans", "deletes"} {
		isGone(t, w.Local, replicator(name, nil))
	}
	for _, name := range []string{"a", "b"} {
		isGone(t, w.members[name], configMap("deleted"))
		if cm := get(t, w.members[name], configMap("orphan")); cm == nil || cm.DeletionTimestamp != nil {
			t.Errorf("in %s, what was to stay is %v", name, cm)
		}
		if ns := get(t, w.members[name], &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}); ns == nil || ns.DeletionTimestamp != nil {
			t.Errorf("in %s, the namespace is %v", name, ns)
		}
	}
}

// end deletes a Replicator, and waits until it is gone.
func (w *world) end(name string) {
	w.t.Helper()
	remove(w.t, w.Local, replicator(name, nil))
	isGone(w.t, w.Local, replicator(name, nil))
}

// isIn reports whether a slice of a Replicator has an object in a state.
func (w *world) isIn(replicator, object, state string) bool {
	w.t.Helper()
	list := &slicesv1alpha1.DependentSliceList{}
	must(w.t, w.Local.Client().List(w.t.Context(), list, client.InNamespace(tenant)))
	for _, slice := range list.Items {
		for _, c := range slice.Clusters {
			for _, o := range c.Objects {
				if slice.Owner.Name == replicator && o.Name == object && fmt.Sprint(o.State) == state {
					return true
				}
			}
		}
	}
	return false
}

// TestANamespaceGoesWithTheLastReplicatorIfItWasMadeForThem and stays otherwise. The tenant may do all in the member.
func TestANamespaceGoesWithTheLastReplicatorIfItWasMadeForThem(t *testing.T) {
	t.Parallel()
	w := prepare(t, 1)
	w.run()
	east := w.Members[0]
	create(t, east, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "fleet-runtime:replicator:" + tenant}},
	})
	kubeconfig, err := mctest.Kubeconfig(east.Config())
	must(t, err)
	stage.Join(t, w.Local, "east", kubeconfig, nil)
	w.members["east"] = east
	in := func(namespace string) *v1alpha1.Replicator {
		r := replicator(namespace, []string{"east"}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "own"}})
		r.Spec.Namespace = namespace
		return r
	}
	own := func(namespace string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}}
	}
	is := func(namespace string) *corev1.Namespace {
		return get(t, east, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	create(t, east, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod"}})
	create(t, w.Local, in("made"), in("prod"))

	w.condition("made", v1alpha1.ConditionSynced, "Failed", "made")
	if ns := is("made"); ns != nil {
		t.Errorf("it was not asked for, and there is %v", ns)
	}
	for _, name := range []string{"made", "prod"} {
		w.change(name, func(r *v1alpha1.Replicator) { r.Spec.CreateNamespace = true })
		isThere(t, east, own(name))
		w.synced(name)
	}
	for _, name := range []string{"made", "prod"} {
		w.end(name)
		isGone(t, east, own(name))
	}
	stage.Eventually(t, "the namespace that was made is deleted", func() bool { ns := is("made"); return ns == nil || ns.DeletionTimestamp != nil })
	if ns := is("prod"); ns == nil || ns.DeletionTimestamp != nil {
		t.Errorf("the namespace that was there is %v", ns)
	}
}
