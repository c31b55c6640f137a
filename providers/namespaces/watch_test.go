package namespaces_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/namespaces"
)

// watch adds a controller of a kind, whose requests come out of the channel.
func watch(t *testing.T, m *manager, kind client.Object) <-chan mcreconcile.Request {
	t.Helper()
	requests := make(chan mcreconcile.Request, 10_000)
	err := mcbuilder.ControllerManagedBy(m).For(kind).
		Complete(mcreconcile.Func(func(_ context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			requests <- req
			return reconcile.Result{}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	return requests
}

func TestAMemberIsToldOfItsOwnNamespaceObjectAlone(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	m := newManager(t, cp, namespaces.Provider{})
	requests := watch(t, m, &corev1.Namespace{})
	m.start()
	want := map[string]bool{}
	for range 3 {
		want[namespace(t, cp)] = true
	}
	for got := map[string]bool{}; !cmp.Equal(want, got); {
		select {
		case req := <-requests:
			if req.Name != string(req.ClusterName) {
				t.Fatalf("member %s was told of namespace %s", req.ClusterName, req.Name)
			}
			got[req.Name] = true
		case <-time.After(patience):
			t.Fatalf("reconciled were %v, want %v", got, want)
		}
	}
}

func TestAnObjectWithoutNamespaceIsToldToEveryMember(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	first := namespace(t, cp)
	m := newManager(t, cp, namespaces.Provider{})
	requests := watch(t, m, &rbacv1.ClusterRole{})
	m.start()
	m.member(fleet.ClusterName(first))
	create(t, cp, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "everybodys"}})
	if req := request(t, requests, "everybodys"); string(req.ClusterName) != first {
		t.Errorf("got %v, want the member %s", req, first)
	}
	late := namespace(t, cp)
	if req := request(t, requests, "everybodys"); string(req.ClusterName) != late {
		t.Errorf("got %v, want the member %s that came later", req, late)
	}
}

func TestAnIndexOfTheFleetServesEveryMember(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	m := newManager(t, cp, namespaces.Provider{})
	byColor := func(obj client.Object) []string { return []string{obj.(*corev1.ConfigMap).Data["color"]} }
	for _, indexer := range []client.FieldIndexer{m.GetFleetFieldIndexer(), m.GetFieldIndexer()} {
		if err := indexer.IndexField(t.Context(), &corev1.ConfigMap{}, "color", byColor); err != nil {
			t.Fatal(err)
		}
	}
	m.start()
	for range 3 {
		ns := namespace(t, cp)
		for name, color := range map[string]string{"leaf": "green", "rose": "red"} {
			cm := configMap(ns, name)
			cm.Data = map[string]string{"color": color}
			create(t, cp, cm)
		}
		member := m.member(fleet.ClusterName(ns))
		eventually(t, "the index finds the object of "+ns, func(ctx context.Context) bool {
			list := &corev1.ConfigMapList{}
			err := member.GetClient().List(ctx, list, client.MatchingFields{"color": "green"})
			return err == nil && cmp.Equal(names(t, list), []string{ns + "/leaf"})
		})
		if status, _ := m.GetFleet().Status(fleet.ClusterName(ns)); status.NotSynced != nil {
			t.Errorf("%s says %v", ns, status.NotSynced)
		}
	}
}

func TestAnIndexOfAnotherFunctionIsRefused(t *testing.T) {
	teams := twoTeams(t)
	index := func(extract client.IndexerFunc) error {
		return teams.member.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "color", extract)
	}
	first := func(client.Object) []string { return []string{"first"} }
	if err := index(first); err != nil {
		t.Fatal(err)
	}
	if err := index(first); err != nil {
		t.Errorf("the same again, as every member asks for it: %v", err)
	}
	if err := index(func(client.Object) []string { return nil }); err == nil {
		t.Errorf("another function was taken for the same index, in %s", teams.ours)
	}
}

func TestEventsStayInTheNamespace(t *testing.T) {
	teams := twoTeams(t)
	record := teams.member.GetEventRecorder("test")
	old := teams.member.GetEventRecorderFor("test") //nolint:staticcheck // cluster.Cluster has it still
	for _, ns := range []string{teams.theirs, teams.ours} {
		about := configMap(ns, "x")
		create(t, teams.ControlPlane, about)
		record.Eventf(about, nil, corev1.EventTypeNormal, "New", "Testing", "of %s", ns)
		record.AnnotatedEventf(about, nil, map[string]string{"a": "b"}, corev1.EventTypeNormal, "Annotated", "Testing", "of %s", ns)
		old.Event(about, corev1.EventTypeNormal, "Old", "of "+ns)
		old.Eventf(about, corev1.EventTypeNormal, "OldFormatted", "of %s", ns)
		old.AnnotatedEventf(about, map[string]string{"a": "b"}, corev1.EventTypeNormal, "OldAnnotated", "of %s", ns)
	}
	reasons := func(ns string) map[string]bool {
		t.Helper()
		list := &eventsv1.EventList{}
		if err := teams.ControlPlane.Client().List(t.Context(), list, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, event := range list.Items {
			found[event.Reason] = true
		}
		return found
	}
	all := map[string]bool{"New": true, "Annotated": true, "Old": true, "OldFormatted": true, "OldAnnotated": true}
	eventually(t, "the events are in the member's namespace", func(context.Context) bool { return cmp.Equal(all, reasons(teams.ours)) })
	if got := reasons(teams.theirs); len(got) > 0 {
		t.Errorf("the other namespace has the events %v", got)
	}
}

// gadgets is a kind that the cluster does not serve at first.
var gadgets = schema.GroupVersionKind{Group: "test.fleet-runtime.dev", Version: "v1", Kind: "Gadget"}

func gadget() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gadgets)
	return u
}

