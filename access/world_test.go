package access_test

import (
	"context"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

var (
	pool   mctest.Pool
	output accesstest.Output
)

func TestMain(m *testing.M) { os.Exit(output.Run(m, &pool)) }

// patience is how long a test waits for what must happen.
const patience = 2 * time.Minute

// world is a hub with a namespace, and members.
type world struct {
	hub       *mctest.ControlPlane
	members   []*mctest.ControlPlane
	namespace string
}

func newWorld(t *testing.T, members int) world {
	t.Helper()
	f := pool.Start(t, accesstest.Options(t, members))
	w := world{f.Local, f.Members, f.Local.CreateNamespace(t)}
	output.Collect(t, w.hub, w.namespace)
	return w
}

// mint lets the first member join by a minter.
func (w world) mint(t *testing.T) *v1alpha1.ClusterAccess {
	t.Helper()
	return accesstest.Mint(t, w.hub, w.members[0], w.namespace, w.members[0].Name)
}

// federate lets the i-th member join by the hub's tokens.
func (w world) federate(t *testing.T, i int) *v1alpha1.ClusterAccess {
	t.Helper()
	cfg := w.members[i].Config()
	return accesstest.Federate(t, w.hub, w.members[i], w.namespace, w.members[i].Name, access.Audience(cfg.Host, cfg.CAData, ""))
}

func (w world) client(t *testing.T) *access.Hub {
	t.Helper()
	hub, err := access.NewHub(w.hub.Config(), nil)
	accesstest.Must(t, err)
	return hub
}

// control runs the controller until the test ends.
func (w world) control(t *testing.T) {
	t.Helper()
	w.controlBy(t, w.hub.Config())
}

// controlBy is control with a config of the hub.
func (w world) controlBy(t *testing.T, cfg *rest.Config) {
	t.Helper()
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: w.hub.Client().Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	accesstest.Must(t, err)
	accesstest.Must(t, access.Controller{}.SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() { cancel(); accesstest.Must(t, <-ended) })
}

// create creates an access that differs from one.
func (w world) create(t *testing.T, name string, from *v1alpha1.ClusterAccess, change func(s *v1alpha1.ClusterAccessSpec)) {
	t.Helper()
	a := &v1alpha1.ClusterAccess{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: from.DeepCopy().Spec}
	change(&a.Spec)
	accesstest.Must(t, w.hub.Client().Create(t.Context(), a))
}

// waitFor waits until the condition Ready of an access has a reason, and returns the access.
func (w world) waitFor(t *testing.T, name, reason string) *v1alpha1.ClusterAccess {
	t.Helper()
	a := &v1alpha1.ClusterAccess{}
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if err := w.hub.Client().Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, a); err != nil {
			return false, err
		}
		ready := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && ready.Reason == reason && ready.ObservedGeneration == a.Generation, nil
	})
	if err != nil {
		t.Fatalf("%s did not become %s: %+v", name, reason, a.Status)
	}
	return a
}
