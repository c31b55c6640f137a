package dependents_test

import (
	"context"
	"encoding/base64"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// refusesWith makes a cluster refuse what is done to a Secret with words that an expression finds.
func (w *world) refusesWith(cp *mctest.ControlPlane, policyName, secret, words string, ops ...admissionregistrationv1.OperationType) {
	w.t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: policyName}}
	policy.Spec = admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			ResourceNames: []string{secret},
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: ops,
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
			},
		}}},
		Validations: []admissionregistrationv1.Validation{{Expression: "false", MessageExpression: words}},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: policy.ObjectMeta}
	binding.Spec = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}
	w.create(cp, policy)
	w.create(cp, binding)
}

// policyThatQuotes makes a cluster refuse a Secret with words that quote it. It returns once the cluster does.
func (w *world) policyThatQuotes(cp *mctest.ControlPlane, name string) {
	w.t.Helper()
	w.refusesWith(cp, "quotes", name, "'too weak: ' + string(object.data.password)", admissionregistrationv1.Create, admissionregistrationv1.Update)
	eventually(w.t, "the policy holds", func() bool {
		probe := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, StringData: map[string]string{"password": "probe"}}
		err := cp.Client().Create(w.t.Context(), probe, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "too weak")
	})
}

// TestWhatASecretHoldsIsNotTold by errors and events, although the API server, or a policy of the member, quotes it. What was refused
// is told, and for which reason; and what quotes nothing is told as it is.
func TestWhatASecretHoldsIsNotTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	w.policyThatQuotes(one, "weak")
	const password, number = "s3cr3t-of-many-words", int64(9876543210)
	secret := func(name string, holds map[string]any) client.Object {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": w.ns, "name": name}, "stringData": holds,
		}}
	}
	annotated := func(key string) client.Object { // by whoever fills in what an object says from a Secret
		obj := secret("annotated", map[string]any{"password": password})
		obj.SetAnnotations(map[string]string{key: password})
		return obj
	}
	desired := map[string]client.Object{
		"weak":   secret("weak", map[string]any{"password": password}),
		"number": secret("number", map[string]any{"password": number}),
		"key":    secret("key", map[string]any{"no key!": password}),
		"wave":   annotated(dependents.WaveAnnotation),
		"change": annotated(dependents.ChangeAnnotation),
	}
	r := w.spread()
	r.Kinds = []client.Object{&corev1.Secret{}}
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		return []client.Object{desired[owner.Name]}, nil
	}
	var mu sync.Mutex
	told := map[string]string{}
	r.Status = func(_ context.Context, owner *corev1.ConfigMap, results []dependents.Result) error {
		mu.Lock()
		defer mu.Unlock()
		for _, result := range results {
			if result.Err != nil {
				told[owner.Name] += result.Err.Error() + "\n"
			}
			for _, o := range result.Objects {
				if o.Err != nil {
					told[owner.Name] += o.Err.Error() + "\n"
				}
			}
		}
		return nil
	}
	w.run(r)
	for name := range desired {
		w.create(w.Local, w.owner(name, one.Name))
	}
	for name, says := range map[string]string{"weak": "/weak", "number": "/number", "key": "no key!", "wave": "/annotated", "change": "/annotated"} {
		w.told(w.Local, name, dependents.EventFailed, says)
	}
	events := &eventsv1.EventList{}
	if err := w.Local.Client().List(t.Context(), events, client.InNamespace(w.ns)); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, e := range events.Items {
		all.WriteString(e.Note + "\n")
	}
	mu.Lock()
	defer mu.Unlock()
	for _, text := range told {
		all.WriteString(text)
	}
	for _, hidden := range []string{password, "s3cr3t", base64.StdEncoding.EncodeToString([]byte(password)), "9876543210"} {
		if strings.Contains(all.String(), hidden) {
			t.Errorf("it is told that a Secret holds %s:\n%s", hidden, all.String())
		}
	}
	for _, reason := range []string{"Invalid", "unknown"} {
		if says := "and is not told; its reason is " + reason; !strings.Contains(all.String(), says) {
			t.Errorf("it is not told %s:\n%s", says, all.String())
		}
	}
}

// TestWhatASecretThatIsAnOwnerHoldsIsNotTold, although a policy of its cluster quotes it when it is written.
func TestWhatASecretThatIsAnOwnerHoldsIsNotTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	const password, owner = "s3cr3t-of-many-words", "weak-owner" // a policy of another test may hold for a while in what is used again
	w.create(w.Local, &corev1.Secret{ObjectMeta: metaOf(w.ns, owner), StringData: map[string]string{"password": password}})
	w.policyThatQuotes(w.Local, owner)
	w.run(&dependents.Reconciler[*corev1.Secret]{
		Fleet: fleetName, Name: controller, OwnersIn: mcowner.Clusters{Local: true}, Kinds: []client.Object{&corev1.ConfigMap{}},
		Desired: func(context.Context, *corev1.Secret, dependents.Target) ([]client.Object, error) { return nil, nil },
	})
	w.told(w.Local, owner, dependents.EventFailed, "noting on the owner where its dependents are")
	all := strings.Join(w.notes(w.Local, owner), "\n")
	for _, hidden := range []string{"s3cr3t", base64.StdEncoding.EncodeToString([]byte(password))} {
		if strings.Contains(all, hidden) {
			t.Errorf("it is told that a Secret holds %s:\n%s", hidden, all)
		}
	}
	if says := "the answer quotes what it holds, and is not told; its reason is Invalid"; !strings.Contains(all, says) {
		t.Errorf("it is not told %s:\n%s", says, all)
	}
}
