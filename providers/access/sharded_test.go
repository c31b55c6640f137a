package access_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tokens "github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/access"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

// asked is what the replicas have asked for so far, which they share.
type asked struct {
	mu      sync.Mutex                 // guards what follows
	reads   map[string]int             // of Secrets, by replica and name: with that of a minter, a token is made
	writes  map[string]int             // writes of statuses and Secrets that were answered with success, by path
	by      map[string]map[string]bool // the replicas that wrote, by path
	watches map[string]int             // of ConfigMaps, by member, those that were begun
}

func newAsked() *asked {
	return &asked{reads: map[string]int{}, writes: map[string]int{}, by: map[string]map[string]bool{}, watches: map[string]int{}}
}

type transport func(req *http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) { return t(req) }

// ofHub notes what a replica asks the hub for.
func (a *asked) ofHub(replica string) func(rt http.RoundTripper) http.RoundTripper {
	return func(rt http.RoundTripper) http.RoundTripper {
		return transport(func(req *http.Request) (*http.Response, error) {
			resp, err := rt.RoundTrip(req)
			a.mu.Lock()
			defer a.mu.Unlock()
			path := req.URL.Path
			name := path[strings.LastIndex(path, "/")+1:]
			isSecret, isStatus := strings.Contains(path, "/secrets"), strings.HasPrefix(path, "/apis/access.") && name == "status"
			switch {
			case isSecret && req.Method == http.MethodGet:
				a.reads[replica+" "+name]++
			case err == nil && resp.StatusCode < http.StatusMultipleChoices && req.Method != http.MethodGet && (isSecret || isStatus):
				a.writes[path]++
				if a.by[path] == nil {
					a.by[path] = map[string]bool{}
				}
				a.by[path][replica] = true
			}
			return resp, err
		})
	}
}

// ofMember notes what is asked of a member.
func (a *asked) ofMember(m fleet.Member, cfg *rest.Config) error {
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return transport(func(req *http.Request) (*http.Response, error) {
			if strings.HasSuffix(req.URL.Path, "/configmaps") && req.URL.Query().Has("watch") {
				a.mu.Lock()
				a.watches[string(m.Name)]++
				a.mu.Unlock()
			}
			return rt.RoundTrip(req)
		})
	})
	return nil
}

// snapshot returns copies of what was asked for.
func (a *asked) snapshot() (reads, writes, watches map[string]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.reads), maps.Clone(a.writes), maps.Clone(a.watches)
}

// replica is one of several programs.
type replica struct {
	mcmanager.Manager

	end func()
}

// startReplica starts a program with the provider, the controllers of this module, and one of ConfigMaps.
func (h hub) startReplica(t *testing.T, name string, a *asked, reconciled func(req mcreconcile.Request)) *replica {
	t.Helper()
	cfg := h.Config()
	cfg.Wrap(a.ofHub(name))
	mgr, err := mcmanager.New(cfg, &access.Provider{Namespace: h.namespace}, mcmanager.Options{
		Scheme: h.Client().Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
		Cache:          cache.Options{DefaultNamespaces: map[string]cache.Config{h.namespace: {}}},
		Controller:     config.Controller{SkipNameValidation: new(true)},
		LeaderElection: true, LeaderElectionID: "shared", LeaderElectionNamespace: h.namespace, LeaderElectionReleaseOnCancel: true,
	}, mcmanager.Sharded(sharding.Options{
		ID: "shared", Namespace: h.namespace, Name: name, LeaseDuration: 30 * time.Second, Settle: 10 * time.Second,
	}), func(o *fleet.Options) { o.RESTConfig = a.ofMember })
	hubtest.Must(t, err)
	hubtest.Must(t, tokens.Controller{}.SetupWithManager(mgr))
	hubtest.Must(t, tokens.Imports{Namespace: h.namespace}.SetupWithManager(mgr))
	hubtest.Must(t, mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).
		WithOptions(mcbuilder.Options{SkipNameValidation: new(true)}).
		Complete(mcreconcile.Func(func(_ context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			reconciled(req)
			return reconcile.Result{}, nil
		})))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	r := &replica{mgr, sync.OnceFunc(func() { cancel(); hubtest.Must(t, <-ended) })}
	t.Cleanup(r.end)
	return r
}

