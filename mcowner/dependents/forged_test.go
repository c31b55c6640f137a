package dependents_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// claim creates an object in a member that says it is a dependent of an owner, and of a late wave. Whoever does it knows the names.
func (w *world) claim(cp *mctest.ControlPlane, namespace, owner string) *corev1.ConfigMap {
	w.t.Helper()
	return w.claimAs(cp, namespace, mcowner.Reference{Name: owner, UID: "forged"})
}

func (w *world) claimAs(cp *mctest.ControlPlane, namespace string, ref mcowner.Reference) *corev1.ConfigMap {
	w.t.Helper()
	ref.Fleet, ref.Manager, ref.APIVersion, ref.Kind, ref.Namespace = fleetName, controller, "v1", "ConfigMap", w.ns
	forged := &corev1.ConfigMap{ObjectMeta: metaOf(namespace, "forged")}
	inWave("9", forged)
	if err := mcowner.SetControllerReference(ref, forged, mcowner.ByName(fleet.ClusterName(cp.Name))); err != nil {
		w.t.Fatal(err)
	}
	w.create(cp, forged)
	return forged
}

// TestWhatAUserMayNotRemoveHoldsUpNothingElse: neither other clusters, nor what is of an earlier wave, nor the owner once it gives the cluster up.
func TestWhatAUserMayNotRemoveHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	for name, goes := range map[string]bool{"it is there": false, "others delete it, and keep it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testWhatAUserMayNotRemove(t, goes)
		})
	}
}

func testWhatAUserMayNotRemove(t *testing.T, goes bool) {
	t.Helper()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	forbidden := one.CreateNamespace(t)
	w.grantCopies(one, "from-hub")
	w.grantCopies(two, "from-hub")
	r := w.spread()
	r.Rollout = dependents.Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1}
	r.User = func(mcreconcile.Request) string { return "from-hub" }
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		return []client.Object{w.configMap(owner.Data["value"])}, nil
	}
	dependents.Hasten(r, time.Second)
	told, waits := listen(r), &atomic.Int32{}
	status := r.Status
	r.Status = func(ctx context.Context, owner *corev1.ConfigMap, results []dependents.Result) error {
		for _, o := range results[0].Objects {
			if o.State == dependents.Waiting {
				waits.Add(1)
			}
		}
		return status(ctx, owner, results)
	}
	w.Members = w.Members[:1] // the other joins below
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name, two.Name))
	eventually(t, "the dependent is there", func() bool { return w.get(one, "1") != nil })
	forged := w.claim(one, forbidden, "a")
	left := dependents.Forbidden
	if goes {
		w.deleteHeld(one, forged)
		left = dependents.Deleting
	}
	isTold := func() bool {
		results := told.of("a")
		return len(results) > 0 && results[0].Err != nil && strings.Contains(results[0].Err.Error(), forged.Name) &&
			(goes || apierrors.IsForbidden(results[0].Err))
	}
	isLeft := func() bool { return told.are("a", dependents.Unchanged, left) && (goes || isTold()) }
	eventually(t, "the result says what becomes of it", isLeft)

	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "what is desired now is there", func() bool { return w.get(one, "2") != nil })
	w.isGone(one, "1")
	eventually(t, "the result says the same of it", isLeft)
	if err := p.members.Set(p.member(two)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other cluster follows", func() bool { return w.get(two, "2") != nil })
	waited, tried := waits.Load(), p.power.deletions.Load()
	eventually(t, "its removal is tried again, twice, unless others have begun it", func() bool {
		return goes && p.isAtRest() || !goes && p.power.deletions.Load() > tried+1
	})
	if n := waits.Load() - waited; n > 0 {
		t.Errorf("to be tried again, it waited for a permit %d times", n)
	}

	w.change(w.Local, "a", func(cm *corev1.ConfigMap) {
		cm.Annotations[dependents.DeletionPolicyAnnotation] = string(metav1.DeletePropagationForeground)
	})
	w.remove(w.Local, "a")
	for _, cp := range []*mctest.ControlPlane{one, two} {
		eventually(t, "the dependent is being deleted", func() bool { cm := w.get(cp, "2"); return cm != nil && cm.DeletionTimestamp != nil })
		w.letGo(cp, "2", metav1.FinalizerDeleteDependents) // as Kubernetes' garbage collector does
		w.isGone(cp, "2")
	}
	eventually(t, "nothing else is in the way", func() bool { return len(told.of("a")) == 1 && isTold() && told.are("a", dependents.Forbidden) })
	if !holds(w.mustGet(w.Local, "a")) {
		t.Error("the owner did not wait")
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations[dependents.GiveUpAnnotation] = one.Name })
	w.isGone(w.Local, "a")
	w.told(w.Local, "a", dependents.EventReleased, dependents.GiveUpAnnotation)
	if err := one.Client().Get(t.Context(), client.ObjectKeyFromObject(forged), forged); err != nil {
		t.Error(err)
	}
}

