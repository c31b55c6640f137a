package dependents_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// itself on an owner says that it desires its namespace itself.
const itself = "itself"

// withItself returns what is desired, and the namespace itself if the owner says so.
func withItself(owner client.Object, namespace string, all ...client.Object) []client.Object {
	if owner.GetAnnotations()[itself] == "yes" {
		all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	return all
}

// hasCopy reports whether the copy of an owner is in a namespace.
func (w *world) hasCopy(cp *mctest.ControlPlane, namespace, owner string) bool {
	w.t.Helper()
	return w.isThere(cp, &corev1.ConfigMap{ObjectMeta: metaOf(namespace, copyOf(owner))})
}

// desiring is a reconciler that creates namespaces, some of which owners desire themselves. Copies say which version of the owner they are of.
func (w *world) desiring(namespace string, results *latest) *dependents.Reconciler[*corev1.ConfigMap] {
	r := w.inNamespaces()
	r.Status = results.note
	r.Kinds = append(r.Kinds, &corev1.Namespace{})
	r.Policy.Conflict = dependents.AdoptUnowned
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		switch owner.Annotations[itself] {
		case "unknown":
			return all, errors.New("the rest is not known")
		case "no, and what cannot be":
			return append(all, &corev1.ConfigMap{ObjectMeta: metaOf(namespace, "not a name")}), err
		}
		all[0].(*corev1.ConfigMap).Data = map[string]string{"version": owner.Data["version"]} //nolint:forcetypeassert // inNamespaces makes them so
		return withItself(owner, namespace, all...), err
	}
	return r
}

// runDesiring runs a program of desiring.
func (w *world) runDesiring(namespace string, results *latest) *process {
	w.t.Helper()
	return w.run(w.desiring(namespace, results))
}

// desireItself creates an owner that desires its namespace itself, and has a copy there.
func (w *world) desireItself(cp *mctest.ControlPlane, owner, namespace string) {
	w.t.Helper()
	cm := w.ownerIn(owner, namespace)
	cm.Annotations[itself] = "yes"
	w.create(w.Local, cm)
	eventually(w.t, "the copy of "+owner+" is there", func() bool { return w.hasCopy(cp, namespace, owner) })
}

// desireNoMore lets an owner desire only what is in its namespace.
func (w *world) desireNoMore(owner string) {
	w.t.Helper()
	w.change(w.Local, owner, func(cm *corev1.ConfigMap) { delete(cm.Annotations, itself) })
}

// createdBy returns what a namespace says of it for whom it was created.
func (w *world) createdBy(cp *mctest.ControlPlane, namespace string) string {
	w.t.Helper()
	return w.namespace(cp, namespace).Annotations[mcowner.CreatedByAnnotation]
}

// TestANamespaceThatItsOwnerDesiresNoMoreGoesOnlyIfItIsEmpty: the owner has created it as its dependent, and still needs it for what is in it, as does
// another owner, to which nothing changes.
func TestANamespaceThatItsOwnerDesiresNoMoreGoesOnlyIfItIsEmpty(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]string{"it has something of others": {"a", "b"}, "it is empty": {"b", "a"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one, name := w.Members[0], w.ns+"-new"
			p := w.runDesiring(name, &latest{})
			w.desireItself(one, "a", name)
			w.create(w.Local, w.ownerIn("b", name))
			eventually(t, "the copy of b is there", func() bool { return w.hasCopy(one, name, "b") })
			w.desireNoMore("a")
			eventually(t, "it says so", func() bool { return w.createdBy(one, name) == fleetName+"/"+controller })
			w.change(w.Local, "b", func(cm *corev1.ConfigMap) { cm.Annotations["look"] = "again" })
			eventually(t, "the program is at rest", p.isAtRest)
			if n := w.ownersOf(one, name); n != 1 {
				t.Errorf("it has %d owners, want the one that has created it", n)
			}
			w.remove(w.Local, order[0])
			w.isGone(w.Local, order[0])
			if w.namespace(one, name) == nil {
				t.Fatal("it goes with what the other owner has in it")
			}
			w.remove(w.Local, order[1])
			w.isGone(w.Local, order[1])
			if isThere := w.namespace(one, name) != nil; isThere != (order[0] == "a") {
				t.Errorf("it is there in the end: %v", isThere)
			}
		})
	}
}

