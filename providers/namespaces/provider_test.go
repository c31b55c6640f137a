package namespaces_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/namespaces"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// label is on the namespaces that a test makes members.
const label = "test.fleet-runtime.dev/member"

// selected are the namespaces of the test. Those that every cluster has are not among them.
var selected = labels.SelectorFromSet(labels.Set{label: "true"})

var pool mctest.Pool

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(pool.Run(m))
}

// manager is a manager of a test, whose members are the selected namespaces.
type manager struct {
	mcmanager.Manager
	t testing.TB
}

// newManager returns a manager that does not run yet.
func newManager(t *testing.T, cp *mctest.ControlPlane, p namespaces.Provider) *manager {
	t.Helper()
	return newManagerOf(t, cp.Config(), p)
}

func newManagerOf(tb testing.TB, local *rest.Config, p namespaces.Provider) *manager {
	tb.Helper()
	if p.Selector == nil {
		p.Selector = selected
	}
	skip := true // the names of controllers are of the whole process
	options := mcmanager.Options{Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"}}
	options.Controller.SkipNameValidation = &skip
	mgr, err := mcmanager.New(local, p, options)
	if err != nil {
		tb.Fatal(err)
	}
	return &manager{mgr, tb}
}

// start runs the manager until the test ends.
func (m *manager) start() { m.t.Cleanup(m.run()) }

// run runs the manager until stop is called.
func (m *manager) run() (stop func()) {
	ctx, cancel := context.WithCancel(m.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			m.t.Error(err)
		}
	}
}

// member waits until a member is ready, and returns its cluster.
func (m *manager) member(name fleet.ClusterName) cluster.Cluster {
	m.t.Helper()
	m.await(name, "ready", func(s fleet.Status, known bool) bool { return known && s.State == fleet.Ready })
	cl, err := m.GetCluster(m.t.Context(), name)
	if err != nil {
		m.t.Fatal(err)
	}
	return cl
}

// gone waits until there is no such member.
func (m *manager) gone(name fleet.ClusterName) {
	m.t.Helper()
	m.await(name, "gone", func(_ fleet.Status, known bool) bool { return !known })
}

func (m *manager) await(name fleet.ClusterName, what string, is func(s fleet.Status, known bool) bool) {
	m.t.Helper()
	var status fleet.Status
	var known bool
	// Changes does not tell of a member that had gone before.
	err := wait.PollUntilContextTimeout(m.t.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		status, known = m.GetFleet().Status(name)
		return is(status, known), nil
	})
	if err != nil {
		m.t.Fatalf("%q did not get %s: known %t, %+v", name, what, known, status)
	}
}

// request waits for a request about an object of that name.
func request(t *testing.T, requests <-chan mcreconcile.Request, name string) mcreconcile.Request {
	t.Helper()
	giveUp := time.After(patience)
	for {
		select {
		case req := <-requests:
			if req.Name == name {
				return req
			}
		case <-giveUp:
			t.Fatalf("%q was not reconciled", name)
		}
	}
}

// namespace creates a namespace that is a member.
func namespace(t *testing.T, cp *mctest.ControlPlane) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-", Labels: map[string]string{label: "true"}}}
	create(t, cp, ns)
	return ns.Name
}

