package reference_test

import (
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
	"github.com/fleet-runtime/fleet-runtime/providers/reference"
)

var pool mctest.Pool

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(pool.Run(m))
}

// The kinds of others, as far as the server looks at them, and one of the tests' own.
var (
	kustomizations = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}
	helmReleases   = schema.GroupVersionKind{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"}
	karmadas       = schema.GroupVersionKind{Group: "cluster.karmada.io", Version: "v1alpha1", Kind: "Cluster"}
	multiKueues    = schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "MultiKueueCluster"}
	ranchers       = schema.GroupVersionKind{Group: "provisioning.cattle.io", Version: "v1", Kind: "Cluster"}
	sveltoses      = schema.GroupVersionKind{Group: "lib.projectsveltos.io", Version: "v1beta1", Kind: "SveltosCluster"}
	statefulSets   = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}
	places         = schema.GroupVersionKind{Group: "test.fleet-runtime.dev", Version: "v1", Kind: "Place"}
)

func namespaced() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{kustomizations, helmReleases, ranchers, sveltoses, places}
}

func clusterScoped() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{karmadas, multiKueues}
}

// definition is the CRD of a kind that takes anything.
func definition(kind schema.GroupVersionKind, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	singular, anything := strings.ToLower(kind.Kind), true
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: singular + "s." + kind.Group}}
	crd.Spec.Group, crd.Spec.Scope = kind.Group, scope
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{
		Kind: kind.Kind, ListKind: kind.Kind + "List", Plural: singular + "s", Singular: singular,
	}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
		Name: kind.Version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything},
		},
	}}
	return crd
}

// hub is a local cluster in which the tests play the part of Flux and others, in one namespace.
type hub struct {
	*mctest.ControlPlane
	namespace string
}

// startHub also starts other clusters.
func startHub(t *testing.T, members int) (hub, []*mctest.ControlPlane) {
	t.Helper()
	crds := make([]*apiextensionsv1.CustomResourceDefinition, 0, 7)
	for _, kind := range namespaced() {
		crds = append(crds, definition(kind, apiextensionsv1.NamespaceScoped))
	}
	for _, kind := range clusterScoped() {
		crds = append(crds, definition(kind, apiextensionsv1.ClusterScoped))
	}
	cp := pool.Share(t, mctest.Options{CRDs: crds})
	h := hub{cp, cp.CreateNamespace(t)}
	t.Cleanup(func() { h.clear(t) })
	return h, hubtest.StartMembers(t, &pool, members)
}

// fields are those of an object: nested, by a path.
type fields map[string]any

func object(kind schema.GroupVersionKind, namespace, name string, content fields) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(kind)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	for path, value := range content {
		if err := unstructured.SetNestedField(obj.Object, value, strings.Split(path, ".")...); err != nil {
			panic(err)
		}
	}
	return obj
}

// create creates an object in the namespace of the hub.
func (h hub) create(t *testing.T, kind schema.GroupVersionKind, name string, content fields) *unstructured.Unstructured {
	t.Helper()
	obj := object(kind, h.namespace, name, content)
	hubtest.Must(t, h.Client().Create(t.Context(), obj))
	return obj
}

func (h hub) change(t *testing.T, obj client.Object, change func()) {
	t.Helper()
	before := obj.DeepCopyObject().(client.Object)
	change()
	hubtest.Must(t, h.Client().Patch(t.Context(), obj, client.MergeFrom(before)))
}

func (h hub) secret(t *testing.T, name string, data map[string][]byte) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}, Data: data}
	hubtest.Must(t, h.Client().Create(t.Context(), secret))
	return secret
}

// placesBySecret is a format of the tests' own.
func placesBySecret() reference.Format {
	return reference.Format{
		Kinds: []schema.GroupKind{places.GroupKind()},
		Read: reference.Fields{
			SecretName: "spec.secretRef.name", SecretNamespace: "spec.secretRef.namespace", Keys: []string{"kubeconfig"},
		}.Read,
	}
}

// follow runs the provider against the hub until the test ends, in its namespace if nothing else is said.
func follow(t *testing.T, h hub, p reference.Provider) hubtest.Followed {
	t.Helper()
	if p.Namespaces == nil && !p.Format.ClusterScoped {
		p.Namespaces = []string{h.namespace}
	}
	return hubtest.Follow(t, h.Config(), p)
}
