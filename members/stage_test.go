package members_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
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
	"github.com/fleet-runtime/fleet-runtime/members"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// stage is a local cluster with the kind Member, and members.
type stage struct {
	*mctest.Fleet
	t      *testing.T
	ns     string // of the Members
	client client.Client
}

func newStage(t *testing.T, clusters int) *stage {
	t.Helper()
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	f := pool.Start(t, mctest.Options{Clusters: clusters, CRDPaths: []string{"v1alpha1/crd.yaml"}, Scheme: known})
	return &stage{f, t, f.Local.CreateNamespace(t), f.Local.Client()}
}

// eventually waits until what holds. The time is there to end a test that fails.
func (s *stage) eventually(what string, holds func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 90*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			list := s.list()
			if len(list) > 10 {
				list = list[:10]
			}
			for i := range list {
				s.t.Logf("%s: %+v %+v", list[i].Name, list[i].Spec, list[i].Status)
			}
			s.t.Fatalf("still not so: %s", what)
		}
	}
}

// get returns the Member of a cluster, nil if there is none.
func (s *stage) get(cluster string) *v1alpha1.Member { return s.object(v1alpha1.ObjectName(cluster)) }

func (s *stage) object(name string) *v1alpha1.Member {
	s.t.Helper()
	m := &v1alpha1.Member{}
	err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, m)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

func (s *stage) list() []v1alpha1.Member {
	s.t.Helper()
	list := &v1alpha1.MemberList{}
	if err := s.client.List(s.t.Context(), list, client.InNamespace(s.ns)); err != nil {
		s.t.Fatal(err)
	}
	return list.Items
}

// becomes waits until the Member of a cluster is as a condition says, and returns it.
func (s *stage) becomes(cluster, what string, holds func(*v1alpha1.Member) bool) *v1alpha1.Member {
	s.t.Helper()
	var m *v1alpha1.Member
	s.eventually("the Member of "+cluster+" "+what, func() bool {
		m = s.get(cluster)
		return m != nil && holds(m)
	})
	return m
}

func (s *stage) is(cluster string, state fleet.State) *v1alpha1.Member {
	s.t.Helper()
	return s.becomes(cluster, "is "+string(state), func(m *v1alpha1.Member) bool { return m.Status.State == string(state) })
}

// say changes the spec of a Member.
func (s *stage) say(cluster string, change func(*v1alpha1.Spec)) {
	s.t.Helper()
	m := s.get(cluster)
	patch := client.MergeFrom(m.DeepCopy())
	change(&m.Spec)
	if err := s.client.Patch(s.t.Context(), m, patch); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) create(object, cluster string, change ...func(*v1alpha1.Spec)) {
	s.t.Helper()
	m := &v1alpha1.Member{Spec: v1alpha1.Spec{ClusterName: cluster}}
	m.Namespace, m.Name = s.ns, object
	for _, change := range change {
		change(&m.Spec)
	}
	if err := s.client.Create(s.t.Context(), m); err != nil {
		s.t.Fatal(err)
	}
}

func paused(s *v1alpha1.Spec)  { s.Paused, s.Reason = true, "maintenance" }
func drained(s *v1alpha1.Spec) { s.Drained, s.Reason = true, "moving" }
func leaving(s *v1alpha1.Spec) { s.Leave, s.Reason = true, "given up" }
func free(s *v1alpha1.Spec)    { s.Paused, s.Drained, s.Leave, s.Reason = false, false, false, "" }

// manager is one replica, which reconciles ConfigMaps.
type manager struct {
	mcmanager.Manager
	fleettest.Provider

	stage  *stage
	writes atomic.Int64 // requests that change Members
	end    func()

	mu   sync.Mutex                   // guards what follows
	seen map[mcreconcile.Request]bool // whether its member was about to leave, the last time
}

// Reconcile implements mcreconcile.Reconciler.
func (m *manager) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[req] = mcreconcile.Leaving(ctx)
	return reconcile.Result{}, nil
}

// total returns how many objects of a namespace were reconciled.
func (m *manager) total(cluster fleet.ClusterName, namespace string) (objects int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for req := range m.seen {
		if req.ClusterName == cluster && req.Namespace == namespace {
			objects++
		}
	}
	return objects
}

// tookBack reports whether an object was reconciled last because its member leaves.
func (m *manager) tookBack(cluster fleet.ClusterName, namespace, name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[mcreconcile.Request{ClusterName: cluster, Request: reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}}]
}

// counting counts requests that change Members.
type counting struct {
	http.RoundTripper

	writes *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet && strings.Contains(req.URL.Path, "/members") {
		c.writes.Add(1)
	}
	return c.RoundTripper.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport.
func (c counting) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }

// newManager makes a manager that is not started.
func (s *stage) newManager(cfg *rest.Config, opts ...mcmanager.FleetOption) *manager {
	s.t.Helper()
	m := &manager{stage: s, seen: map[mcreconcile.Request]bool{}, end: func() {}}
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return counting{rt, &m.writes} })
	mgr, err := mcmanager.New(cfg, &m.Provider, mcmanager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
	}, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	m.Manager = mgr
	if err := members.Setup(mgr, members.Options{Namespace: s.ns, ForgetAfter: 3 * time.Second}); err != nil {
		s.t.Fatal(err)
	}
	if err := mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).
		WithOptions(mcbuilder.Options{SkipNameValidation: new(true)}).Complete(m); err != nil {
		s.t.Fatal(err)
	}
	return m
}

func (m *manager) start() {
	m.stage.t.Helper()
	ctx, cancel := context.WithCancel(m.stage.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	m.end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			m.stage.t.Errorf("the manager: %v", err)
		}
	})
	m.stage.t.Cleanup(m.end)
}

func (m *manager) set(described ...fleet.Member) {
	m.stage.t.Helper()
	for _, d := range described {
		if err := m.Set(d); err != nil {
			m.stage.t.Fatal(err)
		}
	}
}

func (s *stage) configMap(cp *mctest.ControlPlane, namespace, name string) {
	s.t.Helper()
	cm := &corev1.ConfigMap{}
	cm.Namespace, cm.Name = namespace, name
	if err := cp.Client().Create(s.t.Context(), cm); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) becomesPaused(cluster string) {
	s.t.Helper()
	s.becomes(cluster, "is paused", func(m *v1alpha1.Member) bool { return m.Status.Paused })
}

// hasLease reports whether the writer of the Members has its Lease.
func (s *stage) hasLease() bool {
	s.t.Helper()
	return s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: "fleet-members"}, &coordinationv1.Lease{}) == nil
}
