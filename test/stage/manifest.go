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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// Join describes a cluster to a program, by a Secret in the namespace "fleet" of the cluster that it runs against. The Secret may have
// finalizers.
func Join(t *testing.T, hub *mctest.ControlPlane, name string, kubeconfig []byte, labels map[string]string, finalizers ...string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "fleet", Name: name, Labels: map[string]string{"fleet-runtime.dev/kubeconfig": "true"}, Finalizers: finalizers,
		},
		Data: map[string][]byte{"kubeconfig": kubeconfig},
	}
	maps.Copy(secret.Labels, labels)
	if err := hub.Client().Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

// Leave deletes what describes a cluster, and returns once that is gone. If it has the finalizer of leaving well, the cluster has left then.
func Leave(t *testing.T, hub *mctest.ControlPlane, described client.Object) {
	t.Helper()
	if err := hub.Client().Delete(t.Context(), described); err != nil {
		t.Fatal(err)
	}
	Soon(t, described.GetName()+" has left", func() bool {
		err := hub.Client().Get(t.Context(), client.ObjectKeyFromObject(described), described)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return err != nil
	})
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
