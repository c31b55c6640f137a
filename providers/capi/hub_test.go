package capi_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/capi"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
)

var pool mctest.Pool

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(pool.Run(m))
}

// hub is a local cluster with the real CRD of Cluster API. There are no controllers: the tests play their part, in one
// namespace.
type hub struct {
	*mctest.ControlPlane
	namespace string
}

// startHub also starts other clusters.
func startHub(t *testing.T, members int) (hub, []*mctest.ControlPlane) {
	t.Helper()
	scheme := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(clusterv1.AddToScheme, corev1.AddToScheme)
	hubtest.Must(t, kinds.AddToScheme(scheme))
	cp := pool.Share(t, mctest.Options{CRDPaths: []string{crd(t)}, Scheme: scheme})
	return hub{cp, cp.CreateNamespace(t)}, hubtest.StartMembers(t, &pool, members)
}

// crd returns the file in which Cluster API defines its Clusters, as of the version of the types.
func crd(t *testing.T) string {
	t.Helper()
	var project, types struct{ Version, Dir string }
	goCommand(t, &project, "-C", "testdata/crds", "mod", "download", "-json", "sigs.k8s.io/cluster-api")
	goCommand(t, &types, "list", "-m", "-json", "sigs.k8s.io/cluster-api/api")
	if project.Version != types.Version {
		t.Fatalf("testdata/crds/go.mod has Cluster API %s, go.mod has its types of %s: make them the same", project.Version, types.Version)
	}
	return filepath.Join(project.Dir, "core", "config", "crd", "bases", "cluster.x-k8s.io_clusters.yaml")
}

// goCommand runs the go command, and reads the JSON that it prints.
func goCommand(t *testing.T, result any, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %v: %v", args, err)
	}
	hubtest.Must(t, json.Unmarshal(out, result))
}

// create creates a minimal Cluster, as a user would write it.
func (h hub) create(t *testing.T, name string, change func(c *clusterv1.Cluster)) *clusterv1.Cluster {
	t.Helper()
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}}
	c.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: clusterv1.GroupVersionInfrastructure.Group, Kind: "TestCluster", Name: name,
	}
	c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: clusterv1.GroupVersionControlPlane.Group, Kind: "TestControlPlane", Name: name,
	}
	if change != nil {
		change(c)
	}
	status := c.Status
	hubtest.Must(t, h.Client().Create(t.Context(), c))
	h.updateStatus(t, c, func(c *clusterv1.Cluster) { c.Status = status })
	return c
}

func (h hub) update(t *testing.T, c *clusterv1.Cluster, change func(c *clusterv1.Cluster)) {
	t.Helper()
	before := c.DeepCopy()
	change(c)
	hubtest.Must(t, h.Client().Patch(t.Context(), c, client.MergeFrom(before)))
}

func (h hub) updateStatus(t *testing.T, c *clusterv1.Cluster, change func(c *clusterv1.Cluster)) {
	t.Helper()
	before := c.DeepCopy()
	change(c)
	hubtest.Must(t, h.Client().Status().Patch(t.Context(), c, client.MergeFrom(before)))
}

// createSecret creates the Secret with a kubeconfig as a control plane provider does.
func (h hub) createSecret(t *testing.T, clusterName string, kubeconfig []byte) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: h.namespace, Name: clusterName + "-kubeconfig",
			Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName},
		},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{"value": kubeconfig},
	}
	hubtest.Must(t, h.Client().Create(t.Context(), secret))
	return secret
}

func initialize(c *clusterv1.Cluster) {
	yes := true
	c.Status.Initialization.InfrastructureProvisioned = &yes
	c.Status.Initialization.ControlPlaneInitialized = &yes
}

// condition sets a condition of the Cluster.
func condition(kind string, status metav1.ConditionStatus) func(c *clusterv1.Cluster) {
	return func(c *clusterv1.Cluster) {
		c.Status.Conditions = []metav1.Condition{{
			Type: kind, Status: status, Reason: "Test", LastTransitionTime: metav1.Now(),
		}}
	}
}

// withExec is a kubeconfig that runs a program.
func withExec(t *testing.T) []byte {
	t.Helper()
	return hubtest.Kubeconfig(t, &rest.Config{Host: "https://127.0.0.1:1", ExecProvider: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "/bin/false", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}})
}

// follow runs the provider against the hub until the test ends.
func follow(t *testing.T, h hub, p capi.Provider) hubtest.Followed {
	t.Helper()
	return hubtest.Follow(t, h.Config(), p)
}