// deleteHeld deletes an object that a finalizer keeps until the test ends.
func (w *world) deleteHeld(cp *mctest.ControlPlane, cm *corev1.ConfigMap) {
	w.t.Helper()
	before := cm.DeepCopy()
	cm.Finalizers = []string{"example.com/test"}
	if err := errors.Join(cp.Client().Patch(w.t.Context(), cm, client.MergeFrom(before)), cp.Client().Delete(w.t.Context(), cm)); err != nil {
		w.t.Fatal(err)
	}
}

// TestAClusterIsGivenUpInWhichSomethingMayNotBeRemoved, once it is no target any more. Before that, it holds up what is of earlier waves.
func TestAClusterIsGivenUpInWhichSomethingMayNotBeRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	forbidden := one.CreateNamespace(t)
	w.grantCopies(one, "controller")
	r := w.spread()
	r.ByName = true
	told := listen(r)
	w.Members = nil // reported below
	p := w.run(r)
	reads := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}}
	if err := p.members.Set(fleet.Member{Name: fleet.ClusterName(one.Name), Config: p.power.feed(one.AddUser(t, "controller", reads))}); err != nil {
		t.Fatal(err)
	}
	w.create(w.Local, w.owner("a", one.Name))
	copied := w.isCopied(one, "a")
	claimed := w.claim(one, forbidden, "a")
	eventually(t, "it is forbidden", func() bool { return told.are("a", dependents.Unchanged, dependents.Forbidden) })
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations[dependents.GiveUpAnnotation] = one.Name })
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "a target is served", func() bool { return w.mustGet(one, copyOf("a")).Data["value"] == "2" })
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { delete(cm.Annotations, dependents.GiveUpAnnotation) })
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
	eventually(t, "it holds up the other", func() bool { return told.are("a", dependents.Forbidden, dependents.Waiting) })
	w.unharmed(one, copied)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations[dependents.GiveUpAnnotation] = one.Name })
	w.isGone(one, copyOf("a"))
	w.told(w.Local, "a", dependents.EventReleased, one.Name)
	eventually(t, "it is waited for no more", func() bool { return len(told.of("a")) == 0 })
	eventually(t, "all is at rest", p.isAtRest)
	inHub := func() int32 { return p.power.writes.Load() - p.power.deletions.Load() }
	before, tried := inHub(), p.power.deletions.Load()
	for range 5 {
		now := claimed.DeepCopy()
		now.Data = map[string]string{"touched": rand.Text()}
		if err := one.Client().Patch(t.Context(), now, client.MergeFrom(claimed)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "its removal is tried", func() bool { return p.power.deletions.Load() > tried })
		tried = p.power.deletions.Load()
	}
	eventually(t, "all is at rest again", p.isAtRest)
	if n := inHub() - before; n > 0 {
		t.Errorf("%d writes to the owner as others write to what may not be removed", n)
	}
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
}

// TestWhatAPolicyForbidsToRemoveHoldsUpEarlierWaves also where owners have users: it is the owner's, and an operator goes after what it looks after.
func TestWhatAPolicyForbidsToRemoveHoldsUpEarlierWaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	w.grantCopies(one, "from-hub")
	r := w.spread()
	r.User = func(mcreconcile.Request) string { return "from-hub" }
	used := w.ns + "-in-use"
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		if owner.Data["value"] == "none" {
			return nil, nil
		}
		return []client.Object{inWave("0", w.configMap("operator")), inWave("1", w.configMap(used))}, nil
	}
	dependents.Hasten(r, time.Second)
	told := listen(r)
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	eventually(t, "both are there", func() bool { return told.are("a", dependents.Unchanged, dependents.Unchanged) })
	operator := w.mustGet(one, "operator")
	lift := w.keepsUsed(one, used)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "none" })
	eventually(t, "it is forbidden", func() bool { return told.are("a", dependents.Forbidden, dependents.Waiting) })
	tried := p.power.deletions.Load()
	eventually(t, "it was tried for longer than what has no right may hold it up", func() bool { return p.power.deletions.Load() > tried+5 })
	w.unharmed(one, operator)
	lift()
	w.isGone(one, used)
	w.isGone(one, operator.Name)
}