// TestANamespaceThatItsOwnerDesiresNoMoreStaysIfItDoesNotSaySo, as somebody took that from it.
func TestANamespaceThatItsOwnerDesiresNoMoreStaysIfItDoesNotSaySo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, name := w.Members[0], w.ns+"-new"
	p := w.runDesiring(name, &latest{})
	w.desireItself(one, "a", name)
	w.desireNoMore("a")
	eventually(t, "it says so", func() bool { return w.createdBy(one, name) != "" })
	p.stop()
	there := w.namespace(one, name)
	before := there.DeepCopy()
	delete(there.Annotations, mcowner.CreatedByAnnotation)
	if err := one.Client().Patch(t.Context(), there, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.remove(w.Local, "a")
	w.runDesiring(name, &latest{})
	w.isGone(w.Local, "a")
	if w.namespace(one, name) == nil {
		t.Error("it goes")
	}
}

// TestANamespaceSaysThatItIsDesiredNoMoreWhateverElseFails, and nothing else does that has its name.
func TestANamespaceSaysThatItIsDesiredNoMoreWhateverElseFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, owner := w.Members[0], w.ns
	name := copyOf(owner)
	p := w.runDesiring(name, &latest{})
	w.desireItself(one, owner, name)
	w.change(w.Local, owner, func(cm *corev1.ConfigMap) { cm.Annotations[itself] = "no, and what cannot be" })
	eventually(t, "it says so", func() bool { return w.createdBy(one, name) != "" })
	eventually(t, "the program is at rest", p.isAtRest)
	copied := &corev1.ConfigMap{ObjectMeta: metaOf(name, copyOf(owner))}
	if !w.isThere(one, copied) || copied.Annotations[mcowner.CreatedByAnnotation] != "" {
		t.Errorf("the copy has the annotations %v", copied.Annotations)
	}
}

// isForbiddenToChange lets nobody change a namespace any more.
func (w *world) isForbiddenToChange(cp *mctest.ControlPlane, namespace string) {
	w.t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	rule := admissionregistrationv1.NamedRuleWithOperations{ResourceNames: []string{namespace}}
	rule.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
	rule.Rule = admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"namespaces"}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule}}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "false"}}
	w.create(cp, policy)
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	binding.Spec.PolicyName = namespace
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	w.create(cp, binding)
	w.cannotBeChanged(cp, namespace)
}

// asksWhatIsDown lets a webhook that does not run decide whether a namespace may be changed.
func (w *world) asksWhatIsDown(cp *mctest.ControlPlane, namespace string) {
	w.t.Helper()
	hook := admissionregistrationv1.ValidatingWebhook{
		Name: "down.example.com", SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"namespaces"}},
		}},
	}
	w.create(cp, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace}, Webhooks: []admissionregistrationv1.ValidatingWebhook{hook},
	})
	w.cannotBeChanged(cp, namespace)
}

// cannotBeChanged waits until the API server refuses to change a namespace.
func (w *world) cannotBeChanged(cp *mctest.ControlPlane, namespace string) {
	w.t.Helper()
	eventually(w.t, "it cannot be changed", func() bool {
		there := w.namespace(cp, namespace)
		before := there.DeepCopy()
		there.Labels["changed"] = ""
		return cp.Client().Patch(w.t.Context(), there, client.MergeFrom(before), client.DryRunAll) != nil
	})
}

