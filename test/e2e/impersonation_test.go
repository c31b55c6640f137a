package e2e

import (
	"context"
	"encoding/pem"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// TestParentsAndChildren (AS-4): parents are ConfigMaps of p1 and p2 with labels that say in which cluster and namespace
// each is to have a child. Children are written in the name of a user for each origin. The program is a process of its
// own, so that it can be killed.
func TestParentsAndChildren(t *testing.T) {
	t.Parallel()
	w := newNursery(t)
	stray := w.stray(t)
	p := w.run()

	t.Run("children are written with the rights of their origin", func(t *testing.T) {
		w.create(t, "p1", parent("may", "c1", "n1"))
		w.has(t, "p1", "may", "c1", "n1")
		w.create(t, "p1", parent("may-not", "c1", "n2"))
		w.told(t, "p1", "may-not", dependents.EventForbidden, "from-p1")
		if children := w.children(t, "c1", "n2"); len(children) > 0 {
			t.Errorf("there are children where they are forbidden: %v", children)
		}
		if diff := cmp.Diff(map[string][]string{"c1/n1/" + childName("p1", "may"): {"from-p1"}}, w.audit.users()); diff != "" {
			t.Errorf("who has written what (-want, +got):\n%s", diff)
		}
	})
	t.Run("two hundred parents while the program is killed twice", func(t *testing.T) {
		before := w.count(t)
		created := w.createParents(200)
		for _, some := range []int{40, 120} {
			eventually(t, fmt.Sprintf("there are %d children", some), func() bool { return w.count(t)-before >= some })
			p.Kill()
			p = w.run()
		}
		if err := created(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "there are 200 children", func() bool { return w.count(t)-before >= 200 })
		want := map[string][]string{"c1/n1/" + childName("p1", "may"): {"from-p1"}}
		for i := range 200 {
			origin, target := placement(i)
			name := childName(origin, parentName(i))
			w.has(t, origin, parentName(i), target, "n1")
			want[target+"/n1/"+name] = []string{"from-" + origin}
		}
		if n := w.count(t) - before; n != 200 {
			t.Errorf("there are %d children, want 200", n)
		}
		if diff := cmp.Diff(want, w.audit.users()); diff != "" {
			t.Errorf("who has written what (-want, +got):\n%s", diff)
		}
	})
	t.Run("a parent goes without its finalizer", func(t *testing.T) {
		origin, target := placement(0)
		p.Freeze() // it would bring the finalizer back
		w.strip(t, origin, parentName(0), target)
		p.Thaw()
		stage.Within(t, time.Minute, "its child is gone", func() bool { return w.child(t, target, "n1", childName(origin, parentName(0))) == nil })
	})
	t.Run("a parent goes without its finalizer, and nobody sees it", func(t *testing.T) {
		origin, target := placement(1)
		if err := w.clients["p1"].Delete(t.Context(), w.secrets[origin]); err != nil {
			t.Fatal(err)
		}
		p.Writes("Disengaged", "cluster="+origin)
		w.strip(t, origin, parentName(1), target)
		w.join(t, origin)
		stage.Within(t, time.Minute, "its child is swept", func() bool { return w.child(t, target, "n1", childName(origin, parentName(1))) == nil })
	})
	t.Run("a child of an unknown cluster is left alone", func(t *testing.T) {
		p.Writes("Left a dependent alone", stray.Name, "p9") // by a sweep
		now := w.child(t, "c1", "n1", stray.Name)
		if now == nil || now.ResourceVersion != stray.ResourceVersion {
			t.Errorf("it is %v now", now)
		}
	})
}

// runChildren is the program of a test.
func runChildren() {
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})))
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), kubeconfig.Provider{Namespace: "fleet"}, mcmanager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err == nil {
		err = addChildren(mgr)
	}
	if err == nil {
		err = mgr.Start(ctrl.SetupSignalHandler())
	}
	if err != nil {
		ctrl.Log.Error(err, "The program ends")
		os.Exit(1)
	}
}

func addChildren(mgr mcmanager.Manager) error {
	in := func(role string) mcowner.Clusters {
		return mcowner.Clusters{Members: labels.SelectorFromSet(labels.Set{"role": role})}
	}
	r := &dependents.Reconciler[*corev1.ConfigMap]{
		Fleet: "as4", Name: "children",
		OwnersIn: in("parents"), DependentsIn: in("children"),
		Kinds: []client.Object{&corev1.ConfigMap{}},
		User:  func(owner mcreconcile.Request) string { return "from-" + string(owner.ClusterName) },
		Targets: func(_ context.Context, parent *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
			if target := parent.Labels["child-cluster"]; target != "" {
				return []mcreconcile.ClusterName{mcreconcile.ClusterName(target)}, nil
			}
			return nil, nil
		},
		Desired: func(ctx context.Context, parent *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
			origin, _ := mcreconcile.ClusterNameFrom(ctx)
			return []client.Object{&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: parent.Labels["child-namespace"], Name: childName(string(origin), parent.Name)},
			}}, nil
		},
	}
	return r.SetupWithManager(mgr)
}

