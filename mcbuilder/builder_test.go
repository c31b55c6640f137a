package mcbuilder_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }

// members reports the control planes of a fleet as members, each with its name as label "name".
func members(f *mctest.Fleet) fleet.Provider {
	return fleet.NewProvider("test", func(ctx context.Context, _ cluster.Cluster, to fleet.Members) error {
		for _, cp := range f.Members {
			m := fleet.Member{Name: fleet.ClusterName(cp.Name), Config: cp.Config(), Labels: map[string]string{"name": cp.Name}}
			if err := to.Set(m); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return nil
	})
}

func newManager(t *testing.T, f *mctest.Fleet, provider fleet.Provider, log logr.Logger) mcmanager.Manager {
	t.Helper()
	mgr, err := mcmanager.New(f.Local.Config(), provider, mcmanager.Options{
		Logger: log, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)}, // names are of the process, and so of all runs of go test -count
	})
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}

// start runs the manager until the test ends.
func start(tb testing.TB, mgr manager.Runnable) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // t.Context ends before clean-up, which waits for the end
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("the manager ended with an error: %v", err)
		}
	})
}

func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	patience := time.NewTimer(time.Minute)
	defer patience.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-patience.C:
			tb.Fatalf("still not so: %s", what)
		}
	}
}

// seen collects the requests for objects of one namespace, as "cluster/name".
type seen struct {
	namespace string
	mu        sync.Mutex
	requests  map[string]bool
}

func (s *seen) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	if name, ok := mcreconcile.ClusterNameFrom(ctx); !ok || name != req.ClusterName {
		return reconcile.Result{}, fmt.Errorf("the context carries cluster %q, the request %q", name, req.ClusterName)
	}
	s.add(req)
	return reconcile.Result{}, nil
}

func (s *seen) add(req mcreconcile.Request) {
	if req.Namespace != s.namespace {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == nil {
		s.requests = map[string]bool{}
	}
	s.requests[string(req.ClusterName)+"/"+req.Name] = true
}

func (s *seen) become(t *testing.T, want ...string) {
	t.Helper()
	wanted := map[string]bool{}
	for _, w := range want {
		wanted[w] = true
	}
	var diff string
	eventually(t, "the expected requests, and no others, were seen", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		diff = cmp.Diff(wanted, s.requests)
		if len(s.requests) > len(wanted) {
			t.Fatalf("requests that nobody asked for (-want, +got):\n%s", diff)
		}
		return diff == ""
	})
}

