package docs_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }

func TestAMemberThatFailsHoldsUpNoOther(t *testing.T) {
	clusters := pool.Start(t, mctest.Options{Clusters: 2})
	reconciled := make(chan mcreconcile.Request, 100)
	startManager(t, clusters, reconciled)

	clusters.Members[0].Stop(t)
	create(t, clusters.Members[1], "while the other is away")
	waitFor(t, reconciled, "member-2")

	clusters.Members[0].Restart(t)
	create(t, clusters.Members[0], "after the return")
	waitFor(t, reconciled, "member-1")
}

// startManager runs a manager with a controller of ConfigMaps that hands its requests to reconciled. It ends with the test.
func startManager(t *testing.T, clusters *mctest.Fleet, reconciled chan<- mcreconcile.Request) {
	t.Helper()
	provider := fleet.NewProvider("test", func(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
		for _, cp := range clusters.Members {
			if err := members.Set(fleet.Member{Name: fleet.ClusterName(cp.Name), Config: cp.Config()}); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return nil
	})
	mgr, err := mcmanager.New(clusters.Local.Config(), provider, mcmanager.Options{
		Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)}, // names are of the process, and so of all runs of go test -count
	})
	if err != nil {
		t.Fatal(err)
	}
	err = mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).
		Complete(mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			select {
			case reconciled <- req:
			case <-ctx.Done():
			}
			return reconcile.Result{}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// create creates a ConfigMap in the namespace default, with a text.
func create(t *testing.T, cp *mctest.ControlPlane, text string) {
	t.Helper()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "test-"},
		Data:       map[string]string{"text": text},
	}
	if err := cp.Client().Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
}

// waitFor waits until something in the namespace default of a member was reconciled.
func waitFor(t *testing.T, reconciled <-chan mcreconcile.Request, name mcreconcile.ClusterName) {
	t.Helper()
	giveUp := time.After(time.Minute)
	for {
		select {
		case req := <-reconciled:
			if req.ClusterName == name && req.Namespace == "default" {
				return
			}
		case <-giveUp:
			t.Fatalf("nothing of %s was reconciled", name)
		}
	}
}
