package mctest_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// patience is how long a test waits for what takes milliseconds when all is well.
const patience = time.Minute

var pool mctest.Pool

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		beVictim()
	}
	log.SetLogger(logr.Discard())
	os.Exit(pool.Run(m))
}

func TestControlPlanesAreClustersOfTheirOwn(t *testing.T) {
	fleet := pool.Start(t, mctest.Options{Clusters: 2})
	third := fleet.AddMember(t)

	names, namespaces := "", map[string]bool{}
	for _, cp := range append([]*mctest.ControlPlane{fleet.Local}, fleet.Members...) {
		names += cp.Name + " "
		mustCreate(t, cp.Client(), configMap(metav1.NamespaceDefault, "whose", cp.Name))
		namespaces[cp.CreateNamespace(t)] = true
		namespaces[cp.CreateNamespace(t)] = true
	}
	if names != "local member-1 member-2 member-3 " {
		t.Errorf("the names are %q", names)
	}
	if third != fleet.Members[2] {
		t.Error("the member that was added is not the last of the fleet")
	}
	if len(namespaces) != 8 {
		t.Errorf("the 8 new namespaces have %d names", len(namespaces))
	}
	for _, cp := range fleet.Members {
		if got := owner(t, cp.Client()); got != cp.Name {
			t.Errorf("%s holds the object of %s", cp.Name, got)
		}
	}
}

// TestMembersThatAreTakenOutOfTheListAreGivenBack: a test may choose which of its members it reports.
func TestMembersThatAreTakenOutOfTheListAreGivenBack(t *testing.T) {
	var host string
	t.Run("first", func(t *testing.T) {
		fleet := pool.Start(t, mctest.Options{Clusters: 1})
		host = fleet.Members[0].Config().Host
		fleet.Members = nil
		if next := fleet.AddMember(t); next.Name != "member-2" {
			t.Errorf("the next member is named %s", next.Name)
		}
	})
	t.Run("next", func(t *testing.T) {
		fleet := pool.Start(t, mctest.Options{Clusters: 2})
		if !slices.ContainsFunc(append(fleet.Members, fleet.Local), func(cp *mctest.ControlPlane) bool { return cp.Config().Host == host }) {
			t.Errorf("none of the control planes is the one of before, %s", host)
		}
	})
}

func TestKubeconfigReachesTheSameClusterWithTheSameRights(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	mustCreate(t, cp.Client(), configMap(metav1.NamespaceDefault, "whose", "this one's"))
	ofUser, err := mctest.Kubeconfig(cp.AddUser(t, "reader", allow("get", "configmaps")))
	if err != nil {
		t.Fatal(err)
	}
	for name, kubeconfig := range map[string][]byte{"administrator": cp.Kubeconfig(), "user": ofUser} {
		t.Run(name, func(t *testing.T) {
			config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
			if err != nil {
				t.Fatal(err)
			}
			cl := newClient(t, config)
			if got := owner(t, cl); got != "this one's" {
				t.Errorf("it reaches another cluster: %q", got)
			}
			if err := cl.List(t.Context(), &corev1.SecretList{}); apierrors.IsForbidden(err) != (name == "user") {
				t.Errorf("listing Secrets: %v", err)
			}
		})
	}
}

func TestStoppedOneRefusesAndComesBackWithItsData(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	mustCreate(t, cp.Client(), configMap(metav1.NamespaceDefault, "whose", cp.Name))
	before := cp.Config()

	cp.Stop(t)
	cp.Stop(t) // does nothing
	if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address(t, before)); err == nil {
		_ = conn.Close()
		t.Error("the address of a stopped control plane accepts connections")
	}
	if err := cp.APIServer.Freeze(); err == nil || !strings.Contains(err.Error(), "the API server of local") {
		t.Errorf("freezing a stopped one: got error %v, want one that says which it is", err)
	}

	cp.Restart(t)
	// With the config of before: address, authority and certificates are the same.
	if got := owner(t, newClient(t, before)); got != cp.Name {
		t.Errorf("it came back with other data: %q", got)
	}
}