// everywhere creates the namespace and a ConfigMap in the local cluster and each member.
func everywhere(t *testing.T, f *mctest.Fleet, name string) (namespace string) {
	t.Helper()
	namespace = f.Local.CreateNamespace(t)
	for _, cp := range f.Members {
		create(t, cp, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	for _, cp := range append([]*mctest.ControlPlane{f.Local}, f.Members...) {
		create(t, cp, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	return namespace
}

func create(t *testing.T, cp *mctest.ControlPlane, obj client.Object) {
	t.Helper()
	if err := cp.Client().Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

func TestAWatchAppliesWhereItsOptionsSay(t *testing.T) {
	one := labels.SelectorFromSet(labels.Set{"name": "member-1"})
	cases := map[string]struct {
		opts     []mcbuilder.WatchOption
		provider bool
		want     []string
	}{
		"Default":            {provider: true, want: []string{"member-1/a", "member-2/a"}},
		"SelectedMembers":    {provider: true, opts: []mcbuilder.WatchOption{mcbuilder.InMembers(one)}, want: []string{"member-1/a"}},
		"LocalCluster":       {provider: true, opts: []mcbuilder.WatchOption{mcbuilder.InLocalCluster}, want: []string{"/a"}},
		"Both":               {provider: true, opts: []mcbuilder.WatchOption{mcbuilder.InLocalCluster, mcbuilder.InMembers(nil)}, want: []string{"/a", "member-1/a", "member-2/a"}},
		"ForEachMember":      {provider: true, opts: []mcbuilder.WatchOption{mcbuilder.ForEachMember(nil)}, want: []string{"member-1/a", "member-2/a"}},
		"ForSelectedMembers": {provider: true, opts: []mcbuilder.WatchOption{mcbuilder.ForEachMember(one)}, want: []string{"member-1/a"}},
		"OnlyMetadata":       {provider: true, opts: []mcbuilder.WatchOption{mcbuilder.OnlyMetadata}, want: []string{"member-1/a", "member-2/a"}},
		"NoProvider":         {want: []string{"/a"}},
	}
	f := pool.Start(t, mctest.Options{Clusters: 2})
	ns := everywhere(t, f, "a")
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var provider fleet.Provider
			if tc.provider {
				provider = members(f)
			}
			mgr := newManager(t, f, provider, logr.Discard())
			s := &seen{namespace: ns}
			if err := mcbuilder.ControllerManagedBy(mgr).Named("where-"+strings.ToLower(name)).
				For(&corev1.ConfigMap{}, tc.opts...).Complete(s); err != nil {
				t.Fatal(err)
			}
			start(t, mgr)
			s.become(t, tc.want...)
		})
	}
}

func TestOwnsEnqueuesTheControllerInTheSameCluster(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 2})
	ns := everywhere(t, f, "owner")
	mgr := newManager(t, f, members(f), logr.Discard())
	s := &seen{namespace: ns}
	noOwners := predicate.NewPredicateFuncs(func(client.Object) bool { return false })
	if err := mcbuilder.ControllerManagedBy(mgr).Named("owns").
		For(&corev1.ConfigMap{}, mcbuilder.WithPredicates(noOwners)).
		Owns(&corev1.Secret{}).Complete(s); err != nil {
		t.Fatal(err)
	}
	start(t, mgr)

	member := f.Members[1]
	owner := &corev1.ConfigMap{}
	if err := member.Client().Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "owner"}, owner); err != nil {
		t.Fatal(err)
	}
	owned := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "owned"}}
	if err := controllerutil.SetControllerReference(owner, owned, scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	create(t, member, owned)
	s.become(t, "member-2/owner")
}

func TestMappedRequestsGoToTheSameClusterOrToAnyOther(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 2})
	ns := everywhere(t, f, "a")
	mgr := newManager(t, f, members(f), logr.Discard())
	s := &seen{namespace: ns}
	same := handler.MapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		if _, ok := mcreconcile.ClusterNameFrom(ctx); !ok {
			t.Error("the map function's context carries no cluster")
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: obj.GetNamespace(), Name: "same"}}}
	})
	toLocal := mchandler.MapFunc(func(_ context.Context, name mcreconcile.ClusterName, obj client.Object) []mcreconcile.Request {
		req := mcreconcile.Request{}
		req.Namespace, req.Name = obj.GetNamespace(), "from-"+string(name)
		return []mcreconcile.Request{req}
	})
	if err := mcbuilder.ControllerManagedBy(mgr).Named("mapped").
		Watches(&corev1.ConfigMap{}, mchandler.EnqueueRequestsFromMapFunc(same)).
		Watches(&corev1.ConfigMap{}, mchandler.EnqueueRequestsAcrossClusters(toLocal)).Complete(s); err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	s.become(t, "member-1/same", "member-2/same", "/from-member-1", "/from-member-2")
}

// TestAnUnchangedReconcilerRunsOncePerCluster: what kubebuilder scaffolds runs against every member as it is.
func TestAnUnchangedReconcilerRunsOncePerCluster(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 2})
	ns := everywhere(t, f, "a")
	mgr := newManager(t, f, members(f), logr.Discard())
	perCluster := mcreconcile.PerCluster(func(cl cluster.Cluster) reconcile.Reconciler { return &annotator{cl.GetClient()} })
	if err := mcbuilder.ControllerManagedBy(mgr).Named("unchanged").For(&corev1.ConfigMap{}).Complete(perCluster); err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	for _, cp := range f.Members {
		eventually(t, "the object of "+cp.Name+" is annotated", func() bool {
			cm := &corev1.ConfigMap{}
			err := cp.Client().Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "a"}, cm)
			return err == nil && cm.Annotations["seen"] == "yes"
		})
	}
}

// annotator is a reconciler that knows nothing of fleets.
type annotator struct{ client.Client }

func (a *annotator) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	cm := &corev1.ConfigMap{}
	if err := a.Get(ctx, req.NamespacedName, cm); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if cm.Annotations["seen"] == "yes" {
		return reconcile.Result{}, nil
	}
	patch := client.MergeFrom(cm.DeepCopy())
	metav1.SetMetaDataAnnotation(&cm.ObjectMeta, "seen", "yes")
	return reconcile.Result{}, a.Patch(ctx, cm, patch)
}

