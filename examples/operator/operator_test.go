package main

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(stage.Run(m, &pool, main)) }

// TestEachVerbOfTheManifestsIsNeededAndNoneIsMissing: what happens on kind clusters when a rule is missing is tested in test/kind.
func TestEachVerbOfTheManifestsIsNeededAndNoneIsMissing(t *testing.T) {
	clusters := pool.Start(t, mctest.Options{Clusters: 1})
	local, east := clusters.Local, clusters.Members[0]
	hub, member := stage.NewAccount(t, local, mctest.Rights{File: "deploy/hub.yaml"}), stage.NewAccount(t, east, mctest.Rights{File: "deploy/member.yaml"})
	stage.Apply(t, local, "deploy/reader.yaml")
	joinToLeaveWell(t, local, east, "east")
	metrics := freeAddress(t)
	first := startReplica(t, hub, "4", metrics)
	first.Writes("Engaged", "east")

	for _, namespace := range []string{"default", "kube-public"} {
		getsChecksum(t, east, namespace)
	}
	readMetrics(t, local, metrics)
	broken := stage.Join(t, local, "broken", []byte("this is no kubeconfig"), nil) // an event says so
	first.Writes("broken")
	if err := local.Client().Delete(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	second := startReplica(t, hub, "5", "0")
	first.Stop()
	second.Writes("Engaged", "east")
	stage.Leave(t, local, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "east"}})

	for _, account := range []*stage.Account{hub, member} {
		account.NeedsAll(t)
	}
}

// TestEachVerbOfTheHubOfAccessesIsNeededAndNoneIsMissing: what mcctl join makes on kind clusters is tested in test/kind.
func TestEachVerbOfTheHubOfAccessesIsNeededAndNoneIsMissing(t *testing.T) {
	scheme := runtime.NewScheme()
	accesstest.Must(t, errors.Join(coordinationv1.AddToScheme(scheme), corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), membersv1alpha1.AddToScheme(scheme)))
	clusters := pool.Start(t, mctest.Options{Clusters: 1, Scheme: scheme, CRDPaths: []string{"../../access/v1alpha1", "../../members/v1alpha1"}})
	local, east := clusters.Local, clusters.Members[0]
	accesstest.Create(t, local, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}})
	hub := stage.NewAccount(t, local, mctest.Rights{File: "accesses/role.yaml", Needed: map[string]string{
		"update secrets": "the tokens of minters are renewed after days; TestAMintersTokenIsRenewedBeforeItExpires shows it",
	}})
	access := accesstest.Mint(t, local, east, "fleet", "east")
	first := startReplica(t, hub, "4", "0", "--accesses")
	first.Writes("Engaged", "east")
	stage.Eventually(t, "there is a Member of it", func() bool { return has(t, local, &membersv1alpha1.Member{}) })
	broken := accesstest.New(east, "fleet", "broken")
	broken.Spec.Minter, broken.Spec.CABundle = access.Spec.Minter, []byte("-----BEGIN CERTIFICATE-----") // an event says so
	accesstest.Create(t, local, broken)
	first.Writes("broken")
	second := startReplica(t, hub, "5", "0", "--accesses")
	second.Writes("The program begins")
	leads := ""
	stage.Eventually(t, "one replica is elected", func() bool { leads = leader(t, local); return leads != "" })
	first.Stop()
	second.Writes("Engaged", "east")
	stage.Eventually(t, "the second keeps the status of ClusterAccesses", func() bool { now := leader(t, local); return now != "" && now != leads })
	second.Writes("controller=clusteraccess")
	accesstest.Must(t, local.Client().Patch(t.Context(), access, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["`+objects.LeaveFinalizer+`"]}}`))))
	accesstest.Must(t, local.Client().Delete(t.Context(), access))
	stage.Eventually(t, "the member has left, and its Member is gone", func() bool {
		return !has(t, local, &v1alpha1.ClusterAccess{}) && !has(t, local, &membersv1alpha1.Member{})
	})
	hub.NeedsAll(t)
}

// leader names the replica that keeps the status of the ClusterAccesses.
func leader(t *testing.T, local *mctest.ControlPlane) string {
	t.Helper()
	lease := &coordinationv1.Lease{}
	err := local.Client().Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "operator"}, lease)
	accesstest.Must(t, client.IgnoreNotFound(err))
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// has reports whether there is an object of east.
func has(t *testing.T, local *mctest.ControlPlane, obj client.Object) bool {
	t.Helper()
	err := local.Client().Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "east"}, obj)
	accesstest.Must(t, client.IgnoreNotFound(err))
	return err == nil
}

// joinToLeaveWell lets a cluster join by the documented command. An administrator has both contexts, hub and the member's name.
func joinToLeaveWell(t *testing.T, hub, member *mctest.ControlPlane, name string) {
	t.Helper()
	both := clientcmdapi.NewConfig()
	for at, cp := range map[string]*mctest.ControlPlane{"hub": hub, name: member} {
		one, err := clientcmd.Load(cp.Kubeconfig())
		accesstest.Must(t, err)
		current := one.Contexts[one.CurrentContext]
		both.Clusters[at], both.AuthInfos[at] = one.Clusters[current.Cluster], one.AuthInfos[current.AuthInfo]
		both.Contexts[at] = &clientcmdapi.Context{Cluster: at, AuthInfo: at}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	accesstest.Must(t, clientcmd.WriteToFile(*both, file))
	cmd := exec.CommandContext(t.Context(), "deploy/join.sh", "-w", name, "hub", name)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+file, "PATH="+os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH")) // which has kubectl
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("join.sh of %s: %v\n%s", name, err, output)
	}
}

// startReplica starts a replica of the Deployment.
func startReplica(t *testing.T, hub *stage.Account, suffix, metrics string, args ...string) *stage.Program {
	t.Helper()
	t.Setenv("POD_NAME", "operator-5f5d5fc56d-wxzb"+suffix)
	return stage.Start(t, append([]string{
		"--kubeconfig", hub.File(t), "--namespace", "fleet", "--metrics-bind-address", metrics, "--health-probe-bind-address", "0",
	}, args...)...)
}

// freeAddress returns an address of this machine that nothing listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// readMetrics waits until the reader may read them.
func readMetrics(t *testing.T, local *mctest.ControlPlane, address string) {
	t.Helper()
	token := &authenticationv1.TokenRequest{}
	reader := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "reader"}}
	if err := local.Client().SubResource("token").Create(t.Context(), reader, token); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} // it signs its own
	stage.Eventually(t, "the reader reads the metrics", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token.Status.Token)
		resp, err := (&http.Client{Transport: transport}).Do(req)
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
}

// getsChecksum creates a ConfigMap that asks for a checksum, and waits for that.
func getsChecksum(t *testing.T, member *mctest.ControlPlane, namespace string) {
	t.Helper()
	asks := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "asks", Labels: map[string]string{wanted: "true"}}}
	if err := member.Client().Create(t.Context(), asks); err != nil {
		t.Fatal(err)
	}
	stage.Eventually(t, "a ConfigMap of the namespace "+namespace+" has a checksum", func() bool {
		return member.Client().Get(t.Context(), client.ObjectKeyFromObject(asks), asks) == nil && asks.Annotations[checksum] != ""
	})
}
