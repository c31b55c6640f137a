package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(stage.Run(m, &pool, runProgram)) }

// kubeconfigLabel marks the Secrets that the provider reads.
const kubeconfigLabel = "fleet-runtime.dev/kubeconfig"

// lookEvery is how often tests look whether something holds. Many look by a request, so more often would keep a core busy.
const lookEvery = 50 * time.Millisecond

// eventually waits until what holds, and says what did not if it takes too long. The time is there to end a test that
// fails; no test passes because of it.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	eventuallyWithin(t, 60*time.Second, what, holds)
}

func eventuallyWithin(t *testing.T, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("still not so after %s: %s", patience, what)
		}
	}
}

// manager is a running manager of a test, on a local cluster whose kubeconfig Secrets are its members.
type manager struct {
	mcmanager.Manager
	t       *testing.T
	ns      string // of the Secrets
	members *fleettest.Provider
	stop    context.CancelFunc
	stopped chan error
}

// newManager makes a manager that discovers the Secrets of a new namespace. It is not started.
func newManager(t *testing.T, local *mctest.ControlPlane) *manager {
	t.Helper()
	ns := local.CreateNamespace(t)
	return newManagerOf(t, local, ns, kubeconfig.Provider{Namespace: ns})
}

func newManagerOf(t *testing.T, local *mctest.ControlPlane, ns string, provider fleet.Provider) *manager {
	t.Helper()
	return newManagerWith(t, local, ns, provider, func(*mcmanager.Options) {})
}

func newManagerWith(
	t *testing.T, local *mctest.ControlPlane, ns string, provider fleet.Provider,
	change func(*mcmanager.Options), opts ...mcmanager.FleetOption,
) *manager {
	t.Helper()
	options := mcmanager.Options{
		Logger:  newLogger(t),
		Metrics: metricsserver.Options{BindAddress: "0"},
	}
	change(&options)
	members := &fleettest.Provider{Beside: provider}
	mgr, err := mcmanager.New(local.Config(), members, options, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return &manager{Manager: mgr, t: t, ns: ns, members: members, stopped: make(chan error, 1)}
}

// logger writes to the log of a test while it lasts. A manager logs on for a moment after its Start has returned, and what
// is logged after the end of a test panics.
type logger struct {
	*testing.T
	mu    sync.Mutex // guards what follows, and is held while a line is written
	ended bool
}

func newLogger(t *testing.T) logr.Logger {
	t.Helper()
	l := &logger{T: t}
	t.Cleanup(l.end)
	return testr.NewWithInterface(l, testr.Options{Verbosity: 0})
}

// Log implements testr.TestingT.
func (l *logger) Log(args ...any) {
	l.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.T.Log(args...)
	}
}

func (l *logger) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// start runs the manager until the test ends. It must not have stopped by itself before.
func (m *manager) start() {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // it must outlive t.Context, which ends before clean-up
	m.stop = cancel
	go func() { m.stopped <- m.Start(ctx) }()
	m.t.Cleanup(func() {
		m.mustRun()
		cancel()
		if err := <-m.stopped; err != nil {
			m.t.Errorf("the manager ended with an error: %v", err)
		}
	})
}

// mustRun fails the test if the manager has stopped.
func (m *manager) mustRun() {
	m.t.Helper()
	select {
	case err := <-m.stopped:
		m.stopped <- err
		m.t.Errorf("the manager stopped by itself: %v", err)
	default:
	}
}

// join reports a cluster by a Secret in the local one.
func (m *manager) join(name string, cfg *rest.Config) *corev1.Secret {
	m.t.Helper()
	content, err := mctest.Kubeconfig(cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	return m.joinWith(name, content, nil)
}

func (m *manager) joinWith(name string, content []byte, labels map[string]string) *corev1.Secret {
	m.t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.ns, Name: name, Labels: map[string]string{kubeconfigLabel: "true"}},
		Data:       map[string][]byte{"kubeconfig": content},
	}
	maps.Copy(secret.Labels, labels)
	if err := m.local().Create(m.t.Context(), secret); err != nil {
		m.t.Fatal(err)
	}
	return secret
}

