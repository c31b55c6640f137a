package mctest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// What tests may leave behind in a control plane: the functions return the objects that the next test must not see.

const (
	group   = "mctest.example.com"
	version = "v1"
	// leftName is that of objects whose name does not matter.
	leftName = "left"
	// finalizer is one that nobody takes.
	finalizer = group + "/finalizer"
)

func leaveNothing(*testing.T, *mctest.ControlPlane) []client.Object { return nil }

func leaveObjectsWithFinalizers(t *testing.T, cp *mctest.ControlPlane) []client.Object {
	t.Helper()
	left := []client.Object{configMap(metav1.NamespaceDefault, leftName, ""), configMap(cp.CreateNamespace(t), leftName, "")}
	for _, o := range left {
		o.SetFinalizers([]string{finalizer})
	}
	mustCreate(t, cp.Client(), left...)
	return left
}

func leaveHundredsOfObjects(t *testing.T, cp *mctest.ControlPlane) []client.Object {
	t.Helper()
	namespace := cp.CreateNamespace(t)
	left := make([]client.Object, 300)
	for i := range left {
		left[i] = configMap(namespace, fmt.Sprint("of-many-", i), "")
	}
	mustCreate(t, cp.Client(), left...)
	return left
}

func leaveTerminatingNamespace(t *testing.T, cp *mctest.ControlPlane) []client.Object {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cp.CreateNamespace(t)}}
	mustCreate(t, cp.Client(), configMap(namespace.Name, leftName, ""))
	if err := cp.Client().Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return []client.Object{namespace}
}

func leaveRunningPodAndService(t *testing.T, cp *mctest.ControlPlane) []client.Object {
	t.Helper()
	name := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: leftName}
	left := []client.Object{
		&corev1.Pod{ObjectMeta: name, Spec: corev1.PodSpec{NodeName: "gone", Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		&corev1.Service{ObjectMeta: name, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
	}
	mustCreate(t, cp.Client(), left...)
	return left
}

func leaveCustomResourcesWithFinalizers(t *testing.T, cp *mctest.ControlPlane) []client.Object {
	t.Helper()
	left := custom("Widget", cp.CreateNamespace(t))
	left.SetFinalizers([]string{finalizer})
	mustCreate(t, cp.Client(), left)
	return []client.Object{left}
}

func leaveCRD(t *testing.T, cp *mctest.ControlPlane) []client.Object {
	t.Helper()
	cl, err := client.New(cp.Config(), client.Options{Scheme: schemeWithCRDs(t)})
	if err != nil {
		t.Fatal(err)
	}
	definition, gadget := crd("gadgets", "Gadget"), custom("Gadget", metav1.NamespaceDefault)
	mustCreate(t, cl, definition)
	eventually(t, func(ctx context.Context) error { return cl.Create(ctx, gadget) })
	return []client.Object{gadget, definition}
}

func leaveRights(t *testing.T, cp *mctest.ControlPlane) []client.Object {
	t.Helper()
	cp.AddUser(t, "jane", allow("get", "secrets"))
	name := metav1.ObjectMeta{Name: "mctest:jane"}
	return []client.Object{&rbacv1.ClusterRole{ObjectMeta: name}, &rbacv1.ClusterRoleBinding{ObjectMeta: name}}
}

func leaveWebhookThatForbidsDeleting(t *testing.T, cp *mctest.ControlPlane) []client.Object {
	t.Helper()
	url, none := "https://127.0.0.1:1/", admissionregistrationv1.SideEffectClassNone
	webhook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "dead"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "dead." + group,
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url},
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
				},
			}},
		}},
	}
	kept := configMap(metav1.NamespaceDefault, "kept", "")
	mustCreate(t, cp.Client(), kept, webhook)
	eventually(t, func(ctx context.Context) error {
		if err := cp.Client().Delete(ctx, kept, client.DryRunAll); err == nil {
			return errors.New("the webhook is not asked yet")
		}
		return nil
	})
	return []client.Object{kept, webhook}
}

func leaveFrozenAPIServer(t *testing.T, cp *mctest.ControlPlane) []client.Object {
	t.Helper()
	cp.Freeze(t)
	return nil
}

func leaveFrozenEtcd(t *testing.T, cp *mctest.ControlPlane) []client.Object {
	t.Helper()
	if err := cp.Etcd.Freeze(); err != nil {
		t.Fatal(err)
	}
	return nil
}

func leaveRestartedAPIServer(t *testing.T, cp *mctest.ControlPlane) []client.Object {
	t.Helper()
	cp.Restart(t)
	return nil
}

func leaveStoppedAPIServer(t *testing.T, cp *mctest.ControlPlane) {
	t.Helper()
	cp.Stop(t)
}

func leaveStoppedEtcd(t *testing.T, cp *mctest.ControlPlane) {
	t.Helper()
	if err := cp.Etcd.Stop(); err != nil {
		t.Fatal(err)
	}
}

func leaveLabelOnDefaultNamespace(t *testing.T, cp *mctest.ControlPlane) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault}}
	label := client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"labels":{"new":"yes"}}}`))
	if err := cp.Client().Patch(t.Context(), namespace, label); err != nil {
		t.Fatal(err)
	}
}

func leaveWithoutSystemRole(t *testing.T, cp *mctest.ControlPlane) {
	t.Helper()
	if err := cp.Client().Delete(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}}); err != nil {
		t.Fatal(err)
	}
}

// crd returns the definition of a kind that may hold anything.
func crd(plural, kind string) *apiextensionsv1.CustomResourceDefinition {
	anything := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything},
				},
			}},
		},
	}
}

// custom returns an object of such a kind.
func custom(kind, namespace string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(group + "/" + version)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(leftName)
	return o
}

func schemeWithCRDs(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), apiextensionsv1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return s
}