func TestAKindThatIsMissingIsLookedForOnceForAllMembers(t *testing.T) {
	const members = 100
	cp := pool.Start(t, mctest.Options{}).Local
	names := map[string]bool{}
	for range members {
		names[namespace(t, cp)] = true
	}
	config := cp.Config()
	var lookups atomic.Int32
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if strings.HasPrefix(req.URL.Path, "/apis/"+gadgets.Group) && !strings.Contains(req.URL.Path, "gadgets") {
				lookups.Add(1)
			}
			return rt.RoundTrip(req)
		})
	})
	m := newManagerOf(t, config, namespaces.Provider{})
	requests := watch(t, m, gadget())
	m.start()
	for name := range names {
		m.member(fleet.ClusterName(name))
	}
	eventually(t, "the kind is looked for", func(context.Context) bool { return lookups.Load() > 0 })

	_, err := envtest.InstallCRDs(cp.Config(), envtest.CRDInstallOptions{MaxTime: 2 * time.Minute, CRDs: []*apiextensionsv1.CustomResourceDefinition{{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets." + gadgets.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gadgets.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Gadget", Plural: "gadgets", ListKind: "GadgetList", Singular: "gadget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for name := range names {
		g := gadget()
		g.SetNamespace(name)
		g.SetName("x")
		create(t, cp, g)
	}
	for len(names) > 0 {
		delete(names, string(request(t, requests, "x").ClusterName))
	}
	if n := lookups.Load(); n >= members {
		t.Errorf("the kind was looked for %d times, by %d members", n, members)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestAnInformerIsThatOfTheNamespace(t *testing.T) {
	teams := twoTeams(t)
	create(t, teams.ControlPlane, configMap(teams.ours, "x"))
	create(t, teams.ControlPlane, configMap(teams.theirs, "y"))
	byObject, err := teams.member.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	byKind, err := teams.member.GetCache().GetInformerForKind(t.Context(), corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	if err != nil {
		t.Fatal(err)
	}
	for how, informer := range map[string]cache.Informer{"by object": byObject, "by kind": byKind} {
		if !informer.HasSynced() || informer.IsStopped() {
			t.Errorf("%s: synced %t, stopped %t", how, informer.HasSynced(), informer.IsStopped())
		}
		var keys []string
		handler := toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			keys = append(keys, client.ObjectKeyFromObject(obj.(client.Object)).String())
		}}
		registration, err := informer.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		<-registration.HasSyncedChecker().Done()
		if diff := cmp.Diff([]string{teams.ours + "/x"}, keys); diff != "" {
			t.Errorf("%s: the handler was told of (-want, +got):\n%s", how, diff)
		}
		if err := informer.RemoveEventHandler(registration); err != nil {
			t.Error(err)
		}
		if err := informer.AddIndexers(toolscache.Indexers{}); err == nil {
			t.Error("a member could add indexers to the informer of all")
		}
	}
	if err := teams.member.GetCache().RemoveInformer(t.Context(), &corev1.ConfigMap{}); err == nil {
		t.Error("a member could remove the informer of all")
	}
}

func TestTheProviderLeavesNothingBehind(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := namespace(t, cp)
	ctx := t.Context()
	local, err := cluster.New(cp.Config(), func(o *cluster.Options) { o.Logger = logr.Discard() })
	if err != nil {
		t.Fatal(err)
	}
	startLocal(t, local)
	if err := local.GetAPIReader().Get(ctx, client.ObjectKey{Name: ns}, &corev1.Namespace{}); err != nil {
		t.Fatal(err) // the connection belongs to the cluster
	}
	for what, p := range map[string]namespaces.Provider{"a cache of its own": {}, "the cache of a cluster": {Cluster: local}} {
		p.Selector = selected
		t.Run(what, func(t *testing.T) {
			if p.Cluster != nil { // the informer belongs to the cluster
				if _, err := local.GetCache().GetInformer(ctx, &corev1.ConfigMap{}); err != nil {
					t.Fatal(err)
				}
			}
			ignored := goleak.IgnoreCurrent()
			f := fleet.New(fleet.Options{Logger: logr.Discard()})
			running, end := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- f.Run(running, local, p) }()
			useMember(t, f, fleet.ClusterName(ns))
			end()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			waitForGoroutines(t, ignored)
		})
	}
}

// waitForGoroutines waits until there are no goroutines but those that are ignored. Those of connections and watches end
// some time after their users.
func waitForGoroutines(t *testing.T, ignored goleak.Option) {
	t.Helper()
	deadline := time.Now().Add(patience)
	err := goleak.Find(ignored)
	for err != nil && time.Now().Before(deadline) {
		err = goleak.Find(ignored) // waits a moment if there are any
	}
	if err != nil {
		t.Error(err)
	}
}

// useMember adds a handler to a member, and writes to it.
func useMember(t *testing.T, f *fleet.Fleet, name fleet.ClusterName) {
	t.Helper()
	var member cluster.Cluster
	eventually(t, "the member is ready", func(context.Context) bool {
		engagement, err := f.Engagement(name)
		if err == nil {
			member = engagement.Cluster()
		}
		return err == nil
	})
	informer, err := member.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{})
	if err != nil {
		t.Fatal(err)
	}
	<-registration.HasSyncedChecker().Done()
	cm := configMap(string(name), fmt.Sprintf("made-at-%d", time.Now().UnixNano()))
	if err := member.GetClient().Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, is func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		return is(ctx), nil
	})
	if err != nil {
		t.Fatalf("waited in vain: %s", what)
	}
}