// rejoin replaces the kubeconfig of a member.
func (m *manager) rejoin(secret *corev1.Secret, cfg *rest.Config) {
	m.t.Helper()
	content, err := mctest.Kubeconfig(cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	patch := client.MergeFrom(secret.DeepCopy())
	secret.Data = map[string][]byte{"kubeconfig": content}
	if err := m.local().Patch(m.t.Context(), secret, patch); err != nil {
		m.t.Fatal(err)
	}
}

func (m *manager) leave(secret *corev1.Secret) {
	m.t.Helper()
	if err := m.local().Delete(m.t.Context(), secret); err != nil {
		m.t.Fatal(err)
	}
}

func (m *manager) local() client.Client {
	m.t.Helper()
	c, err := client.New(m.GetConfig(), client.Options{})
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

// status returns the state of a member, empty if it is none.
func (m *manager) status(name fleet.ClusterName) fleet.Status {
	status, _ := m.GetFleet().Status(name)
	return status
}

// is waits until a member is in a state.
func (m *manager) is(name fleet.ClusterName, state fleet.State) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("member %s is %q", name, state), func() bool { return m.status(name).State == state })
}

// isBecause waits until a member is in a state for one of these reasons, and the status says more in a message. It may be
// in that state for another reason first: a probe that took too long reports that, and the next one what is wrong.
func (m *manager) isBecause(name fleet.ClusterName, state fleet.State, reasons ...string) {
	m.t.Helper()
	var status fleet.Status
	because := false
	defer func() {
		if !because {
			m.t.Errorf("the status is %+v, want %s, one of the reasons %q, and a message", status, state, reasons)
		}
	}()
	eventually(m.t, fmt.Sprintf("member %s is %s because of one of %q", name, state, reasons), func() bool {
		status = m.status(name)
		because = status.State == state && slices.Contains(reasons, status.Reason) && status.Message != ""
		return because
	})
}

// attached returns the engagement of the member "m", which goes on while the member cannot be reached for a moment.
func (m *manager) attached() *fleet.Engagement {
	m.t.Helper()
	for change := range m.GetFleet().Changes(m.t.Context()) {
		if change.Status.Name == "m" && change.Engagement != nil {
			return change.Engagement
		}
	}
	m.t.Fatalf("the member is not engaged: %+v", m.status("m"))
	return nil
}

// record notes which requests were reconciled.
type record struct {
	mu   sync.Mutex
	seen map[mcreconcile.Request]int
}

func newRecord() *record { return &record{seen: map[mcreconcile.Request]int{}} }

// Reconcile implements mcreconcile.Reconciler.
func (r *record) Reconcile(_ context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[req]++
	return reconcile.Result{}, nil
}

// count returns how often an object was reconciled.
func (r *record) count(cluster mcreconcile.ClusterName, namespace, name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	req := mcreconcile.Request{ClusterName: cluster}
	req.Namespace, req.Name = namespace, name
	return r.seen[req]
}

// of returns the requests whose objects are in a namespace, each once.
func (r *record) of(namespace string) map[mcreconcile.Request]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[mcreconcile.Request]bool{}
	for req := range r.seen {
		if req.Namespace == namespace {
			out[req] = true
		}
	}
	return out
}

// total returns how many reconciles there were for a cluster.
func (r *record) total(cluster mcreconcile.ClusterName) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for req, times := range r.seen {
		if req.ClusterName == cluster {
			n += times
		}
	}
	return n
}

// control adds a controller of ConfigMaps.
func (m *manager) control(r mcreconcile.Reconciler) {
	m.t.Helper()
	if err := mcbuilder.ControllerManagedBy(m).For(&corev1.ConfigMap{}).Named(controllerName(m.t)).Complete(r); err != nil {
		m.t.Fatal(err)
	}
}

// controllerName is one that no other test uses: controller-runtime keeps them for the process.
func controllerName(t *testing.T) string {
	t.Helper()
	return strings.NewReplacer("/", "-", " ", "-").Replace(strings.ToLower(t.Name())) + fmt.Sprintf("-%d", time.Now().UnixNano())
}

// configMap creates one in a cluster.
func configMap(t *testing.T, cp *mctest.ControlPlane, namespace, name string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := cp.Client().Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
}
