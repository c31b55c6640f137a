package mcmanager_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// lines collects what is logged of where controllers run, as "NAME in WHERE", with a mark if there is a hint.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) logger() logr.Logger {
	return funcr.NewJSON(func(line string) {
		if !strings.Contains(line, `"The controller runs"`) {
			return
		}
		value := func(key string) string {
			_, rest, _ := strings.Cut(line, fmt.Sprintf(`%q:"`, key))
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
		text := value("controller") + " in " + value("in")
		if strings.Contains(value("hint"), "mcbuilder.ControllerManagedBy") {
			text += " (hint)"
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, text)
	}, funcr.Options{})
}

func (l *lines) sorted() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(slices.Values(l.all))
}

// TestTheManagerSaysAtItsStartWhereControllersRun: above all that what kubebuilder scaffolds runs in the local cluster alone.
func TestTheManagerSaysAtItsStartWhereControllersRun(t *testing.T) {
	cases := map[string]struct {
		provider fleet.Provider
		want     []string
	}{
		"Provider": {&fleettest.Provider{}, []string{
			"by-hand in the clusters that its sources name", "fleetwide in every member", "later in the local cluster alone (hint)",
			"scaffolded in the local cluster alone (hint)",
		}},
		"NoProvider": {nil, []string{
			"by-hand in the clusters that its sources name", "fleetwide in the local cluster alone", "later in the local cluster alone",
			"scaffolded in the local cluster alone",
		}},
	}
	f := pool.Start(t, mctest.Options{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			log := &lines{}
			mgr, err := mcmanager.New(f.Local.Config(), tc.provider, mcmanager.Options{
				Logger: log.logger(), Metrics: metricsserver.Options{BindAddress: "0"},
				Controller: config.Controller{SkipNameValidation: new(true)}, // for go test -count
			})
			if err != nil {
				t.Fatal(err)
			}
			scaffold(t, mgr, "scaffolded")
			inFleet := mcreconcile.Func(func(context.Context, mcreconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
			if err := mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("fleetwide").Complete(inFleet); err != nil {
				t.Fatal(err)
			}
			if _, err := controller.NewTyped("by-hand", mgr, mcbuilder.Options{Reconciler: inFleet}); err != nil {
				t.Fatal(err)
			}
			if early := log.sorted(); len(early) > 0 {
				t.Errorf("before the start the manager says %q", early)
			}
			s := &serving{Manager: mgr, t: t}
			s.start()
			<-mgr.Elected()
			scaffold(t, mgr, "later")
			if diff := cmp.Diff(tc.want, log.sorted()); diff != "" {
				t.Errorf("where controllers run (-want, +got):\n%s", diff)
			}
		})
	}
}

// scaffold adds a controller as kubebuilder scaffolds it.
func scaffold(t *testing.T, mgr ctrl.Manager, name string) {
	t.Helper()
	err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named(name).
		Complete(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }))
	if err != nil {
		t.Fatal(err)
	}
}

// TestAControllerWithoutLeaderElectionRunsWithoutIt: that it is known where it runs changes nothing of how it does.
func TestAControllerWithoutLeaderElectionRunsWithoutIt(t *testing.T) {
	f := pool.Start(t, mctest.Options{})
	ns := f.Local.CreateNamespace(t)
	replica := func(name string) (mcmanager.Manager, <-chan struct{}) {
		mgr, err := mcmanager.New(f.Local.Config(), nil, mcmanager.Options{
			Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
			LeaderElection: true, LeaderElectionID: "one", LeaderElectionNamespace: ns, LeaderElectionReleaseOnCancel: true,
			Controller: config.Controller{SkipNameValidation: new(true)},
		})
		if err != nil {
			t.Fatal(err)
		}
		reconciled := make(chan struct{})
		var once sync.Once
		err = mcbuilder.ControllerManagedBy(mgr).For(&corev1.Namespace{}).Named(name).
			WithControllerOptions(controller.Options{NeedLeaderElection: new(false)}).
			Complete(mcreconcile.Func(func(context.Context, mcreconcile.Request) (reconcile.Result, error) {
				once.Do(func() { close(reconciled) })
				return reconcile.Result{}, nil
			}))
		if err != nil {
			t.Fatal(err)
		}
		(&serving{Manager: mgr, t: t}).start()
		return mgr, reconciled
	}
	leader, leads := replica("leader")
	<-leader.Elected()
	<-leads
	_, runs := replica("standby")
	<-runs // and not for ever before it is elected
}