// tenantRequest is a request type of a user's own.
type tenantRequest struct {
	Tenant string
	In     mcreconcile.ClusterName
}

func (r tenantRequest) Cluster() mcreconcile.ClusterName { return r.In }

func (r tenantRequest) WithCluster(name mcreconcile.ClusterName) tenantRequest {
	r.In = name
	return r
}

func TestRequestsCanBeOfAnotherType(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := everywhere(t, f, "a")
	mgr := newManager(t, f, members(f), logr.Discard())
	got := make(chan tenantRequest, 100)
	toTenant := func(_ context.Context, name mcreconcile.ClusterName, obj client.Object) []tenantRequest {
		if obj.GetNamespace() != ns {
			return nil
		}
		return []tenantRequest{{Tenant: obj.GetName(), In: name}}
	}
	if err := mcbuilder.TypedControllerManagedBy[tenantRequest](mgr).Named("tenants").
		Watches(&corev1.ConfigMap{}, mchandler.TypedEnqueueRequestsAcrossClusters(toTenant)).
		Complete(reconcile.TypedFunc[tenantRequest](func(_ context.Context, req tenantRequest) (reconcile.Result, error) {
			got <- req
			return reconcile.Result{}, nil
		})); err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	if diff := cmp.Diff(tenantRequest{Tenant: "a", In: "member-1"}, <-got); diff != "" {
		t.Errorf("request (-want, +got):\n%s", diff)
	}
}

func TestEveryLogLineOfAReconcileNamesTheCluster(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := everywhere(t, f, "a")
	for name, given := range map[string]bool{"default": false, "given": true} {
		t.Run(name, func(t *testing.T) {
			lines := make(chan string, 1000)
			log := funcr.New(func(_, args string) { lines <- args }, funcr.Options{})
			mgr := newManager(t, f, members(f), log)
			b := mcbuilder.ControllerManagedBy(mgr).Named("log-" + name).For(&corev1.ConfigMap{})
			if given {
				b.WithLogConstructor(func(*mcreconcile.Request) logr.Logger { return log })
			}
			err := b.Complete(mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
				if req.Namespace == ns {
					// As reconcilers of multicluster-runtime do it.
					log := logr.FromContextOrDiscard(ctx).WithValues("cluster", req.ClusterName)
					log.Info("a line of the reconciler", "cluster", string(req.ClusterName))
				}
				return reconcile.Result{}, nil
			}))
			if err != nil {
				t.Fatal(err)
			}
			start(t, mgr)
			for line := range lines {
				if !strings.Contains(line, "a line of the reconciler") {
					continue
				}
				if strings.Count(line, `"cluster"="member-1"`) != 1 {
					t.Errorf("the line does not name the cluster once: %s", line)
				}
				return
			}
		})
	}
}

// TestTheLogSaysHowManyWorkersWereSet, beside controller-runtime's line that counts spare ones too.
func TestTheLogSaysHowManyWorkersWereSet(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{})
	for workers, want := range map[int]string{2: `"workers"=2 "spare"=64`, 1: ""} {
		lines := make(chan string, 1000)
		mgr := newManager(t, f, members(f), funcr.New(func(_, args string) { lines <- args }, funcr.Options{}))
		err := mcbuilder.ControllerManagedBy(mgr).Named(fmt.Sprintf("workers-%d", workers)).For(&corev1.ConfigMap{}).
			WithOptions(mcbuilder.Options{MaxConcurrentReconciles: workers}).
			Complete(mcreconcile.Func(func(context.Context, mcreconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }))
		if err != nil {
			t.Fatal(err)
		}
		start(t, mgr)
		told := ""
		for line := range lines {
			if strings.Contains(line, "the spare ones") {
				told = line
			}
			if strings.Contains(line, "Starting workers") {
				break
			}
		}
		if (told == "") != (want == "") || !strings.Contains(told, want) {
			t.Errorf("with %d workers the log says %q, want %q", workers, told, want)
		}
	}
}