func create(t *testing.T, cp *mctest.ControlPlane, obj client.Object) {
	t.Helper()
	if err := cp.Client().Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// finalize ends a namespace that is being deleted, as the controller manager does once nothing is left in it.
func finalize(t *testing.T, cp *mctest.ControlPlane, name string) {
	t.Helper()
	ns := &corev1.Namespace{}
	if err := cp.Client().Get(t.Context(), client.ObjectKey{Name: name}, ns); err != nil {
		t.Fatal(err)
	}
	ns.Spec.Finalizers = nil
	if err := cp.Client().SubResource("finalize").Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
}

func TestEachNamespaceIsAMember(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	first := namespace(t, cp)
	create(t, cp, configMap(first, "early"))
	m := newManager(t, cp, namespaces.Provider{})
	requests := watch(t, m, &corev1.ConfigMap{})
	m.start()
	check := func(req mcreconcile.Request, namespace string) {
		t.Helper()
		if string(req.ClusterName) != namespace || req.Namespace != namespace {
			t.Errorf("got the request %v, want namespace and member %s", req, namespace)
		}
	}

	check(request(t, requests, "early"), first)
	create(t, cp, configMap(first, "late"))
	check(request(t, requests, "late"), first)

	second := namespace(t, cp)
	create(t, cp, configMap(second, "second"))
	check(request(t, requests, "second"), second)
	if status, _ := m.GetFleet().Status(fleet.ClusterName(second)); status.Labels[label] != "true" {
		t.Errorf("the member has the labels %v, want those of the namespace", status.Labels)
	}
}

func TestTheZeroValueHasEveryNamespace(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	m := newManager(t, cp, namespaces.Provider{Selector: labels.Everything()})
	m.start()
	m.member(metav1.NamespaceDefault)
	m.member(metav1.NamespaceSystem)
}

func TestALabelMakesAMemberAndUnmakesIt(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cp.CreateNamespace(t)}}
	m := newManager(t, cp, namespaces.Provider{})
	m.start()
	set := func(value string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, label, value)
		if err := cp.Client().Patch(t.Context(), ns, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	set("true")
	m.member(fleet.ClusterName(ns.Name))
	set("false")
	m.gone(fleet.ClusterName(ns.Name))
}

func TestANamespaceThatIsBeingDeletedStaysUntilItIsGone(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := namespace(t, cp)
	held := configMap(ns, "held")
	held.Finalizers = []string{"test.fleet-runtime.dev/held"}
	create(t, cp, held)
	m := newManager(t, cp, namespaces.Provider{})
	requests := watch(t, m, &corev1.ConfigMap{})
	m.start()
	request(t, requests, "held")

	if err := cp.Client().Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		t.Fatal(err)
	}
	if err := cp.Client().Delete(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	request(t, requests, "held") // the controller could take its finalizer now
	take := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := m.member(fleet.ClusterName(ns)).GetClient().Patch(t.Context(), held, take); err != nil {
		t.Errorf("taking the finalizer: %v", err)
	}
	finalize(t, cp, ns)
	m.gone(fleet.ClusterName(ns))
}

func TestANamespaceThatIsMadeAnewIsAnotherMember(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	name := namespace(t, cp)
	m := newManager(t, cp, namespaces.Provider{})
	m.start()
	before := m.member(fleet.ClusterName(name))
	if again := m.member(fleet.ClusterName(name)); again != before {
		t.Error("the cluster of a member is another each time")
	}

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: "true"}}}
	if err := cp.Client().Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	finalize(t, cp, name)
	create(t, cp, ns)
	m.await(fleet.ClusterName(name), "another", func(_ fleet.Status, known bool) bool {
		after, err := m.GetCluster(t.Context(), fleet.ClusterName(name))
		return known && err == nil && after != before
	})
}

func TestNamespacesOfAnotherCluster(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	other := f.Members[0]
	cl, err := cluster.New(other.Config(), func(o *cluster.Options) { o.Logger = logr.Discard() })
	if err != nil {
		t.Fatal(err)
	}
	ns := namespace(t, other)
	m := newManager(t, f.Local, namespaces.Provider{Cluster: cl})
	if err := m.Add(cl); err != nil {
		t.Fatal(err)
	}
	requests := watch(t, m, &corev1.ConfigMap{})
	m.start()
	create(t, other, configMap(ns, "there"))
	if req := request(t, requests, "there"); string(req.ClusterName) != ns {
		t.Errorf("got %v, want the member %s", req, ns)
	}
}

// TestAMistakeInTheProgramEndsTheProvider, although the cache of its own would run on.
func TestAMistakeInTheProgramEndsTheProvider(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	local, err := cluster.New(cp.Config(), func(o *cluster.Options) { o.Scheme = runtime.NewScheme() })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := (namespaces.Provider{}).Run(ctx, local, nil); err == nil || ctx.Err() != nil {
		t.Errorf("Run returned %v (%v), want at once that the scheme does not know namespaces", err, ctx.Err())
	}
}
