package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// TestReplicatorsInOneMember shows what tenants may, cannot, and are told.
func TestReplicatorsInOneMember(t *testing.T) {
	t.Parallel()
	w := start(t, "", "east")
	east := w.members["east"]
	here := []string{"east"}

	t.Run("what is refused names the field", func(t *testing.T) { w.testRefused(t) })
	t.Run("kinds and namespaces that are not allowed are told, and others proceed", func(t *testing.T) {
		r := replicator("greedy", here, configMap("modest"))
		r.Spec.Manifests = append(r.Spec.Manifests,
			raw(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"mine"}}`),
			raw(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"theirs","namespace":"kube-system"}}`))
		create(t, w.Local, r)
		isThere(t, east, configMap("modest"))
		w.condition("greedy", v1alpha1.ConditionSynced, "Failed", "--kinds does not name it")
		stage.Eventually(t, "a slice tells of it", func() bool { return w.tells("greedy", "theirs") })
		if list := (&corev1.ConfigMapList{}); east.Client().List(t.Context(), list) != nil || len(list.Items) == 0 {
			t.Error("ConfigMaps cannot be listed")
		} else {
			for _, cm := range list.Items {
				if cm.Name == "theirs" {
					t.Error("it was written into another namespace")
				}
			}
		}
	})
	t.Run("what the member's policies deny is told in their words, and others proceed", func(t *testing.T) { w.testDenied(t) })
	t.Run("an object of the hub is followed, if it says so and is in the namespace", func(t *testing.T) { w.testSources(t) })
	t.Run("a selector follows labels", func(t *testing.T) {
		r := replicator("labelled", nil, configMap("labelled"))
		r.Spec.Clusters.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "west"}}
		create(t, w.Local, r)
		w.condition("labelled", v1alpha1.ConditionSynced, v1alpha1.ReasonNoTargets, "spec.clusters")
		w.change("labelled", func(r *v1alpha1.Replicator) { r.Spec.Clusters.Selector.MatchLabels["name"] = "east" })
		isThere(t, east, configMap("labelled"))
	})
	t.Run("Orphan lets objects stay, also if it was said just before the end", func(t *testing.T) {
		create(t, w.Local, replicator("orphans", here, configMap("orphan")))
		w.synced("orphans")
		w.program.Freeze()
		w.change("orphans", func(r *v1alpha1.Replicator) { r.Spec.DeletionPolicy = v1alpha1.DeletionOrphan })
		remove(t, w.Local, w.replicator("orphans"))
		w.program.Thaw()
		isGone(t, w.Local, w.replicator("orphans"))
		if cm := get(t, east, configMap("orphan")); cm == nil || cm.DeletionTimestamp != nil {
			t.Error("it is gone")
		}
	})
	t.Run("what is stuck is told", func(t *testing.T) {
		r := replicator("stuck", here, deployment("never-ready", 1))
		r.Spec.Rollout.ProgressDeadlineSeconds = 1
		create(t, w.Local, r)
		w.condition("stuck", v1alpha1.ConditionProgressing, dependents.ReasonDeadlineExceeded, "east")
		w.condition("stuck", v1alpha1.ConditionSynced, "Done", "")
	})
}

// testDenied has a policy of the member that denies one object, until it is gone.
func (w *world) testDenied(t *testing.T) {
	t.Helper()
	east := w.members["east"]
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "denies"}}
	policy.Spec = admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			ResourceNames: []string{"denied"},
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			},
		}}},
		Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "east has no place for it"}},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: policy.ObjectMeta}
	binding.Spec = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}
	create(t, east, policy, binding)
	stage.Eventually(t, "the policy holds", func() bool {
		return east.Client().Create(t.Context(), configMap("denied"), client.DryRunAll) != nil
	})
	create(t, w.Local, replicator("with-denied", []string{"east"}, configMap("denied"), configMap("beside-denied")))
	isThere(t, east, configMap("beside-denied"))
	w.condition("with-denied", v1alpha1.ConditionSynced, "Failed", "east has no place for it")
	if said := w.replicator("with-denied").Status.NotSyncedIn; said != "east (Failed)" {
		t.Errorf("the column says %q", said)
	}
	remove(t, east, policy)
	remove(t, east, binding)
	w.synced("with-denied")
	isThere(t, east, configMap("denied"))
}

