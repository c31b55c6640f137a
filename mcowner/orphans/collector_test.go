package orphans_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
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
	return orphanIn(t, cp, metav1.NamespaceDefault, name)
}

func metadataOf(kind string) *metav1.PartialObjectMetadata {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return obj
}

func orphanIn(t *testing.T, cp *mctest.ControlPlane, namespace, name string) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
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

// collect runs a manager with a collector of ConfigMaps until the test ends, whose own cluster is local. Members are held as hold says.
func collect(t *testing.T, local *rest.Config, members []*mctest.ControlPlane, hold func(fleet.ClusterName) fleet.Hold) mcmanager.Manager {
	t.Helper()
	configs := map[fleet.ClusterName]*rest.Config{}
	for _, cp := range members {
		configs[fleet.ClusterName(cp.Name)] = cp.Config()
	}
	configMaps := []client.Object{&corev1.ConfigMap{}}
	return runs(t, local, configs, mcmanager.Options{}, hold, &orphans.Collector{
		Name: t.Name(), Fleet: "test", Owners: configMaps, Kinds: configMaps, Sweep: orphans.Sweep{Interval: 20 * time.Millisecond, QPS: 1000},
	})
}

// runs starts a manager with a collector, which ends with the test.
func runs(
	t *testing.T, local *rest.Config, members map[fleet.ClusterName]*rest.Config, options mcmanager.Options,
	hold func(fleet.ClusterName) fleet.Hold, c *orphans.Collector,
) mcmanager.Manager {
	t.Helper()
	provider := &fleettest.Provider{}
	for name, config := range members {
		if err := provider.Set(fleet.Member{Name: name, Config: config, Revision: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	options.Metrics = metricsserver.Options{BindAddress: "0"}
	mgr, err := mcmanager.New(local, provider, options)
	if err != nil {
		t.Fatal(err)
	}
	mgr.GetFleet().HoldBy(hold)
	c.Manager = mgr
	if err := mgr.Add(c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return mgr
}

// isSwept waits for some more sweeps of a member.
func isSwept(t *testing.T, cp *mctest.ControlPlane) {
	t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		goes := orphan(t, cp, name)
		stage.Eventually(t, name+" is removed", func() bool { return isGone(t, cp, goes) })
	}
}

// TestNothingIsRemovedInAMemberThatIsPaused, as no reconcile begins there. It is once the pause is over.
func TestNothingIsRemovedInAMemberThatIsPaused(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 2})
	paused, other := f.Members[0], f.Members[1]
	stays := orphan(t, paused, "stays")
	var resumed atomic.Bool
	mgr := collect(t, f.Local.Config(), f.Members, func(name fleet.ClusterName) fleet.Hold {
		return fleet.Hold{Paused: name == fleet.ClusterName(paused.Name) && !resumed.Load()}
	})
	stage.Eventually(t, "the member that is paused is Ready", func() bool {
		status, _ := mgr.GetFleet().Status(fleet.ClusterName(paused.Name))
		return status.State == fleet.Ready && status.Paused
	})
	isSwept(t, other)
	if isGone(t, paused, stays) {
		t.Fatal("a dependent was removed from a member that is paused")
	}
	resumed.Store(true)
	mgr.GetFleet().HoldChanged(fleet.ClusterName(paused.Name))
	stage.Eventually(t, "the orphan is removed after the pause", func() bool { return isGone(t, paused, stays) })
}

// beforeAnswers is a transport that calls before when a request for an object is made.
type beforeAnswers struct {
	http.RoundTripper

	object string
	before func()
}

// RoundTrip implements http.RoundTripper.
func (b beforeAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, b.object) {
		b.before()
	}
	return b.RoundTripper.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport.
func (b beforeAnswers) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }

// TestAPauseThatBeginsWhileAMemberIsSweptKeepsItsOrphans: of one it is being asked whether its owner is gone.
func TestAPauseThatBeginsWhileAMemberIsSweptKeepsItsOrphans(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 2})
	swept, other := f.Members[0], f.Members[1]
	var pausing atomic.Bool
	asked, paused := make(chan struct{}), make(chan struct{})
	local := f.Local.Config()
	local.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return beforeAnswers{rt, "/configmaps/gone", sync.OnceFunc(func() {
			close(asked)
			<-paused
		})}
	})
	stays := orphan(t, swept, "stays")
	mgr := collect(t, local, f.Members, func(name fleet.ClusterName) fleet.Hold {
		return fleet.Hold{Paused: name == fleet.ClusterName(swept.Name) && pausing.Load()}
	})
	<-asked
	pausing.Store(true)
	mgr.GetFleet().HoldChanged(fleet.ClusterName(swept.Name))
	stage.Eventually(t, "the member is paused", func() bool {
		status, _ := mgr.GetFleet().Status(fleet.ClusterName(swept.Name))
		return status.Paused
	})
	close(paused)
	isSwept(t, other)
	if isGone(t, swept, stays) {
		t.Error("a dependent was removed from a member that is paused")
	}
}

// lists is a transport that counts lists of what carries the label of an installation.
type lists struct {
	http.RoundTripper

	count *atomic.Int32
}

// RoundTrip implements http.RoundTripper.
func (l lists) RoundTrip(req *http.Request) (*http.Response, error) {
	if q := req.URL.Query(); q.Get("watch") == "" && strings.Contains(q.Get("labelSelector"), mcowner.FleetLabel) {
		l.count.Add(1)
	}
	return l.RoundTripper.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport.
func (l lists) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

// TestACachedCollectorListsOnce although it sweeps all the time: the cache tells of what comes later. Of a kind that the member does not
// serve, and of other namespaces, it says nothing.
func TestACachedCollectorListsOnce(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	cp, config := f.Members[0], f.Members[0].Config()
	var count atomic.Int32
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return lists{rt, &count} })
	var failed atomic.Int32
	logger := funcr.New(func(_, args string) {
		if strings.Contains(args, "Unserved") && strings.Contains(args, "swe") { // the fleet tells of it by itself
			failed.Add(1)
		}
	}, funcr.Options{Verbosity: 1})
	unserved := metadataOf("Unserved")
	elsewhere := orphanIn(t, cp, metav1.NamespaceSystem, "elsewhere")
	runs(t, f.Local.Config(), map[fleet.ClusterName]*rest.Config{fleet.ClusterName(cp.Name): config}, mcmanager.Options{Logger: logger},
		func(fleet.ClusterName) fleet.Hold { return fleet.Hold{} },
		&orphans.Collector{
			Name: t.Name(), Fleet: "test", Owners: []client.Object{&corev1.ConfigMap{}}, Kinds: []client.Object{unserved, metadataOf("ConfigMap")},
			DependentsIn: mcowner.Clusters{Members: labels.Everything()}, Namespaces: []string{metav1.NamespaceDefault},
			Cached: true, Sweep: orphans.Sweep{Interval: 20 * time.Millisecond, QPS: 1000},
		})
	isSwept(t, cp)
	if n := count.Load(); n > 1 {
		t.Errorf("the member was asked for %d lists, want one", n)
	}
	if isGone(t, cp, elsewhere) {
		t.Error("a dependent in another namespace was removed")
	}
	if n := failed.Load(); n > 0 {
		t.Errorf("%d sweeps failed for a kind that is not served", n)
	}
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