func TestFrozenOneDoesNotAnswerAndComesBack(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	if err := cp.Client().List(t.Context(), &corev1.NamespaceList{}); err != nil {
		t.Fatal(err) // from now on it has a connection
	}
	cp.Freeze(t)
	hurry, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := cp.Client().List(hurry, &corev1.NamespaceList{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen control plane answers: %v", err)
	}
	cp.Thaw(t)
	if err := cp.Client().List(t.Context(), &corev1.NamespaceList{}); err != nil {
		t.Error("it does not answer after the thaw:", err)
	}
}

func TestFrozenOneCanBeRestarted(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	cp.Freeze(t)
	cp.Restart(t)
	if err := cp.Client().List(t.Context(), &corev1.NamespaceList{}); err != nil {
		t.Error(err)
	}
}

func TestAPIServerWithoutItsEtcdAnswersWithErrorsAndRecovers(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	mustCreate(t, cp.Client(), configMap(metav1.NamespaceDefault, "whose", cp.Name))

	if err := cp.Etcd.Stop(); err != nil {
		t.Fatal(err)
	}
	hurry, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := cp.Client().Create(hurry, configMap(metav1.NamespaceDefault, "other", "")); err == nil {
		t.Error("a write succeeds without etcd")
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address(t, cp.Config()))
	if err != nil {
		t.Fatal("the API server went down with its etcd:", err)
	}
	_ = conn.Close()

	if err := cp.Etcd.Restart(); err != nil {
		t.Fatal(err)
	}
	// The API server connects to etcd for each resource on its own, so that others answer says nothing about this one.
	got := configMap(metav1.NamespaceDefault, "whose", "")
	eventually(t, func(ctx context.Context) error { return cp.Client().Get(ctx, client.ObjectKeyFromObject(got), got) })
	if got.Data["whose"] != cp.Name {
		t.Errorf("etcd came back with other data: %q", got.Data)
	}
}

func TestUserHasExactlyTheGivenRights(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	mustCreate(t, cp.Client(), configMap(metav1.NamespaceDefault, "whose", cp.Name))
	user := newClient(t, cp.AddUser(t, "jane", allow("get", "configmaps"), allow("list", "secrets")))
	other := newClient(t, cp.AddUser(t, "joe"))

	get := func(cl client.Client) error {
		return cl.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "whose"}, &corev1.ConfigMap{})
	}
	listConfigMaps := func(cl client.Client) error { return cl.List(t.Context(), &corev1.ConfigMapList{}) }
	listSecrets := func(cl client.Client) error { return cl.List(t.Context(), &corev1.SecretList{}) }
	for what, err := range map[string]error{"get configmap": get(user), "list secrets": listSecrets(user)} {
		if err != nil {
			t.Errorf("%s, which is granted: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"list configmaps": listConfigMaps(user), "create configmap": user.Create(t.Context(), configMap(metav1.NamespaceDefault, "x", "")),
		"get configmap as a user without rights": get(other), "list secrets as a user without rights": listSecrets(other),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s, which is not granted: got error %v, want Forbidden", what, err)
		}
	}

	cp.AddUser(t, "jane", allow("list", "configmaps"))
	if err := get(user); !apierrors.IsForbidden(err) {
		t.Errorf("get configmap, which is no longer granted: got error %v, want Forbidden", err)
	}
	if err := listConfigMaps(user); err != nil {
		t.Error("list configmaps, which is granted now:", err)
	}
}

func TestCRDsAreInstalledInEveryCluster(t *testing.T) {
	fleet := pool.Start(t, mctest.Options{Clusters: 1, CRDPaths: []string{"testdata"}, CRDs: []*apiextensionsv1.CustomResourceDefinition{crd("gadgets", "Gadget")}})
	fleet.AddMember(t)
	for _, cp := range append([]*mctest.ControlPlane{fleet.Local}, fleet.Members...) {
		for _, kind := range []string{"Widget", "Gadget"} {
			if err := cp.Client().Create(t.Context(), custom(kind, metav1.NamespaceDefault)); err != nil {
				t.Errorf("%s in %s: %v", kind, cp.Name, err)
			}
		}
	}
}

func TestSilentAcceptsAndNeverAnswers(t *testing.T) {
	var conn net.Conn
	t.Run("during the test", func(t *testing.T) {
		var err error
		conn, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", mctest.Silent(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
			t.Error(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Error(err)
		}
		if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %d bytes and error %v, want none until the deadline", n, err)
		}
	})
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Error(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the test the connection is still open: %v", err)
	}
}

func TestMissingProgramsAreAnErrorThatSaysWhereToGetThem(t *testing.T) {
	empty := t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", empty)
	_, err := mctest.New(t.Context(), mctest.Options{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{empty, "make assets", "go run github.com/fleet-runtime/fleet-runtime/hack/assets@latest"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error %q does not name %q", err, want)
		}
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	t.Run("of a cluster whose CRDs are missing", func(t *testing.T) {
		tmp := ownTempDir(t)
		_, err := mctest.New(t.Context(), mctest.Options{Clusters: 1, CRDPaths: []string{filepath.Join(tmp, "missing")}})
		if err == nil || !strings.Contains(err.Error(), "missing") {
			t.Errorf("got error %v, want one that names the path", err)
		}
		nothingRemains(t, tmp)
	})
	t.Run("that is interrupted", func(t *testing.T) {
		tmp := ownTempDir(t)
		ctx, cancel := context.WithCancel(t.Context())
		var interrupting sync.WaitGroup
		defer interrupting.Wait()
		interrupting.Go(func() {
			defer cancel()
			eventually(t, func(context.Context) error { return exists(filepath.Join(tmp, "*", "kube-apiserver.pid")) })
		})
		if _, err := mctest.New(ctx, mctest.Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want that of the context", err)
		}
		nothingRemains(t, tmp)
	})
}

func allow(verb, resource string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{verb}}
}

func configMap(namespace, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"whose": value}}
}

// owner returns what the ConfigMap that tests create in each cluster says.
func owner(t *testing.T, cl client.Client) string {
	t.Helper()
	got := configMap(metav1.NamespaceDefault, "whose", "")
	if err := cl.Get(t.Context(), client.ObjectKeyFromObject(got), got); err != nil {
		t.Fatal(err)
	}
	return got.Data["whose"]
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	cl, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

func mustCreate(t *testing.T, cl client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := cl.Create(t.Context(), o); err != nil {
			t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

// address is the host and port of a config.
func address(t *testing.T, config *rest.Config) string {
	t.Helper()
	u, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}