// TestARightThatIsMissedForAMomentHoldsUpEarlierWaves, as while a RoleBinding is replaced: an operator goes after what it looks after.
func TestARightThatIsMissedForAMomentHoldsUpEarlierWaves(t *testing.T) {
	t.Parallel()
	for name, goes := range map[string]bool{"to what is there": false, "to what is being deleted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			elsewhere := one.CreateNamespace(t)
			w.grantCopies(one, "from-hub")
			grant, revoke := w.rightTo(one, elsewhere, "from-hub")
			grant()
			r := w.spread()
			r.User = func(mcreconcile.Request) string { return "from-hub" }
			r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
				if owner.Data["value"] == "none" {
					return nil, nil
				}
				looked := &corev1.ConfigMap{ObjectMeta: metaOf(elsewhere, "looked-after")}
				if goes {
					looked.Finalizers = []string{"example.com/test"}
				}
				return []client.Object{inWave("0", w.configMap("operator")), inWave("1", looked)}, nil
			}
			dependents.Hasten(r, 5*time.Second)
			told := listen(r)
			w.run(r)
			w.create(w.Local, w.owner("a", one.Name))
			eventually(t, "both are there", func() bool { return told.are("a", dependents.Unchanged, dependents.Unchanged) })
			operator := w.mustGet(one, "operator")
			if !goes {
				revoke()
			}
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "none" })
			if goes {
				eventually(t, "it is being deleted", func() bool { return told.are("a", dependents.Deleting, dependents.Waiting) })
				revoke()
			}
			eventually(t, "it is forbidden", func() bool { return told.are("a", dependents.Forbidden, dependents.Waiting) })
			grant()
			w.unharmed(one, operator)
			if goes {
				w.release(one, &corev1.ConfigMap{ObjectMeta: metaOf(elsewhere, "looked-after")})
			}
			w.isGone(one, operator.Name)
			if err := one.Client().Get(t.Context(), client.ObjectKey{Namespace: elsewhere, Name: "looked-after"}, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
				t.Errorf("what it looks after is there still: %v", err)
			}
		})
	}
}

// rightTo returns what grants a user the right to ConfigMaps of a namespace, and what takes it away. Both wait until the API server knows.
func (w *world) rightTo(cp *mctest.ControlPlane, namespace, user string) (grant, revoke func()) {
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "patch", "delete"}}
	w.create(cp, &rbacv1.Role{ObjectMeta: metaOf(namespace, user), Rules: []rbacv1.PolicyRule{rule}})
	binding := func() *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{
			ObjectMeta: metaOf(namespace, user),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}
	}
	is := func(want bool) {
		w.t.Helper()
		eventually(w.t, fmt.Sprintf("%s has the right to delete: %t", user, want), func() bool {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "delete", Resource: "configmaps", Version: "v1"},
			}}
			return cp.Client().Create(w.t.Context(), review) == nil && review.Status.Allowed == want
		})
	}
	return func() { w.create(cp, binding()); is(true) }, func() {
		if err := cp.Client().Delete(w.t.Context(), binding()); err != nil {
			w.t.Fatal(err)
		}
		is(false)
	}
}

// keepsUsed makes a cluster forbid to delete a ConfigMap, by a policy, until it is lifted.
func (w *world) keepsUsed(cp *mctest.ControlPlane, name string) (lift func()) {
	w.t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	policy.Spec = admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			ResourceNames: []string{name},
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			},
		}}},
		Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "in use", Reason: new(metav1.StatusReasonForbidden)}},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: policy.ObjectMeta}
	binding.Spec = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}
	w.create(cp, policy)
	w.create(cp, binding)
	eventually(w.t, "the policy holds", func() bool {
		return apierrors.IsForbidden(cp.Client().Delete(w.t.Context(), w.configMap(name), client.DryRunAll))
	})
	return func() {
		if err := cp.Client().Delete(w.t.Context(), binding); err != nil {
			w.t.Error(err)
		}
	}
}

// TestAClusterIsGivenUpInWhichAnObjectSaysAnotherIdentity of the owner's cluster: the object is left alone, and the rest is removed.
func TestAClusterIsGivenUpInWhichAnObjectSaysAnotherIdentity(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	w.run(w.spread())
	w.create(w.Local, w.owner("a", one.Name))
	w.isCopied(one, "a")
	claimed := w.claimAs(one, w.ns, mcowner.Reference{Name: "a", UID: w.mustGet(w.Local, "a").UID, ClusterUID: "another"})
	w.remove(w.Local, "a")
	w.isGone(one, copyOf("a"))
	w.told(w.Local, "a", dependents.EventConflict, claimed.Name)
	if !holds(w.mustGet(w.Local, "a")) {
		t.Error("the owner did not wait")
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations[dependents.GiveUpAnnotation] = one.Name })
	w.isGone(w.Local, "a")
	w.unharmed(one, claimed)
}
