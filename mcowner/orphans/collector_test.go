package orphans_test

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

var pool mctest.Pool

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(pool.Run(m))
}

// orphan creates a ConfigMap whose owner in the local cluster is not there.
func orphan(t *testing.T, cp *mctest.ControlPlane, name string) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	gone := mcowner.Reference{Fleet: "test", APIVersion: "v1", Kind: "ConfigMap", Namespace: metav1.NamespaceDefault, Name: "gone", UID: "1"}
	if err := mcowner.SetControllerReference(gone, cm, mcowner.ByName(fleet.ClusterName(cp.Name))); err != nil {
		t.Fatal(err)
	}
	if err := cp.Client().Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	return cm
}

func isGone(t *testing.T, cp *mctest.ControlPlane, cm *corev1.ConfigMap) bool {
	t.Helper()
	err := cp.Client().Get(t.Context(), client.ObjectKeyFromObject(cm), &corev1.ConfigMap{})
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return apierrors.IsNotFound(err)
}

// TestNothingIsRemovedInAMemberThatIsPaused, as no reconcile begins there. It is once the pause is over.
func TestNothingIsRemovedInAMemberThatIsPaused(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 2})
	paused, other := f.Members[0], f.Members[1]
	members := &fleettest.Provider{}
	for _, cp := range f.Members {
		if err := members.Set(fleet.Member{Name: fleet.ClusterName(cp.Name), Config: cp.Config(), Revision: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	mgr, err := mcmanager.New(f.Local.Config(), members, mcmanager.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	var resumed atomic.Bool
	mgr.GetFleet().HoldBy(func(name fleet.ClusterName) fleet.Hold {
		return fleet.Hold{Paused: name == fleet.ClusterName(paused.Name) && !resumed.Load()}
	})
	configMaps := []client.Object{&corev1.ConfigMap{}}
	err = mgr.Add(&orphans.Collector{
		Manager: mgr, Fleet: "test", Owners: configMaps, Kinds: configMaps, Sweep: orphans.Sweep{Interval: 20 * time.Millisecond, QPS: 1000},
	})
	if err != nil {
		t.Fatal(err)
	}
	stays := orphan(t, paused, "stays")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	stage.Eventually(t, "the member that is paused is Ready", func() bool {
		status, _ := mgr.GetFleet().Status(fleet.ClusterName(paused.Name))
		return status.State == fleet.Ready && status.Paused
	})
	for _, name := range []string{"a", "b", "c"} { // in as many sweeps
		goes := orphan(t, other, name)
		stage.Eventually(t, name+" is removed", func() bool { return isGone(t, other, goes) })
	}
	if isGone(t, paused, stays) {
		t.Fatal("a dependent was removed from a member that is paused")
	}
	resumed.Store(true)
	mgr.GetFleet().HoldChanged(fleet.ClusterName(paused.Name))
	stage.Eventually(t, "the orphan is removed after the pause", func() bool { return isGone(t, paused, stays) })
}

// TestACollectorThatCouldCollectNothingDoesNotStart: nobody would notice that it does nothing.
func TestACollectorThatCouldCollectNothingDoesNotStart(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{})
	mgr, err := mcmanager.New(f.Local.Config(), nil, mcmanager.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for want, change := range map[string]func(*orphans.Collector){
		"":       func(*orphans.Collector) {},
		"Fleet":  func(c *orphans.Collector) { c.Fleet = "" },
		"Owners": func(c *orphans.Collector) { c.Owners = nil },
		"Kinds":  func(c *orphans.Collector) { c.Kinds = nil },
		`"old"`:  func(c *orphans.Collector) { c.Decommissioned = []mcowner.ClusterID{{Name: "old"}} },
	} {
		configMaps := []client.Object{&corev1.ConfigMap{}}
		c := &orphans.Collector{Name: "validated", Manager: mgr, Fleet: "test", Owners: configMaps, Kinds: configMaps}
		change(c)
		if err := c.Start(ended); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got %v", want, err)
		}
	}
}