// owners returns who owns each of the members that are connected, by the word of the replicas.
func owners(replicas map[string]*replica) map[string]string {
	all := map[string]string{}
	for name, r := range replicas {
		for _, s := range r.GetFleet().List(nil) {
			if s.State == fleet.Ready && s.Owner == name {
				all[string(s.Name)] = name
			}
		}
	}
	return all
}

// leader returns the replica whose controllers work, and waits until there is one.
func leader(t *testing.T, replicas map[string]*replica) (name string) {
	t.Helper()
	eventually(t, "a replica is elected", func() bool {
		for n, r := range replicas {
			select {
			case <-r.Elected():
				name = n
			default:
			}
		}
		return name != ""
	})
	return name
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		t.Fatalf("it did not become so that %s", what)
	}
}

// done is what was reconciled.
type done struct{ seen sync.Map }

func (d *done) note(req mcreconcile.Request) {
	d.seen.Store(string(req.ClusterName)+" "+req.Name, true)
}

// all waits until a ConfigMap was reconciled in all members, which are one cluster.
func (d *done) all(t *testing.T, cp *mctest.ControlPlane, namespace, name string, members []string) {
	t.Helper()
	accesstest.Create(t, cp, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	eventually(t, name+" is reconciled in all members", func() bool {
		return !slices.ContainsFunc(members, func(m string) bool { _, ok := d.seen.Load(m + " " + name); return !ok })
	})
}

// sharded is a hub with accesses that lead to one cluster, and an import of each.
func (h hub) sharded(t *testing.T, cp *mctest.ControlPlane, count int) (members []string) {
	t.Helper()
	first := accesstest.Mint(t, h.ControlPlane, cp, h.namespace, "m-0")
	account := metav1.ObjectMeta{Namespace: "default", Name: "exported"}
	accesstest.Create(t, cp, &corev1.ServiceAccount{ObjectMeta: account})
	accesstest.Create(t, cp, &rbacv1.Role{ObjectMeta: account, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{account.Name}, Verbs: []string{"create"}},
	}})
	accesstest.Create(t, cp, &rbacv1.RoleBinding{
		ObjectMeta: account, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: accesstest.Namespace, Name: accesstest.Minter}},
	})
	secret := &corev1.Secret{}
	hubtest.Must(t, h.Client().Get(t.Context(), client.ObjectKey{Namespace: h.namespace, Name: first.Spec.Minter.SecretName}, secret))
	h.remove(t, first.Name)
	for i := range count {
		name := fmt.Sprintf("m-%d", i)
		members = append(members, name)
		accesstest.Create(t, h.ControlPlane, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name + "-minter"}, Data: secret.Data})
		a := &v1alpha1.ClusterAccess{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}, Spec: first.DeepCopy().Spec}
		a.Spec.Minter.SecretName = name + "-minter"
		a.Spec.AllowedImports = []v1alpha1.AllowedImports{{Namespaces: []string{h.namespace}, ServiceAccounts: []string{"default/exported"}}}
		accesstest.Create(t, h.ControlPlane, a)
		accesstest.Create(t, h.ControlPlane, &v1alpha1.ServiceAccountImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "import-of-" + name},
			Spec:       v1alpha1.ServiceAccountImportSpec{ClusterName: name, Namespace: "default", Name: "exported"},
		})
	}
	return members
}

// ready reports whether the controllers have said of all accesses and imports that they work.
func (h hub) ready(t *testing.T, members []string) bool {
	t.Helper()
	for _, name := range members {
		i := &v1alpha1.ServiceAccountImport{}
		hubtest.Must(t, h.Client().Get(t.Context(), client.ObjectKey{Namespace: h.namespace, Name: "import-of-" + name}, i))
		if !meta.IsStatusConditionTrue(i.Status.Conditions, v1alpha1.ConditionReady) ||
			!meta.IsStatusConditionTrue(h.get(t, name).Status.Conditions, v1alpha1.ConditionReady) {
			return false
		}
	}
	return true
}

