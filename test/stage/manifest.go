package stage

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// Apply creates the objects of a YAML file, where they are not there yet.
func Apply(t *testing.T, cp *mctest.ControlPlane, file string) {
	t.Helper()
	for _, obj := range objectsIn(t, file) {
		if err := cp.Client().Create(t.Context(), obj); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("creating what is in %s: %v", file, err)
		}
	}
}

// ApplyCRD installs the CRD in a YAML file, and returns once it is served.
func ApplyCRD(t *testing.T, cp *mctest.ControlPlane, file string) {
	t.Helper()
	_, err := envtest.InstallCRDs(cp.Config(), envtest.CRDInstallOptions{
		Paths: []string{file}, ErrorIfPathMissing: true, MaxTime: 2 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Join describes a cluster to a program, by a Secret in the namespace "fleet" of the cluster that it runs against.
func Join(t *testing.T, hub *mctest.ControlPlane, name string, kubeconfig []byte, labels map[string]string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, Labels: map[string]string{"fleet-runtime.dev/kubeconfig": "true"}},
		Data:       map[string][]byte{"kubeconfig": kubeconfig},
	}
	maps.Copy(secret.Labels, labels)
	if err := hub.Client().Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

func objectsIn(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(file) //nolint:gosec // the test names it
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	var objects []*unstructured.Unstructured
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(obj)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("reading %s: %v", file, err)
		}
		if len(obj.Object) > 0 {
			objects = append(objects, obj)
		}
	}
}

// granted returns the service account in a manifest, and the rights that its roles give.
func granted(t *testing.T, file string) (account client.ObjectKey, rights []right) {
	t.Helper()
	for _, obj := range objectsIn(t, file) {
		switch obj.GetKind() {
		case "ServiceAccount":
			account = client.ObjectKeyFromObject(obj)
		case "Role", "ClusterRole":
			role := &rbacv1.Role{} // a ClusterRole has the same fields, and no namespace
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, role); err != nil {
				t.Fatalf("reading the roles in %s: %v", file, err)
			}
			for _, rule := range role.Rules {
				rights = append(rights, expand(role.Namespace, rule)...)
			}
		}
	}
	if account.Name == "" || len(rights) == 0 {
		t.Fatalf("%s lacks a service account, or roles", file)
	}
	return account, rights
}

// expand returns what a rule allows, each verb on each resource by itself.
func expand(namespace string, rule rbacv1.PolicyRule) (rights []right) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				for _, name := range names {
					rights = append(rights, right{verb, group, resource, namespace, name})
				}
			}
		}
	}
	return rights
}
