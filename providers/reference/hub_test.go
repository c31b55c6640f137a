package reference_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/reference"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

var pool mctest.Pool

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(pool.Run(m))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
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
	for _, kind := range []schema.GroupVersionKind{kustomizations, helmReleases, ranchers, sveltoses, places} {
		crds = append(crds, definition(kind, apiextensionsv1.NamespaceScoped))
	}
	for _, kind := range []schema.GroupVersionKind{karmadas, multiKueues} {
		crds = append(crds, definition(kind, apiextensionsv1.ClusterScoped))
	}
	f := pool.Start(t, mctest.Options{CRDs: crds, Clusters: members})
	return hub{f.Local, f.Local.CreateNamespace(t)}, f.Members
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
	must(t, h.Client().Create(t.Context(), obj))
	return obj
}

func (h hub) change(t *testing.T, obj client.Object, change func()) {
	t.Helper()
	before := obj.DeepCopyObject().(client.Object)
	change()
	must(t, h.Client().Patch(t.Context(), obj, client.MergeFrom(before)))
}

func (h hub) secret(t *testing.T, name string, data map[string][]byte) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}, Data: data}
	must(t, h.Client().Create(t.Context(), secret))
	return secret
}

func kubeconfigOf(t *testing.T, config *rest.Config) []byte {
	t.Helper()
	text, err := mctest.Kubeconfig(config)
	must(t, err)
	return text
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

// followed is a fleet that discovers by a provider.
type followed struct{ *fleet.Fleet }

// follow runs the provider against the hub until the test ends, in its namespace if nothing else is said.
func follow(t *testing.T, h hub, p reference.Provider) followed {
	t.Helper()
	if p.Namespaces == nil && !p.Format.ClusterScoped {
		p.Namespaces = []string{h.namespace}
	}
	return followAs(t, h.Config(), p)
}

// followAs runs the provider as another user of the hub.
func followAs(t *testing.T, config *rest.Config, p reference.Provider) followed {
	t.Helper()
	local := startLocal(t, config)
	f := fleet.New(fleet.Options{})
	run(t, f.Start)
	run(t, func(ctx context.Context) error { return p.Run(ctx, local, f) })
	return followed{f}
}

func startLocal(t *testing.T, config *rest.Config) cluster.Cluster {
	t.Helper()
	local, err := cluster.New(config)
	must(t, err)
	run(t, local.Start)
	return local
}

// run calls what returns when its context ends, which is with the test.
func run(t *testing.T, start func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- start(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
	})
}

// waitFor waits until the member is in this state, for this reason, and returns its status.
func (f followed) waitFor(t *testing.T, name string, state fleet.State, reason string) fleet.Status {
	t.Helper()
	return f.waitUntil(t, name, string(state)+" "+reason, func(s fleet.Status, known bool) bool {
		return known && s.State == state && s.Reason == reason
	})
}

func (f followed) waitUntilGone(t *testing.T, name string) {
	t.Helper()
	f.waitUntil(t, name, "gone", func(_ fleet.Status, known bool) bool { return !known })
}

func (f followed) waitUntil(t *testing.T, name, what string, ok func(s fleet.Status, known bool) bool) fleet.Status {
	t.Helper()
	var status fleet.Status
	var known bool
	// Changes does not tell of a member that had gone before.
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		status, known = f.Status(fleet.ClusterName(name))
		return ok(status, known), nil
	})
	if err != nil {
		t.Fatalf("%s did not become %s: known %v, %+v", name, what, known, status)
	}
	return status
}
