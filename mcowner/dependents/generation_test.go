package dependents_test

import (
	"context"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestAPriorityClassThatOthersHaveChangedIsPutBack: it has a generation, which never changes.
func TestAPriorityClassThatOthersHaveChangedIsPutBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Kinds = []client.Object{&schedulingv1.PriorityClass{}}
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		return []client.Object{&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: w.ns + owner.Name}, Value: 7, Description: "ours"}}, nil
	}
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: w.ns + "a"}}
	eventually(t, "it is there", func() bool { return w.isThere(one, class) && p.isAtRest() })
	patch := client.MergeFrom(class.DeepCopy())
	class.Description = "theirs"
	if err := one.Client().Patch(t.Context(), class, patch); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is put back", func() bool { return w.isThere(one, class) && class.Description == "ours" })
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
}

// TestAnyChangeOfContentIsSeen of objects for which the API server counts generations, whatever it counts.
func TestAnyChangeOfContentIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	const (
		pods    = `"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"a"}]}}`
		job     = `"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"a"}]}}`
		webhook = `{"webhooks":[{"name":"a.b.c","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":"https://a.invalid"},` +
			`"objectSelector":{"matchLabels":{"a":"nobody"}}}]}`
		elsewhere = `{"webhooks":[{"name":"a.b.c","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":"https://b.invalid"},` +
			`"objectSelector":{"matchLabels":{"a":"nobody"}}}]}`
	)
	for kind, content := range map[string][2]string{
		"PriorityClass.v1.scheduling.k8s.io":                             {`{"value":7,"description":"a"}`, `{"description":"b"}`},
		"ValidatingWebhookConfiguration.v1.admissionregistration.k8s.io": {webhook, elsewhere},
		"MutatingWebhookConfiguration.v1.admissionregistration.k8s.io":   {webhook, elsewhere},
		"ValidatingAdmissionPolicyBinding.v1.admissionregistration.k8s.io": {
			`{"spec":{"policyName":"none","validationActions":["Audit"]}}`, `{"spec":{"validationActions":["Warn"]}}`,
		},
		"CSIDriver.v1.storage.k8s.io":       {`{"spec":{"podInfoOnMount":true}}`, `{"spec":{"podInfoOnMount":false}}`},
		"IngressClass.v1.networking.k8s.io": {`{"spec":{"controller":"a/b"}}`, `{"spec":{"parameters":{"kind":"A","name":"b"}}}`},
		"NetworkPolicy.v1.networking.k8s.io": {
			`{"spec":{"podSelector":{}}}`, `{"spec":{"podSelector":{"matchLabels":{"a":"b"}}}}`,
		},
		"PodTemplate.v1.":    {`{"template":{"spec":{"containers":[{"name":"a","image":"a"}]}}}`, `{"template":{"spec":{"containers":[{"name":"a","image":"b"}]}}}`},
		"Deployment.v1.apps": {`{"spec":{` + pods + `}}`, `{"spec":{"replicas":3}}`},
		"DaemonSet.v1.apps":  {`{"spec":{` + pods + `}}`, `{"spec":{"minReadySeconds":3}}`},
		"CronJob.v1.batch":   {`{"spec":{"schedule":"0 0 1 1 *","jobTemplate":{"spec":{` + job + `}}}}`, `{"spec":{"suspend":true}}`},
		"PodDisruptionBudget.v1.policy": {
			`{"spec":{"selector":{},"minAvailable":1}}`, `{"spec":{"minAvailable":2}}`,
		},
		"EndpointSlice.v1.discovery.k8s.io": {
			`{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":[]}`, `{"endpoints":[{"addresses":["10.0.0.2"]}]}`,
		},
		"FlowSchema.v1.flowcontrol.apiserver.k8s.io": {
			`{"spec":{"matchingPrecedence":5000,"priorityLevelConfiguration":{"name":"global-default"}}}`, `{"spec":{"matchingPrecedence":6000}}`,
		},
		"DeviceClass.v1.resource.k8s.io": {`{"spec":{}}`, `{"spec":{"selectors":[{"cel":{"expression":"true"}}]}}`},
		"ConfigMap.v1.":                  {`{"data":{"a":"b"}}`, `{"data":{"a":"c"}}`},
		"Service.v1.":                    {`{"spec":{"ports":[{"port":1}]}}`, `{"spec":{"sessionAffinity":"ClientIP"}}`},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			gvk, _ := schema.ParseKindArg(kind)
			obj := &unstructured.Unstructured{}
			if err := json.Unmarshal([]byte(content[0]), &obj.Object); err != nil {
				t.Fatal(err)
			}
			obj.SetGroupVersionKind(*gvk)
			obj.SetName(w.ns)
			if namespaced, err := w.Local.Client().IsObjectNamespaced(obj); err != nil {
				t.Fatal(err)
			} else if namespaced {
				obj.SetNamespace(w.ns)
			}
			w.create(w.Local, obj)
			t.Cleanup(func() { _ = w.Local.Client().Delete(context.WithoutCancel(t.Context()), obj) })
			before, typedBefore := hashes(t, obj)
			if err := w.Local.Client().Patch(t.Context(), obj, client.RawPatch(types.StrategicMergePatchType, []byte(content[1]))); err != nil {
				t.Fatal(err)
			}
			if after, typedAfter := hashes(t, obj); before == after || typedBefore == typedAfter {
				t.Errorf("a change is not seen: %t, and with a Go type: %t", before != after, typedBefore != typedAfter)
			}
		})
	}
}

// hashes returns those of an object as it is, and with a Go type.
func hashes(t *testing.T, obj *unstructured.Unstructured) (untyped, typed string) {
	t.Helper()
	of, err := scheme.Scheme.New(obj.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, of); err != nil {
		t.Fatal(err)
	}
	if untyped, err = dependents.LiveHash(obj); err != nil {
		t.Fatal(err)
	}
	if typed, err = dependents.LiveHash(of.(client.Object)); err != nil { //nolint:forcetypeassert // all kinds of the API server are
		t.Fatal(err)
	}
	return untyped, typed
}