// TestReplicasShareTheMembersOfAccesses: the owner of a member makes its tokens, and the leader writes what is written, once.
func TestReplicasShareTheMembersOfAccesses(t *testing.T) {
	t.Parallel()
	h, clusters := startHub(t, 1)
	accesstest.Create(t, clusters[0], &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.namespace}}) // to which caches are restricted
	members := h.sharded(t, clusters[0], 6)
	asked, reconciled := newAsked(), &done{}
	replicas := map[string]*replica{}
	for _, name := range []string{"a", "b", "c"} {
		replicas[name] = h.startReplica(t, name, asked, reconciled.note)
	}
	shared := func() bool {
		owned := owners(replicas)
		return len(owned) == len(members) && len(slices.Compact(slices.Sorted(maps.Values(owned)))) == len(replicas)
	}
	eventually(t, "each replica has members, and all are connected", shared)
	eventually(t, "all accesses and imports work", func() bool { return h.ready(t, members) })
	reconciled.all(t, clusters[0], h.namespace, "before", members)
	first, owned := leader(t, replicas), owners(replicas)
	reads, writes, watches := asked.snapshot()
	for member, owner := range owned {
		for name := range replicas {
			if name != owner && name != first && reads[name+" "+member+"-minter"] > 0 {
				t.Errorf("%s has made tokens for %s, which %s owns, and is not the leader", name, member, owner)
			}
		}
	}

	replicas[first].end()
	delete(replicas, first)
	next := leader(t, replicas)
	reconciled.all(t, clusters[0], h.namespace, "during", members)
	eventually(t, "the members are shared again", shared)
	eventually(t, "the next leader has looked at all accesses and imports", func() bool {
		reads, _, _ := asked.snapshot()
		return !slices.ContainsFunc(members, func(m string) bool {
			return reads[next+" "+m+"-minter"] == 0 || reads[next+" import-of-"+m] == 0
		})
	})
	accesstest.Create(t, h.ControlPlane, &v1alpha1.ServiceAccountImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "import-of-m-0-again"},
		Spec:       v1alpha1.ServiceAccountImportSpec{ClusterName: "m-0", Namespace: "default", Name: "exported"},
	})
	eventually(t, "an import that came since works", func() bool {
		i := &v1alpha1.ServiceAccountImport{}
		hubtest.Must(t, h.Client().Get(t.Context(), client.ObjectKey{Namespace: h.namespace, Name: "import-of-m-0-again"}, i))
		return meta.IsStatusConditionTrue(i.Status.Conditions, v1alpha1.ConditionReady)
	})
	reconciled.all(t, clusters[0], h.namespace, "after", members)
	wantOneWrite(t, asked, writes)
	_, _, then := asked.snapshot()
	for member, owner := range owners(replicas) {
		switch began := then[member] - watches[member]; {
		case owner == owned[member] && began != 0:
			t.Errorf("%s stays with %s, and was listed anew %d times", member, owner, began)
		case began > 1:
			t.Errorf("%s was listed %d times in one hand-over", member, began)
		}
	}
}

// wantOneWrite fails the test unless each Secret and each status was written once, before, and by one replica. That of an import
// was written before its Secret too, since it says which one there will be. One Secret came since, which the next leader has created.
func wantOneWrite(t *testing.T, a *asked, before map[string]int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	secrets := 0
	for path, n := range before {
		writers, since, want := 1, 0, 1
		switch {
		case strings.HasSuffix(path, "/secrets"):
			secrets += n
			writers, since, want = 2, 1, n
		case strings.Contains(path, "/serviceaccountimports/"):
			want = 2
		}
		if n != want {
			t.Errorf("%s was written %d times, want %d", path, n, want)
		}
		if len(a.by[path]) != writers || a.writes[path] != n+since {
			t.Errorf("%s was written %d times, and then %d times, by %v", path, n, a.writes[path]-n, a.by[path])
		}
	}
	if secrets != 6 {
		t.Errorf("%d Secrets were written for 6 imports", secrets)
	}
}
