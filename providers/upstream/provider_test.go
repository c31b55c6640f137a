package upstream_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	upstreammanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	"sigs.k8s.io/multicluster-runtime/providers/clusters"
	"sigs.k8s.io/multicluster-runtime/providers/file"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"
	"sigs.k8s.io/multicluster-runtime/providers/multi"
	nop "sigs.k8s.io/multicluster-runtime/providers/nop" // its package is named namespace
	"sigs.k8s.io/multicluster-runtime/providers/single"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/upstream"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

var pool mctest.Pool

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(pool.Run(m))
}

// manager is a manager of a test, with a controller of ConfigMaps.
type manager struct {
	mcmanager.Manager
	t        *testing.T
	requests chan mcreconcile.Request
}

// newManager returns a manager that does not run yet, with an index of ConfigMaps by their text.
func newManager(t *testing.T, local *mctest.ControlPlane, p multicluster.Provider, change ...func(*mcmanager.Options)) *manager {
	t.Helper()
	options := mcmanager.Options{Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"}}
	options.Controller.SkipNameValidation = new(true) // the names of controllers are of the whole process
	for _, apply := range change {
		apply(&options)
	}
	mgr, err := mcmanager.New(local.Config(), upstream.Provider{Provider: p}, options)
	if err != nil {
		t.Fatal(err)
	}
	m := &manager{mgr, t, make(chan mcreconcile.Request, 10_000)}
	byText := func(obj client.Object) []string { return []string{obj.(*corev1.ConfigMap).Data["text"]} }
	if err := mgr.GetFleetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "text", byText); err != nil {
		t.Fatal(err)
	}
	err = mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).
		Complete(mcreconcile.Func(func(_ context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			m.requests <- req
			return reconcile.Result{}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// start runs the manager until the test ends.
func (m *manager) start() {
	ctx, stop := context.WithCancel(m.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	m.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			m.t.Error(err)
		}
	})
}

// works checks that a member is the given cluster: a new object there is reconciled, and found by the index.
func (m *manager) works(name fleet.ClusterName, cp *mctest.ControlPlane) {
	m.t.Helper()
	text := strings.ToLower(rand.Text())
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "test-" + text}, Data: map[string]string{"text": text},
	}
	if err := cp.Client().Create(m.t.Context(), cm); err != nil {
		m.t.Fatal(err)
	}
	giveUp := time.After(patience)
	for found := false; !found; {
		select {
		case req := <-m.requests:
			found = req.ClusterName == name && req.Name == cm.Name
		case <-giveUp:
			status, known := m.GetFleet().Status(name)
			m.t.Fatalf("an object of %q was not reconciled; known %t, %+v", name, known, status)
		}
	}
	list := &corev1.ConfigMapList{}
	cl, err := m.GetCluster(m.t.Context(), name)
	if err == nil {
		err = cl.GetClient().List(m.t.Context(), list, client.MatchingFields{"text": text})
	}
	if err != nil || len(list.Items) != 1 {
		m.t.Errorf("the index finds %d objects in %q: %v", len(list.Items), name, err)
	}
	if status, _ := m.GetFleet().Status(name); status.NotSynced != nil {
		m.t.Errorf("%q says %v", name, status.NotSynced)
	}
}

// members waits until these are ready, and there are no others.
func (m *manager) members(names ...fleet.ClusterName) {
	m.t.Helper()
	m.membersWhile(func() {}, names...)
}

// membersWhile is members, and does something again and again meanwhile.
func (m *manager) membersWhile(do func(), names ...fleet.ClusterName) {
	m.t.Helper()
	want := map[fleet.ClusterName]fleet.State{}
	for _, name := range names {
		want[name] = fleet.Ready
	}
	var got map[fleet.ClusterName]fleet.State
	eventually(m.t, func() bool {
		do()
		got = map[fleet.ClusterName]fleet.State{}
		for _, status := range m.GetFleet().List(nil) {
			got[status.Name] = status.State
		}
		return cmp.Equal(want, got)
	}, func() string { return cmp.Diff(want, got) })
}

func eventually(t *testing.T, is func() bool, otherwise func() string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true,
		func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		t.Fatal("waited in vain:", otherwise())
	}
}

