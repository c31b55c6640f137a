package clusterprofile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/clusterprofile"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// hub is a local cluster with the CRD of ClusterProfiles. The tests play the part of a cluster manager, in one namespace.
type hub struct {
	*mctest.ControlPlane
	namespace string
}

// startHub also starts other clusters.
func startHub(t *testing.T, members int) (hub, []*mctest.ControlPlane) {
	t.Helper()
	return startHubWith(t, crd(t), members)
}

func startHubWith(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, members int) (hub, []*mctest.ControlPlane) {
	t.Helper()
	// The tests write in the last of the versions.
	version := schema.GroupVersion{Group: crd.Spec.Group, Version: crd.Spec.Versions[len(crd.Spec.Versions)-1].Name}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(version.WithKind("ClusterProfile"), &v1alpha1.ClusterProfile{})
	scheme.AddKnownTypeWithName(version.WithKind("ClusterProfileList"), &v1alpha1.ClusterProfileList{})
	metav1.AddToGroupVersion(scheme, version)
	must(t, corev1.AddToScheme(scheme))
	f := pool.Start(t, mctest.Options{
		CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}, Scheme: scheme, Clusters: members,
	})
	return hub{f.Local, f.Local.CreateNamespace(t)}, f.Members
}

// crd returns the CRD of ClusterProfiles from the module that has the types.
func crd(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-json", "sigs.k8s.io/cluster-inventory-api").Output()
	must(t, err)
	var module struct{ Dir string }
	must(t, json.Unmarshal(out, &module))
	text, err := os.ReadFile(filepath.Join(module.Dir, "config", "crd", "bases", "multicluster.x-k8s.io_clusterprofiles.yaml"))
	must(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	must(t, yaml.UnmarshalStrict(text, crd))
	return crd
}

// create creates a ClusterProfile with its status.
func (h hub) create(t *testing.T, name string, status v1alpha1.ClusterProfileStatus) *v1alpha1.ClusterProfile {
	t.Helper()
	profile := &v1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}}
	profile.Spec.ClusterManager.Name = "test"
	must(t, h.Client().Create(t.Context(), profile))
	h.updateStatus(t, profile, func(s *v1alpha1.ClusterProfileStatus) { *s = status })
	return profile
}

func (h hub) update(t *testing.T, profile *v1alpha1.ClusterProfile, change func(p *v1alpha1.ClusterProfile)) {
	t.Helper()
	before := profile.DeepCopy()
	change(profile)
	must(t, h.Client().Patch(t.Context(), profile, client.MergeFrom(before)))
}

func (h hub) updateStatus(t *testing.T, profile *v1alpha1.ClusterProfile, change func(s *v1alpha1.ClusterProfileStatus)) {
	t.Helper()
	change(&profile.Status)
	must(t, h.Client().Status().Update(t.Context(), profile))
}

// createSecret creates a Secret with a kubeconfig for a profile.
func (h hub) createSecret(t *testing.T, namespace, name string, labels map[string]string, kubeconfig []byte) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Data:       map[string][]byte{"Config": kubeconfig},
	}
	must(t, h.Client().Create(t.Context(), secret))
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

func kubeconfigOf(t *testing.T, config *rest.Config) []byte {
	t.Helper()
	text, err := mctest.Kubeconfig(config)
	must(t, err)
	return text
}

// followed is a fleet that discovers by a provider.
type followed struct{ *fleet.Fleet }

// follow runs the provider against the hub until the test ends.
func follow(t *testing.T, h hub, p clusterprofile.Provider) followed {
	t.Helper()
	return followAs(t, h.Config(), p)
}

// followAs runs the provider as another user of the hub.
func followAs(t *testing.T, config *rest.Config, p clusterprofile.Provider) followed {
	t.Helper()
	local := startLocal(t, config)
	f := fleet.New(fleet.Options{})
	run(t, f.Start)
	run(t, func(ctx context.Context) error { return p.Run(ctx, local, f) })
	return followed{f}
}

// startLocal returns a started cluster whose scheme knows nothing of ClusterProfiles.
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

// waitFor waits until the member is in this state, for this reason.
func (f followed) waitFor(t *testing.T, name fleet.ClusterName, state fleet.State, reason string) {
	t.Helper()
	f.waitUntil(t, name, string(state)+" "+reason, func(s fleet.Status, known bool) bool {
		return known && s.State == state && s.Reason == reason
	})
}

func (f followed) waitUntilGone(t *testing.T, name fleet.ClusterName) {
	t.Helper()
	f.waitUntil(t, name, "gone", func(_ fleet.Status, known bool) bool { return !known })
}

func (f followed) waitUntil(t *testing.T, name fleet.ClusterName, what string, ok func(s fleet.Status, known bool) bool) {
	t.Helper()
	var status fleet.Status
	var known bool
	// Changes does not tell of a member that had gone before.
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		status, known = f.Status(name)
		return ok(status, known), nil
	})
	if err != nil {
		t.Fatalf("%s did not become %s: known %v, %+v", name, what, known, status)
	}
}