func childName(origin, parent string) string { return mcowner.UniqueName(63, origin, parent) }

func parentName(i int) string { return fmt.Sprintf("parent-%d", i) }

// placement says in which cluster the i-th parent is, and in which its child.
func placement(i int) (origin, target string) {
	return fmt.Sprintf("p%d", 1+i%2), fmt.Sprintf("c%d", 1+i/2%2)
}

func parent(name, cluster, namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, Labels: map[string]string{"child-cluster": cluster, "child-namespace": namespace},
	}}
}

// nursery is two clusters with parents and two with children. The program runs in the first with parents.
type nursery struct {
	t          *testing.T
	hub        *mctest.ControlPlane     // the program's own cluster, which is p1
	clients    map[string]client.Client // the administrator's, by cluster
	kubeconfig string                   // the program's own
	members    map[string][]byte        // their kubeconfigs, of clusters with parents
	secrets    map[string]*corev1.Secret
	audit      *audit
}

func newNursery(t *testing.T) *nursery {
	t.Helper()
	f := pool.Start(t, mctest.Options{Clusters: 3})
	planes := map[string]*mctest.ControlPlane{"p1": f.Local, "p2": f.Members[0], "c1": f.Members[1], "c2": f.Members[2]}
	w := &nursery{
		t: t, hub: f.Local, clients: map[string]client.Client{},
		members: map[string][]byte{}, secrets: map[string]*corev1.Secret{},
		audit: &audit{writes: map[string]map[string]bool{}},
	}
	for name, cp := range planes {
		w.clients[name] = cp.Client()
	}
	w.create(t, "p1", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}) // of the Secrets
	for _, name := range []string{"p1", "p2"} {
		w.members[name] = kubeconfigOf(t, keeper(t, planes[name]))
		w.join(t, name)
	}
	for _, name := range []string{"c1", "c2"} {
		w.prepare(t, name, planes[name])
		stage.Join(t, f.Local, name, kubeconfigOf(t, reader(t, planes[name])), map[string]string{"role": "children"})
	}
	w.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(w.kubeconfig, kubeconfigOf(t, f.Local.AddUser(t, "program", rule("", "secrets", "list", "watch"))), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// join brings in a cluster with parents.
func (w *nursery) join(t *testing.T, name string) {
	t.Helper()
	w.secrets[name] = stage.Join(t, w.hub, name, w.members[name], map[string]string{"role": "parents"})
}

// strip takes the finalizer from a parent, and deletes it by force.
func (w *nursery) strip(t *testing.T, origin, name, target string) {
	t.Helper()
	stripped := parent(name, target, "n1")
	if err := w.clients[origin].Patch(t.Context(), stripped, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	if err := w.clients[origin].Delete(t.Context(), stripped, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
}

// keeper is what the program is in a cluster with parents.
func keeper(t *testing.T, cp *mctest.ControlPlane) *rest.Config {
	t.Helper()
	return cp.AddUser(t, "keeper",
		rule("", "configmaps", "get", "list", "watch", "patch"), rule(eventsv1.GroupName, "events", "create", "patch"), toTellWhichItIs())
}

// toTellWhichItIs is the right without which a cluster is not worked on.
func toTellWhichItIs() rbacv1.PolicyRule {
	identity := rule("", "namespaces", "get")
	identity.ResourceNames = []string{metav1.NamespaceSystem}
	return identity
}

// reader is what the program is in a cluster with children: it writes nothing in its own name.
func reader(t *testing.T, cp *mctest.ControlPlane) *rest.Config {
	t.Helper()
	impersonate := rule("", "users", "impersonate")
	impersonate.ResourceNames = []string{"from-p1", "from-p2"}
	return cp.AddUser(t, "reader", rule("", "configmaps", "get", "list", "watch"), impersonate, toTellWhichItIs())
}

// prepare makes a cluster one with children: users from-p1 and from-p2 may write them in the namespace n1.
func (w *nursery) prepare(t *testing.T, cluster string, cp *mctest.ControlPlane) {
	t.Helper()
	for _, namespace := range []string{"n1", "n2"} {
		w.create(t, cluster, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	w.audit.watch(t, cluster, cp)
	meta := metav1.ObjectMeta{Namespace: "n1", Name: "children"}
	w.create(t, cluster, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule("", "configmaps", "create", "patch", "delete")}})
	w.create(t, cluster, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "from-p1"},
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "from-p2"},
		},
	})
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