// newCluster returns a cluster that is not started.
func newCluster(t *testing.T, config *rest.Config) cluster.Cluster {
	t.Helper()
	cl, err := cluster.New(config, func(o *cluster.Options) { o.Logger = logr.Discard() })
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// kubeconfigOf returns a kubeconfig with a context for each config.
func kubeconfigOf(t *testing.T, configs map[string]*rest.Config) []byte {
	t.Helper()
	merged := clientcmdapi.NewConfig()
	for name, config := range configs {
		merged.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
		merged.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
		merged.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	text, err := clientcmd.Write(*merged)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// secret returns a Secret that the kubeconfig provider reads.
func secret(name string, kubeconfig []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name,
			Labels: map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"},
		},
		Data: map[string][]byte{"kubeconfig": kubeconfig},
	}
}

func TestAProviderThatSetsUpAController(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 2})
	m := newManager(t, f.Local, kubeconfig.New(kubeconfig.Options{Namespace: "default"}), func(o *mcmanager.Options) {
		// The clusters of this provider live on the context of the reconcile that made them.
		o.Controller.ReconciliationTimeout = time.Minute
	})
	early := secret("early", f.Members[0].Kubeconfig())
	if err := f.Local.Client().Create(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	m.start()
	m.works("early", f.Members[0])
	if err := f.Local.Client().Create(t.Context(), secret("late", f.Members[1].Kubeconfig())); err != nil {
		t.Fatal(err)
	}
	m.works("late", f.Members[1])

	early.Data["kubeconfig"] = f.Members[1].Kubeconfig()
	if err := f.Local.Client().Update(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		cl, err := m.GetCluster(t.Context(), "early")
		return err == nil && cl.GetConfig().Host == f.Members[1].Config().Host
	}, func() string { return "the member is the cluster that it was" })
	m.works("early", f.Members[1])

	if err := f.Local.Client().Delete(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	m.members("late")
}

func TestAProviderThatSetsUpAControllerRunsOnReplicasThatDoNotLead(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "test"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("another replica"), LeaseDurationSeconds: new(int32(3600)), RenewTime: new(metav1.NowMicro()),
		},
	}
	if err := f.Local.Client().Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	m := newManager(t, f.Local, kubeconfig.New(kubeconfig.Options{Namespace: "default"}), func(o *mcmanager.Options) {
		o.LeaderElection, o.LeaderElectionNamespace, o.LeaderElectionID = true, lease.Namespace, lease.Name
	})
	m.start()
	if err := f.Local.Client().Create(t.Context(), secret("east", f.Members[0].Kubeconfig())); err != nil {
		t.Fatal(err)
	}
	m.members("east")
	select {
	case <-m.Elected():
		t.Error("the replica leads")
	default:
	}
}

