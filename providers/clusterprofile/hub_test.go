package clusterprofile_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/clusterprofile"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
)

var pool mctest.Pool

func TestMain(m *testing.M) {
	if os.Getenv(pluginVariable) != "" {
		if err := plugin(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	log.SetLogger(logr.Discard())
	os.Exit(pool.Run(m))
}

// hub is a local cluster with the CRD of ClusterProfiles. The tests play the part of a cluster manager, in one namespace.
type hub struct {
	*mctest.ControlPlane
	namespace string
}

// startHub also starts other clusters.
func startHub(t *testing.T, members int) (hub, []*mctest.ControlPlane) {
	t.Helper()
	cp := pool.Share(t, options(t, crd(t)))
	return hub{cp, cp.CreateNamespace(t)}, hubtest.StartMembers(t, &pool, members)
}

// startHubWith is startHub with another CRD.
func startHubWith(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, members int) (hub, []*mctest.ControlPlane) {
	t.Helper()
	cp := pool.Start(t, options(t, crd)).Local
	return hub{cp, cp.CreateNamespace(t)}, hubtest.StartMembers(t, &pool, members)
}

// options are those of a hub with the CRD.
func options(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) mctest.Options {
	t.Helper()
	// The tests write in the last of the versions.
	version := schema.GroupVersion{Group: crd.Spec.Group, Version: crd.Spec.Versions[len(crd.Spec.Versions)-1].Name}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(version.WithKind("ClusterProfile"), &v1alpha1.ClusterProfile{})
	scheme.AddKnownTypeWithName(version.WithKind("ClusterProfileList"), &v1alpha1.ClusterProfileList{})
	metav1.AddToGroupVersion(scheme, version)
	hubtest.Must(t, corev1.AddToScheme(scheme))
	return mctest.Options{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}, Scheme: scheme}
}

// crd returns the CRD of ClusterProfiles from the module that has the types.
func crd(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-json", "sigs.k8s.io/cluster-inventory-api").Output()
	hubtest.Must(t, err)
	var module struct{ Dir string }
	hubtest.Must(t, json.Unmarshal(out, &module))
	text, err := os.ReadFile(filepath.Join(module.Dir, "config", "crd", "bases", "multicluster.x-k8s.io_clusterprofiles.yaml"))
	hubtest.Must(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	hubtest.Must(t, yaml.UnmarshalStrict(text, crd))
	return crd
}

// create creates a ClusterProfile with its status.
func (h hub) create(t *testing.T, name string, status v1alpha1.ClusterProfileStatus) *v1alpha1.ClusterProfile {
	t.Helper()
	profile := &v1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}}
	profile.Spec.ClusterManager.Name = "test"
	hubtest.Must(t, h.Client().Create(t.Context(), profile))
	h.updateStatus(t, profile, func(s *v1alpha1.ClusterProfileStatus) { *s = status })
	return profile
}

func (h hub) update(t *testing.T, profile *v1alpha1.ClusterProfile, change func(p *v1alpha1.ClusterProfile)) {
	t.Helper()
	before := profile.DeepCopy()
	change(profile)
	hubtest.Must(t, h.Client().Patch(t.Context(), profile, client.MergeFrom(before)))
}

func (h hub) updateStatus(t *testing.T, profile *v1alpha1.ClusterProfile, change func(s *v1alpha1.ClusterProfileStatus)) {
	t.Helper()
	change(&profile.Status)
	hubtest.Must(t, h.Client().Status().Update(t.Context(), profile))
}

// createSecret creates a Secret with a kubeconfig for a profile.
func (h hub) createSecret(t *testing.T, namespace, name string, labels map[string]string, kubeconfig []byte) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Data:       map[string][]byte{"Config": kubeconfig},
	}
	hubtest.Must(t, h.Client().Create(t.Context(), secret))
	return secret
}

// belongsTo are the labels of a Secret for a profile.
func belongsTo(namespace, profile string) map[string]string {
	labels := map[string]string{"x-k8s.io/cluster-profile": profile}
	if namespace != "" {
		labels["x-k8s.io/cluster-profile-namespace"] = namespace
	}
	return labels
}

// offers is the status of a profile with an access provider.
func offers(name string, cluster clientcmdv1.Cluster) v1alpha1.ClusterProfileStatus {
	return v1alpha1.ClusterProfileStatus{AccessProviders: []v1alpha1.AccessProvider{{Name: name, Cluster: cluster}}}
}

func healthy(status metav1.ConditionStatus) []metav1.Condition {
	return []metav1.Condition{{
		Type: v1alpha1.ClusterConditionControlPlaneHealthy, Status: status, Reason: "Test", LastTransitionTime: metav1.Now(),
	}}
}

// follow runs the provider against the hub until the test ends.
func follow(t *testing.T, h hub, p clusterprofile.Provider) hubtest.Followed {
	t.Helper()
	return hubtest.Follow(t, h.Config(), p)
}
