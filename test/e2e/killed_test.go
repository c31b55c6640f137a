package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// runProgram is what the test binary does where it is started as a program.
func runProgram() {
	if os.Args[1] != "guards" {
		runChildren()
		return
	}
	if err := runGuards(os.Args[2], os.Args[3], os.Args[4] == "stuck"); err != nil {
		ctrl.Log.Error(err, "The program ends")
		os.Exit(1)
	}
}

// runGuards is the program: a guard of the ConfigMaps that are called as their members are.
func runGuards(kubeconfigFile, namespace string, stuck bool) error {
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfigFile)
	if err != nil {
		return err
	}
	mgr, err := mcmanager.New(cfg, kubeconfig.Provider{Namespace: "fleet"}, mcmanager.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	g := &guard{ns: namespace}
	g.stuck.Store(stuck)
	err = mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(mcreconcile.Func(
		func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			if req.Name != string(req.ClusterName) {
				return reconcile.Result{}, nil
			}
			return g.Reconcile(ctx, req)
		}))
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

// TestMembersLeaveWellAlthoughTheProgramIsKilled in the middle, once before any of them could leave and once when some have. What
// comes after that goes on: neither a Secret is kept, nor a finalizer of an object.
func TestMembersLeaveWellAlthoughTheProgramIsKilled(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	create(t, f.Local, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, kubeconfigOf(t, f.Local.Config()), 0o600); err != nil {
		t.Fatal(err)
	}
	names := make([]string, 20)
	for i := range names {
		names[i] = fmt.Sprintf("m%d", i)
		configMap(t, f.Members[0], ns, names[i])
		create(t, f.Local, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "fleet", Name: names[i], Labels: map[string]string{kubeconfigLabel: "true"}, Finalizers: []string{objects.LeaveFinalizer},
			},
			Data: map[string][]byte{"kubeconfig": kubeconfigOf(t, f.Members[0].Config())},
		})
	}
	run := func(how string) *stage.Program { return stage.Start(t, "guards", file, ns, how) }
	g := &guard{ns: ns}

	p := run("stuck")
	g.are(t, f.Members[0], true, names...)
	if err := f.Local.Client().DeleteAllOf(t.Context(), &corev1.Secret{}, client.InNamespace("fleet")); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		p.Writes(errStuck.Error(), "cluster="+name+" ")
	}
	p.Kill()
	if n := secretsOfFleet(t, f); n != len(names) {
		t.Errorf("%d Secrets are left of %d whose members could not leave", n, len(names))
	}
	p = run("works")
	eventually(t, "some members have left", func() bool { return secretsOfFleet(t, f) < len(names) })
	p.Kill()
	t.Logf("killed for the second time with %d Secrets left", secretsOfFleet(t, f))
	run("works")
	eventually(t, "all members have left", func() bool { return secretsOfFleet(t, f) == 0 })
	g.are(t, f.Members[0], false, names...)
}

func create(t *testing.T, cp *mctest.ControlPlane, obj client.Object) {
	t.Helper()
	if err := cp.Client().Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

// secretsOfFleet counts the Secrets that describe members.
func secretsOfFleet(t *testing.T, f *mctest.Fleet) int {
	t.Helper()
	list := &corev1.SecretList{}
	if err := f.Local.Client().List(t.Context(), list, client.InNamespace("fleet")); err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}