func kubeconfigOf(t *testing.T, config *rest.Config) []byte {
	t.Helper()
	content, err := mctest.Kubeconfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func (w *nursery) run() *stage.Program { return stage.Start(w.t, "--kubeconfig", w.kubeconfig) }

func (w *nursery) create(t *testing.T, cluster string, obj client.Object) {
	t.Helper()
	if err := w.clients[cluster].Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

// createParents creates this many parents side by side, and returns what waits for that.
func (w *nursery) createParents(n int) (wait func() error) {
	var group errgroup.Group
	group.SetLimit(16)
	started := make(chan struct{})
	go func() {
		defer close(started)
		for i := range n {
			group.Go(func() error {
				origin, target := placement(i)
				return w.clients[origin].Create(w.t.Context(), parent(parentName(i), target, "n1"))
			})
		}
	}()
	return func() error {
		<-started
		return group.Wait()
	}
}

// stray returns a child of a parent in a cluster that is no member.
func (w *nursery) stray(t *testing.T) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n1", Name: "stray"}}
	ref := mcowner.Reference{
		Fleet: "as4", Manager: "children", Cluster: "p9", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "gone", UID: "1",
	}
	if err := mcowner.SetControllerReference(ref, cm, mcowner.ByName("c1")); err != nil {
		t.Fatal(err)
	}
	w.create(t, "c1", cm)
	w.audit.forget() // who has created it
	return cm
}

// child returns a ConfigMap, nil if there is none.
func (w *nursery) child(t *testing.T, cluster, namespace, name string) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{}
	err := w.clients[cluster].Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, cm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

// has waits until a parent has its child.
func (w *nursery) has(t *testing.T, origin, parent, target, namespace string) {
	t.Helper()
	stage.Soon(t, fmt.Sprintf("%s of %s has a child in %s", parent, origin, target), func() bool {
		return w.child(t, target, namespace, childName(origin, parent)) != nil
	})
}

// children returns the names of all children in a namespace.
func (w *nursery) children(t *testing.T, cluster, namespace string) (names []string) {
	t.Helper()
	list := &corev1.ConfigMapList{}
	if err := w.clients[cluster].List(t.Context(), list, client.InNamespace(namespace), client.MatchingLabels{mcowner.FleetLabel: "as4"}); err != nil {
		t.Fatal(err)
	}
	for _, cm := range list.Items {
		names = append(names, cm.Name)
	}
	return names
}

func (w *nursery) count(t *testing.T) int {
	t.Helper()
	return len(w.children(t, "c1", metav1.NamespaceAll)) + len(w.children(t, "c2", metav1.NamespaceAll))
}

// told waits for a Warning event on a parent.
func (w *nursery) told(t *testing.T, cluster, parent, reason, text string) {
	t.Helper()
	stage.Soon(t, fmt.Sprintf("an event %s about %s on %s", reason, text, parent), func() bool {
		list := &eventsv1.EventList{}
		if err := w.clients[cluster].List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Type == corev1.EventTypeWarning && e.Regarding.Name == parent && e.Reason == reason && strings.Contains(e.Note, text)
		})
	})
}

// audit is who has written ConfigMaps in the namespace n1 of clusters, as their API servers say.
type audit struct {
	mu     sync.Mutex // guards writes
	writes map[string]map[string]bool
}

// watch has a cluster ask before each write, and returns once it does.
func (a *audit) watch(t *testing.T, name string, cp *mctest.ControlPlane) {
	t.Helper()
	hook := &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, req admission.Request) admission.Response {
		a.note(name+"/"+req.Namespace+"/"+req.Name, req.UserInfo.Username)
		return admission.Allowed("")
	})}
	server := httptest.NewTLSServer(hook)
	t.Cleanup(server.Close)
	sideEffects, url := admissionregistrationv1.SideEffectClassNoneOnDryRun, server.URL
	err := cp.Client().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "audit"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "audit.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      &url,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "n1"}},
			SideEffects:             &sideEffects,
			AdmissionReviewVersions: []string{"v1"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, name+" asks before writes", func() bool {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n1", Name: "probe"}}
		if err := cp.Client().Create(t.Context(), probe, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		return len(a.users()) > 0
	})
	a.forget()
}

func (a *audit) note(object, user string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writes[object] == nil {
		a.writes[object] = map[string]bool{}
	}
	a.writes[object][user] = true
}

// users returns who has written each object, as CLUSTER/NAMESPACE/NAME.
func (a *audit) users() map[string][]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	users := map[string][]string{}
	for object, writers := range a.writes {
		users[object] = slices.Sorted(maps.Keys(writers))
	}
	return users
}

func (a *audit) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.writes)
}