// TestANamespaceThatMayNotSaySoFailsNoRollout: what is desired is there.
func TestANamespaceThatMayNotSaySoFailsNoRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, name := w.Members[0], w.ns+"-new"
	var results latest
	r := w.desiring(name, &results)
	r.Rollout = dependents.Rollout{HaltAfter: 1}
	p := w.run(r)
	w.desireItself(one, "a", name)
	eventually(t, "the program is at rest", p.isAtRest)
	w.isForbiddenToChange(one, name)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) {
		delete(cm.Annotations, itself)
		cm.Data["version"] = "2"
	})
	eventually(t, "it is told", func() bool {
		err := results.of("a", one).Err
		return err != nil && strings.Contains(err.Error(), "only if it is empty")
	})
	eventually(t, "the program is at rest", p.isAtRest)
	if failed := w.failedIn(); failed != "" {
		t.Errorf("it counts as a failure in %s", failed)
	}
}

// TestANamespaceThatCannotSaySoHoldsUpNoRollout: what is desired is there, and nobody knows when the webhook is.
func TestANamespaceThatCannotSaySoHoldsUpNoRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	name := w.ns + "-new"
	r := w.desiring(name, &latest{})
	r.Rollout = dependents.Rollout{MaxParallel: intstr.FromInt32(1)}
	p := w.run(r)
	w.desireItself(w.Members[0], "a", name)
	eventually(t, "the other copy is there", func() bool { return w.hasCopy(w.Members[1], name, "a") })
	eventually(t, "the program is at rest", p.isAtRest)
	for _, cp := range w.Members {
		w.asksWhatIsDown(cp, name)
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) {
		delete(cm.Annotations, itself)
		cm.Data["version"] = "2"
	})
	for _, cp := range w.Members {
		eventually(t, cp.Name+" has what is new", func() bool { return w.versionIn(cp, name, "a") == "2" })
	}
}

// versionIn returns which version of an owner its copy is of, in a namespace.
func (w *world) versionIn(cp *mctest.ControlPlane, namespace, owner string) string {
	w.t.Helper()
	there := &corev1.ConfigMap{ObjectMeta: metaOf(namespace, copyOf(owner))}
	w.isThere(cp, there)
	return there.Data["version"]
}

// TestANamespaceThatItsOwnerDesiresNoMoreSaysSoWhateverElseIsSuspended: it is only more careful to say so.
func TestANamespaceThatItsOwnerDesiresNoMoreSaysSoWhateverElseIsSuspended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, name := w.Members[0], w.ns+"-new"
	var results latest
	r := w.desiring(name, &results)
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		other := &corev1.ConfigMap{ObjectMeta: metaOf(w.ns, "other"), Data: owner.Data}
		other.Annotations = map[string]string{dependents.SuspendAnnotation: owner.Annotations["suspended"]}
		return append(all, other), err
	}
	p := w.run(r)
	w.desireItself(one, "partly", name)
	eventually(t, "the program is at rest", p.isAtRest)
	w.create(one, &corev1.ConfigMap{ObjectMeta: metaOf(name, "of-others")})
	w.change(w.Local, "partly", func(cm *corev1.ConfigMap) {
		delete(cm.Annotations, itself)
		cm.Annotations["suspended"] = "true"
		cm.Data["version"] = "2"
	})
	eventually(t, "something is suspended", func() bool { return slices.Contains(results.states("partly", one), dependents.Suspended) })
	eventually(t, "the program is at rest", p.isAtRest)
	w.remove(w.Local, "partly")
	w.isGone(w.Local, "partly")
	if w.namespace(one, name) == nil {
		t.Error("it goes, with what others have in it")
	}
}

