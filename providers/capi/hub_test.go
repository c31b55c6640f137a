package capi_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/capi"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

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
	must(t, kinds.AddToScheme(scheme))
	f := pool.Start(t, mctest.Options{CRDPaths: []string{crd(t)}, Scheme: scheme, Clusters: members})
	return hub{f.Local, f.Local.CreateNamespace(t)}, f.Members
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
	must(t, json.Unmarshal(out, result))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
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
	must(t, h.Client().Create(t.Context(), c))
	h.updateStatus(t, c, func(c *clusterv1.Cluster) { c.Status = status })
	return c
}

func (h hub) update(t *testing.T, c *clusterv1.Cluster, change func(c *clusterv1.Cluster)) {
	t.Helper()
	before := c.DeepCopy()
	change(c)
	must(t, h.Client().Patch(t.Context(), c, client.MergeFrom(before)))
}

func (h hub) updateStatus(t *testing.T, c *clusterv1.Cluster, change func(c *clusterv1.Cluster)) {
	t.Helper()
	before := c.DeepCopy()
	change(c)
	must(t, h.Client().Status().Patch(t.Context(), c, client.MergeFrom(before)))
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
	must(t, h.Client().Create(t.Context(), secret))
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

// kubeconfigOf returns a kubeconfig as Cluster API makes them.
func kubeconfigOf(t *testing.T, config *rest.Config) []byte {
	t.Helper()
	text, err := mctest.Kubeconfig(config)
	must(t, err)
	return text
}

// withExec is a kubeconfig that runs a program.
func withExec(t *testing.T) []byte {
	t.Helper()
	return kubeconfigOf(t, &rest.Config{Host: "https://127.0.0.1:1", ExecProvider: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "/bin/false", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}})
}

// followed is a fleet that discovers by a provider.
type followed struct{ *fleet.Fleet }

// follow runs the provider against the hub until the test ends.
func follow(t *testing.T, h hub, p capi.Provider) followed {
	t.Helper()
	return followAs(t, h.Config(), p)
}

// followAs runs the provider as another user of the hub.
func followAs(t *testing.T, config *rest.Config, p capi.Provider) followed {
	t.Helper()
	local := startLocal(t, config)
	f := fleet.New(fleet.Options{})
	run(t, f.Start)
	run(t, func(ctx context.Context) error { return p.Run(ctx, local, f) })
	return followed{f}
}

// startLocal returns a started cluster whose scheme knows nothing of Cluster API.
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
func (f followed) waitFor(t *testing.T, name fleet.ClusterName, state fleet.State, reason string) fleet.Status {
	t.Helper()
	return f.waitUntil(t, name, string(state)+" "+reason, func(s fleet.Status, known bool) bool {
		return known && s.State == state && s.Reason == reason
	})
}

func (f followed) waitUntilGone(t *testing.T, name fleet.ClusterName) {
	t.Helper()
	f.waitUntil(t, name, "gone", func(_ fleet.Status, known bool) bool { return !known })
}

func (f followed) waitUntil(t *testing.T, name fleet.ClusterName, what string, ok func(s fleet.Status, known bool) bool) fleet.Status {
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
	return status
}
