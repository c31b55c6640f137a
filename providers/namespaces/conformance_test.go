package namespaces_test

import (
	"context"
	"maps"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/namespaces"
	"github.com/fleet-runtime/fleet-runtime/providers/providertest"
)

func TestConformance(t *testing.T) {
	providertest.Run(t, providertest.Harness{
		NoConfig: "namespaces are parts of a cluster that is known",
		New: func(t *testing.T) providertest.Source {
			t.Helper()
			cp := pool.Start(t, mctest.Options{}).Local
			var line providertest.Line
			local, err := cluster.New(line.Through(cp.Config()), func(o *cluster.Options) { o.Logger = logr.Discard() })
			if err != nil {
				t.Fatal(err)
			}
			startLocal(t, local)
			return providertest.Source{
				Provider: func() fleet.Provider { return namespaces.Provider{Selector: selected} },
				Local:    local,
				Set:      func(t *testing.T, d providertest.Description) { t.Helper(); describe(t, cp, d, "") },
				Touch:    func(t *testing.T, d providertest.Description) { t.Helper(); describe(t, cp, d, "touched") },
				Remove: func(t *testing.T, name string) {
					t.Helper()
					if err := cp.Client().Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
						t.Fatal(err)
					}
					finalize(t, cp, name)
				},
				Interrupt: func(*testing.T) (noticed <-chan struct{}, restore func()) { return line.Cut() },
			}
		},
	})
}

// describe makes a namespace of a description.
func describe(t *testing.T, cp *mctest.ControlPlane, d providertest.Description, note string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.Name}}
	_, err := controllerutil.CreateOrUpdate(t.Context(), cp.Client(), ns, func() error {
		ns.Labels = map[string]string{label: "true"}
		maps.Copy(ns.Labels, d.Labels)
		ns.Annotations = map[string]string{"test.fleet-runtime.dev/note": note}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// startLocal starts a local cluster, which ends with the test.
func startLocal(t *testing.T, local cluster.Cluster) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- local.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