func TestBuildSaysWhatIsMissing(t *testing.T) {
	f := pool.Start(t, mctest.Options{})
	mgr := newManager(t, f, nil, logr.Discard())
	nothing := mcreconcile.Func(func(context.Context, mcreconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, nil
	})
	cases := map[string]struct {
		builder    *mcbuilder.Builder
		reconciler mcreconcile.Reconciler
		want       string
	}{
		"NoManager":      {mcbuilder.ControllerManagedBy(nil).For(&corev1.Pod{}), nothing, "the manager is nil"},
		"NoReconciler":   {mcbuilder.ControllerManagedBy(mgr).For(&corev1.Pod{}), nil, "the reconciler is nil"},
		"NothingWatched": {mcbuilder.ControllerManagedBy(mgr).Named("x"), nothing, "nothing is watched"},
		"NoName":         {mcbuilder.ControllerManagedBy(mgr).Watches(&corev1.Pod{}, mchandler.EnqueueRequestForObject), nothing, "has no name"},
		"OwnsBeforeFor":  {mcbuilder.ControllerManagedBy(mgr).Owns(&corev1.Pod{}), nothing, "Owns comes after For"},
		"ForTwice":       {mcbuilder.ControllerManagedBy(mgr).For(&corev1.Pod{}).For(&corev1.Pod{}), nothing, "For may be called once"},
		"UnknownKind":    {mcbuilder.ControllerManagedBy(mgr).For(&metav1.PartialObjectMetadata{}), nothing, "Object 'Kind' is missing"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := tc.builder.Complete(tc.reconciler)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Complete() = %v, want an error with %q", err, tc.want)
			}
		})
	}
}

// TestErrorsAboutOtherClustersAreNotTheReconcilers: a request that needs a cluster which is not there is neither an
// error nor retried in a loop.
func TestErrorsAboutOtherClustersAreNotTheReconcilers(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	mgr := newManager(t, f, members(f), logr.Discard())
	_, err := mgr.GetCluster(t.Context(), "nobody")
	if !errors.Is(err, fleet.ErrUnknown) {
		t.Fatalf("GetCluster(nobody) = %v, want ErrUnknown", err)
	}
	c, err := mcbuilder.ControllerManagedBy(mgr).Named("errors").For(&corev1.ConfigMap{}).
		Build(mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			_, err := mgr.GetCluster(ctx, mcreconcile.ClusterName(req.Name))
			return reconcile.Result{}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	req := mcreconcile.Request{}
	req.Name = "nobody"
	result, err := c.Reconcile(t.Context(), req)
	if err != nil || result.RequeueAfter == 0 {
		t.Errorf("a request that needs an unknown cluster: %v, %v, want it to be tried again", result, err)
	}
	req.ClusterName = "member-1"
	result, err = c.Reconcile(t.Context(), req)
	if err != nil || !result.IsZero() {
		t.Errorf("a request of a cluster that is unknown before the start: %v, %v, want it dropped", result, err)
	}
}

func TestARequestThatNeedsAnotherClusterWaitsUntilThatIsReady(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	join := make(chan struct{})
	mgr := newManager(t, f, fleet.NewProvider("test", func(ctx context.Context, _ cluster.Cluster, to fleet.Members) error {
		select {
		case <-join:
		case <-ctx.Done():
			return nil
		}
		cp := f.Members[0]
		if err := to.Set(fleet.Member{Name: "west", Config: cp.Config()}); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}), logr.Discard())
	namespace := f.Local.CreateNamespace(t)
	answers := make(chan error, 100)
	inNamespace := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetNamespace() == namespace })
	err := mcbuilder.ControllerManagedBy(mgr).Named("waits").
		For(&corev1.ConfigMap{}, mcbuilder.InLocalCluster, mcbuilder.WithPredicates(inNamespace)).
		Complete(mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			if req.Name != "needs-west" {
				return reconcile.Result{}, nil
			}
			_, err := mgr.GetCluster(ctx, "west")
			answers <- err
			return reconcile.Result{}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "needs-west"}}
	if err := mgr.GetClient().Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if err := <-answers; !errors.Is(err, fleet.ErrUnknown) {
		t.Fatalf("before the cluster is a member: %v, want ErrUnknown", err)
	}
	close(join)
	if err := <-answers; err != nil {
		t.Errorf("the request was tried again before the cluster was ready: %v", err)
	}
}