func TestTheFileProvider(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 2})
	path := filepath.Join(t.TempDir(), "config")
	write := func(configs map[string]*rest.Config) {
		t.Helper()
		if err := os.WriteFile(path+".new", kubeconfigOf(t, configs), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	east, west := f.Members[0], f.Members[1]
	nameOf := func(context string) fleet.ClusterName { return fleet.ClusterName(path + "+" + context) }
	provider, err := file.New(file.Options{KubeconfigFiles: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	write(map[string]*rest.Config{"east": east.Config()})
	m := newManager(t, f.Local, provider)
	m.start()
	m.works(nameOf("east"), east)

	both := map[string]*rest.Config{"east": east.Config(), "west": west.Config()}
	write(both)
	m.works(nameOf("west"), west)

	both["west"] = west.AddUser(t, "reader", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"},
	})
	eventually(t, func() bool {
		// In v0.24, the end of the old cluster may make this provider forget the new one, until the file changes again.
		write(both)
		cl, err := m.GetCluster(t.Context(), nameOf("west"))
		return err == nil && cmp.Equal(cl.GetConfig().CertData, both["west"].CertData)
	}, func() string { return "the new credentials are not in use" })

	delete(both, "east")
	m.membersWhile(func() { write(both) }, nameOf("west")) // the end of the old cluster may come as late as now
}

// tenants is a provider of clusters that share one cache, like the provider of namespaces of multicluster-runtime.
type tenants struct {
	multicluster.Provider // what the adapter does not call is missing
	shared                cluster.Cluster
	names                 <-chan multicluster.ClusterName
}

// Start implements multicluster.ProviderRunnable.
func (p tenants) Start(ctx context.Context, aware multicluster.Aware) error {
	for {
		select {
		case name := <-p.names:
			if err := aware.Engage(ctx, name, &tenant{Cluster: p.shared}); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

type tenant struct{ cluster.Cluster }

func TestAProviderOfClustersThatShareACache(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	shared := newCluster(t, f.Members[0].Config())
	names := make(chan multicluster.ClusterName)
	m := newManager(t, f.Local, tenants{shared: shared, names: names})
	if err := m.Add(shared); err != nil {
		t.Fatal(err)
	}
	m.start()
	for _, name := range []fleet.ClusterName{"a", "b", "c"} {
		names <- multicluster.ClusterName(name)
		m.works(name, f.Members[0])
	}
}

func TestSeveralProvidersAsOne(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 2})
	started := newCluster(t, f.Members[0].Config())
	dynamic, all := clusters.New(), multi.New(multi.Options{})
	for name, p := range map[string]multicluster.Provider{
		"one": single.New("east", started), "many": dynamic, "none": nop.New(),
	} {
		if err := all.AddProvider(name, p); err != nil {
			t.Fatal(err)
		}
	}
	m := newManager(t, f.Local, all)
	if err := m.Add(started); err != nil {
		t.Fatal(err)
	}
	m.start()
	m.works("one#east", f.Members[0])
	if err := dynamic.Add(t.Context(), "west", newCluster(t, f.Members[1].Config())); err != nil {
		t.Fatal(err)
	}
	m.works("many#west", f.Members[1])
	dynamic.Remove("west")
	m.members("one#east")
}

// late is a provider that engages with the manager that it is given, as that for Cluster API does.
type late struct {
	multicluster.Provider
	given chan upstreammanager.Manager
}

// SetupWithManager keeps the manager.
func (p late) SetupWithManager(mgr upstreammanager.Manager) error {
	p.given <- mgr
	return nil
}

func TestAProviderThatIsGivenAManagerEngagesWithIt(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	cl := newCluster(t, f.Members[0].Config())
	p := late{given: make(chan upstreammanager.Manager, 1)}
	m := newManager(t, f.Local, p)
	if err := m.Add(cl); err != nil {
		t.Fatal(err)
	}
	m.start()
	given := <-p.given
	if given.GetLocalManager().GetConfig().Host != f.Local.Config().Host {
		t.Error("the local manager is another")
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	if err := given.Engage(ctx, "east", cl); err != nil {
		t.Fatal(err)
	}
	m.works("east", f.Members[0])
	end()
	m.members()
}

// broken is a provider that fails to start, or to be set up, or does not run.
type broken struct {
	multicluster.Provider
	err error
}

// Start implements multicluster.ProviderRunnable.
func (b broken) Start(context.Context, multicluster.Aware) error { return b.err }

func TestAProviderThatFailsToStartSaysSo(t *testing.T) {
	failure := errors.New("no container engine")
	err := upstream.Provider{Provider: broken{err: failure}}.Run(t.Context(), nil, nil)
	if !errors.Is(err, failure) {
		t.Errorf("got %v, want what Start has returned", err)
	}
	if err := (upstream.Provider{}).Run(t.Context(), nil, nil); err == nil {
		t.Error("nothing is missing without a provider")
	}
}

func TestAProviderThatStartsAndReturnsGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- upstream.Provider{Provider: broken{}}.Run(ctx, nil, nil) }()
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("Run has returned")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestAProviderThatNeedsAManagerSaysSo(t *testing.T) {
	local := newCluster(t, &rest.Config{Host: "https://hub.invalid"})
	err := upstream.Provider{Provider: kubeconfig.New(kubeconfig.Options{})}.Run(t.Context(), local, nil)
	if err == nil || !strings.Contains(err.Error(), "mcmanager.New") {
		t.Errorf("got %v, want what to use", err)
	}
}