// TestANamespaceThatItsOwnerDesiresNoMoreGoesAfterWhatIsOfItsWave: what the owner has in it is not of others.
func TestANamespaceThatItsOwnerDesiresNoMoreGoesAfterWhatIsOfItsWave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, name := w.Members[0], w.ns+"-new"
	r := w.desiring(name, &latest{})
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		for i := range 4 { // so that it is not the last by chance
			all = append(all, &corev1.ConfigMap{ObjectMeta: metaOf(name, fmt.Sprintf("more-%d", i))})
		}
		for _, obj := range all {
			obj.SetAnnotations(map[string]string{dependents.WaveAnnotation: "1"})
		}
		return all, err
	}
	w.run(r)
	w.desireItself(one, "waved", name)
	w.desireNoMore("waved")
	eventually(t, "it says so", func() bool { return w.createdBy(one, name) != "" })
	w.remove(w.Local, "waved")
	w.isGone(w.Local, "waved")
	if there := w.namespace(one, name); there != nil {
		t.Errorf("it stays, with the annotations %v", there.Annotations)
	}
}

// TestANamespaceIsNotSaidToBeDesiredNoMoreWhileThatIsNotKnown, as where Desired returns a part, and an error.
func TestANamespaceIsNotSaidToBeDesiredNoMoreWhileThatIsNotKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, name := w.Members[0], w.ns+"-new"
	var results latest
	w.runDesiring(name, &results)
	w.desireItself(one, "a", name)
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations[itself] = "unknown" })
	eventually(t, "it is told", func() bool { return results.of("a", one).Err != nil })
	if said := w.createdBy(one, name); said != "" {
		t.Errorf("it says that it was created by %s", said)
	}
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	if w.namespace(one, name) != nil {
		t.Error("it stays, although it is its owner's")
	}
}

// TestANamespaceThatItsOwnerDesiresNoMoreStaysIfItWasThereBefore, also without anything in it.
func TestANamespaceThatItsOwnerDesiresNoMoreStaysIfItWasThereBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, name := w.Members[0], w.ns+"-new"
	w.create(one, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	var results latest
	w.runDesiring(name, &results)
	w.desireItself(one, "a", name)
	eventually(t, "it is told of", func() bool { return len(results.of("a", one).Objects) == 2 })
	w.desireNoMore("a")
	eventually(t, "it is told of no more", func() bool { return len(results.of("a", one).Objects) == 1 })
	if w.createdBy(one, name) != "" {
		t.Error("it has the mark of one that goes if it is empty")
	}
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	if w.namespace(one, name) == nil {
		t.Error("it goes with its owner")
	}
}

// TestANamespaceThatItsOwnerDesiresNoMoreIsHiddenFromTheGarbageCollector, which would not look whether it is empty.
func TestANamespaceThatItsOwnerDesiresNoMoreIsHiddenFromTheGarbageCollector(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	name := w.ns + "-new"
	w.run(&dependents.Reconciler[*rbacv1.ClusterRole]{ // owners in a namespace have no native reference on one
		Fleet: fleetName, Name: controller, OwnersIn: mcowner.Clusters{Local: true}, CreateNamespaces: true,
		DependentsIn: mcowner.Clusters{Local: true}, Kinds: []client.Object{&corev1.ConfigMap{}, &corev1.Namespace{}},
		Targets: func(_ context.Context, owner *rbacv1.ClusterRole) ([]mcreconcile.ClusterName, error) {
			if owner.Name != w.ns {
				return nil, nil
			}
			return []mcreconcile.ClusterName{mcreconcile.LocalCluster}, nil
		},
		Desired: func(_ context.Context, owner *rbacv1.ClusterRole, _ dependents.Target) ([]client.Object, error) {
			return withItself(owner, name, &corev1.ConfigMap{ObjectMeta: metaOf(name, copyOf("a"))}), nil
		},
	})
	natives := func() int { return len(w.namespace(w.Local, name).OwnerReferences) }
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.ns, Annotations: map[string]string{itself: "yes"}}}
	w.create(w.Local, role)
	eventually(t, "the copy is there", func() bool { return w.hasCopy(w.Local, name, "a") })
	if natives() != 1 {
		t.Error("what the owner desires itself has no native reference")
	}
	if err := w.Local.Client().Patch(t.Context(), role, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"itself":null}}}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is hidden", func() bool { return natives() == 0 })
}