// testRefused has the API server refuse what makes no sense.
func (w *world) testRefused(t *testing.T) {
	t.Helper()
	fraction := intstr.FromString("0%")
	for _, tc := range []struct {
		field, says string
		change      func(*v1alpha1.Replicator)
	}{
		{"spec.manifests", "must have something", func(r *v1alpha1.Replicator) { r.Spec.Manifests = nil }},
		{"spec.manifests", "at most 50 items", func(r *v1alpha1.Replicator) { r.Spec.Manifests = manifests(51) }},
		{"spec.manifests[0]", "metadata.name is required", func(r *v1alpha1.Replicator) {
			r.Spec.Manifests[0] = raw(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`)
		}},
		{"spec.manifests[0]", "at most 253 characters", func(r *v1alpha1.Replicator) {
			r.Spec.Manifests[0] = raw(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, strings.Repeat("n", 300))
		}},
		{"spec.manifests[0].kind", "Required value", func(r *v1alpha1.Replicator) { r.Spec.Manifests[0] = raw(`{"apiVersion":"v1","metadata":{"name":"a"}}`) }},
		{"spec.clusters", "one of names, selector and decisionKey", func(r *v1alpha1.Replicator) { r.Spec.Clusters.Names = nil }},
		{"spec.clusters.names[0]", "Too long", func(r *v1alpha1.Replicator) { r.Spec.Clusters.Names = []string{strings.Repeat("n", 300)} }},
		{"spec.clusters.selector", "an empty selector selects nothing", func(r *v1alpha1.Replicator) { r.Spec.Clusters.Selector = &metav1.LabelSelector{} }},
		{"spec.clusters.selector", "In and NotIn need values", func(r *v1alpha1.Replicator) {
			r.Spec.Clusters.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "In"}}}
		}},
		{"spec.clusters.selector", "at most 250 labels", func(r *v1alpha1.Replicator) { r.Spec.Clusters.Selector = selectorOf(249) }},
		{"spec.overrides[0].selector", "at most 250 labels", func(r *v1alpha1.Replicator) {
			exists := metav1.LabelSelectorRequirement{Key: "a", Operator: metav1.LabelSelectorOpExists}
			r.Spec.Overrides = []v1alpha1.Override{{MergePatch: rawJSON("{}"), Selector: &metav1.LabelSelector{
				MatchExpressions: slices.Repeat([]metav1.LabelSelectorRequirement{exists}, 251),
			}}}
		}},
		{"spec.overrides", "at most 50 items", func(r *v1alpha1.Replicator) {
			r.Spec.Overrides = slices.Repeat([]v1alpha1.Override{{MergePatch: rawJSON("{}")}}, 51)
		}},
		{"spec.overrides[0]", "exactly one of mergePatch, jsonPatch", func(r *v1alpha1.Replicator) { r.Spec.Overrides = []v1alpha1.Override{{}} }},
		{"spec.overrides[0].selector", "or no selector for all", func(r *v1alpha1.Replicator) {
			r.Spec.Overrides = []v1alpha1.Override{{Selector: &metav1.LabelSelector{}, MergePatch: rawJSON("{}")}}
		}},
		{"spec.overrides[0].cel[0].path", "should match", func(r *v1alpha1.Replicator) {
			r.Spec.Overrides = []v1alpha1.Override{{CEL: []v1alpha1.Expression{{Path: "spec", Expression: "1"}}}}
		}},
		{"spec.rollout.maxParallel", "must be a number from 1 to 2147483647", func(r *v1alpha1.Replicator) { r.Spec.Rollout.MaxParallel = &fraction }},
		{"spec.rollout.progressDeadlineSeconds", "greater than or equal to 1", func(r *v1alpha1.Replicator) { r.Spec.Rollout.ProgressDeadlineSeconds = -1 }},
		{"spec.namespace", "should match", func(r *v1alpha1.Replicator) { r.Spec.Namespace = "Not_A_Label" }},
		{"spec.conflicts", "Unsupported value", func(r *v1alpha1.Replicator) { r.Spec.Conflicts = "Take" }},
	} {
		r := replicator("refused", []string{"east"}, configMap("refused"))
		tc.change(r)
		err := w.Local.Client().Create(t.Context(), r)
		status, _ := errors.AsType[*apierrors.StatusError](err)
		if status == nil || status.ErrStatus.Details == nil || !slices.ContainsFunc(status.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool {
			return c.Field == tc.field && strings.Contains(c.Message, tc.says)
		}) {
			t.Errorf("where %s should be refused as %q, creating it returned %v", tc.field, tc.says, err)
		}
	}
	large := configMap("large", "a", strings.Repeat("a", 1<<20))
	if err := w.Local.Client().Create(t.Context(), replicator("refused", []string{"east"}, large, configMap("b", "b", strings.Repeat("b", 1<<20)))); err == nil {
		t.Error("two manifests of a megabyte were taken")
	}
}

func manifests(n int) []v1alpha1.Manifest {
	all := make([]v1alpha1.Manifest, n)
	for i := range all {
		all[i] = manifest(configMap(fmt.Sprintf("cm-%d", i)))
	}
	return all
}

func (w *world) testSources(t *testing.T) {
	t.Helper()
	east := w.members["east"]
	source := configMap("source", "is", "1")
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "theirs", Labels: map[string]string{v1alpha1.SourceLabel: "true"}}}
	create(t, w.Local, source, theirs)
	r := replicator("refers", []string{"east"}, configMap("beside"))
	r.Spec.References = []v1alpha1.Reference{{Kind: "ConfigMap", Name: "source", As: "copied"}, {Kind: "Secret", Name: "theirs"}}
	create(t, w.Local, r)
	isThere(t, east, configMap("beside"))
	w.condition("refers", v1alpha1.ConditionSynced, "Failed", "has not the label")
	if get(t, east, configMap("copied")) != nil {
		t.Error("an object was copied that does not say it may be")
	}
	source.Labels = map[string]string{v1alpha1.SourceLabel: "true"}
	must(t, w.Local.Client().Update(t.Context(), source))
	is := func(value string) func(*corev1.ConfigMap) bool {
		return func(cm *corev1.ConfigMap) bool {
			return cm.Data["is"] == value && cm.Labels[v1alpha1.SourceLabel] == ""
		}
	}
	becomes(t, east, configMap("copied"), "is a copy", is("1"))
	source.Data["is"] = "2"
	must(t, w.Local.Client().Update(t.Context(), source))
	becomes(t, east, configMap("copied"), "follows", is("2"))
	w.condition("refers", v1alpha1.ConditionSynced, "Failed", "Secret team-a/theirs is not there")
	w.change("refers", func(r *v1alpha1.Replicator) { r.Spec.References = r.Spec.References[:1] })
	w.synced("refers")
	remove(t, w.Local, source)
	w.condition("refers", v1alpha1.ConditionSynced, "Failed", "source")
	isThere(t, east, configMap("copied")) // it may be back in a moment
}
