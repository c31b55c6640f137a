package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// identityOf reads which cluster a control plane is.
func identityOf(t *testing.T, cp *mctest.ControlPlane) string {
	t.Helper()
	identity, err := fleet.ReadIdentity(t.Context(), cp.Client())
	if err != nil || identity == "" {
		t.Fatalf("the identity of %s: %q, %v", cp.Name, identity, err)
	}
	return identity
}

// isCluster waits until the member "m" is Ready as the given cluster.
func (m *manager) isCluster(identity string) {
	m.t.Helper()
	eventually(m.t, "the member is Ready as the other cluster", func() bool {
		status := m.status("m")
		return status.State == fleet.Ready && status.Identity == identity
	})
}

// twoClusters returns two control planes with a namespace of the same name, and objects of the same names.
func twoClusters(t *testing.T) (f *mctest.Fleet, ns string, a, b *mctest.ControlPlane) {
	t.Helper()
	f = pool.Start(t, mctest.Options{Clusters: 2})
	ns = inAll(t, f)
	a, b = f.Members[0], f.Members[1]
	for _, cp := range f.Members {
		for i := range 20 {
			configMap(t, cp, ns, fmt.Sprintf("both-%d", i))
		}
		configMap(t, cp, ns, "only-in-"+cp.Name)
	}
	return f, ns, a, b
}

// TestAMemberIsTheClusterThatAnswers: whatever in the way to reach it leads to another cluster, that one is engaged anew,
// and the cache is its own.
func TestAMemberIsTheClusterThatAnswers(t *testing.T) {
	t.Parallel()
	cases := map[string]func(t *testing.T, ca *authority, a, b *mctest.ControlPlane) (from, to *rest.Config){
		"Another proxy, with the same server, CA and credentials": func(t *testing.T, ca *authority, a, b *mctest.ControlPlane) (from, to *rest.Config) {
			t.Helper()
			through := func(cp *mctest.ControlPlane) *rest.Config {
				cfg := newGateway(t, ca, cp).config()
				proxy := newConnectProxy(t, strings.TrimPrefix(cfg.Host, "https://"))
				cfg.Host, cfg.Proxy = "https://gateway.test", http.ProxyURL(proxy)
				return cfg
			}
			return through(a), through(b)
		},
		"Other credentials, with the same server": func(t *testing.T, ca *authority, a, b *mctest.ControlPlane) (from, to *rest.Config) {
			t.Helper()
			g, other := newGateway(t, ca, a), newGateway(t, ca, b)
			from = g.config()
			to = rest.CopyConfig(from)
			to.BearerToken = "another-token"
			g.answer(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") == "Bearer another-token" { // the gateway tells clusters by the token
					r.Header.Del("Authorization")
					other.behind.Load().Load().ServeHTTP(w, r)
					return
				}
				g.serve(w, r)
			})
			return from, to
		},
		"Another address": func(t *testing.T, _ *authority, a, b *mctest.ControlPlane) (from, to *rest.Config) {
			t.Helper()
			return a.Config(), b.Config()
		},
	}
	for name, configs := range cases {
		t.Run(name, func(t *testing.T) {
			f, ns, a, b := twoClusters(t)
			from, to := configs(t, newAuthority(t), a, b)
			m, seen := newWatchedManager(t, f.Local)
			m.set(fleet.Member{Name: "m", Config: from})
			m.start()
			m.isCluster(identityOf(t, a))
			seen.mustAgree(t, "m", a, ns)
			before := m.attached()
			m.set(fleet.Member{Name: "m", Config: to})
			m.isCluster(identityOf(t, b))
			now := m.attached()
			if cause := context.Cause(before.Context()); now == before || !errors.Is(cause, fleet.ErrAnotherCluster) {
				t.Errorf("the engagement of the first cluster ended by %v, want ErrAnotherCluster", cause)
			}
			list := &corev1.ConfigMapList{}
			if err := now.Cluster().GetCache().List(t.Context(), list, client.InNamespace(ns)); err != nil {
				t.Fatal(err)
			}
			for _, cm := range list.Items {
				if cm.Name == "only-in-"+a.Name {
					t.Errorf("the cache has %s, which is in the other cluster", cm.Name)
				}
			}
			seen.mustHave(t, "m", b, ns)
		})
	}
}

// mustHave waits until every object of a cluster was reconciled as it is there.
func (l *ledger) mustHave(t *testing.T, name mcreconcile.ClusterName, cp *mctest.ControlPlane, ns string) {
	t.Helper()
	list := &corev1.ConfigMapList{}
	if err := cp.Client().List(t.Context(), list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "every object was reconciled as it is", func() bool {
		return !slices.ContainsFunc(list.Items, func(cm corev1.ConfigMap) bool { return l.version(name, &cm) != cm.ResourceVersion })
	})
}

// marker writes to each cluster, all the time, which one it believes that to be.
type marker struct {
	namespace string
	fleet     *fleet.Fleet
	marked    atomic.Int64
}

const markPrefix = "mark-"

// Reconcile implements mcreconcile.Reconciler.
func (k *marker) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	if strings.HasPrefix(req.Name, markPrefix) {
		return reconcile.Result{}, nil
	}
	again := reconcile.Result{RequeueAfter: time.Millisecond}
	e, err := k.fleet.Engagement(req.ClusterName)
	if err != nil || e.Cluster() != mcreconcile.ClusterFrom(ctx) {
		return again, nil //nolint:nilerr // there is another engagement by now
	}
	mark := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: markPrefix + e.Identity()}}
	err = e.Cluster().GetClient().Create(ctx, mark)
	if err == nil || apierrors.IsAlreadyExists(err) {
		k.marked.Add(1)
	}
	return again, nil
}

// TestNothingIsSentToAnotherCluster: a gateway fails over to another cluster and back, while reconcilers write. What was
// meant for the one never gets to the other.
func TestNothingIsSentToAnotherCluster(t *testing.T) {
	t.Parallel()
	f, ns, a, b := twoClusters(t)
	g := newGateway(t, newAuthority(t), a)
	m, _ := newWatchedManager(t, f.Local)
	k := &marker{namespace: ns, fleet: m.GetFleet()}
	m.control(k)
	m.set(fleet.Member{Name: "m", Config: g.config()})
	m.start()
	for range 3 {
		for _, cp := range []*mctest.ControlPlane{a, b} {
			g.failOver(t, cp)
			m.isCluster(identityOf(t, cp))
			marked := k.marked.Load()
			eventually(t, "reconcilers write", func() bool { return k.marked.Load() > marked+20 })
		}
	}
	for _, cp := range []*mctest.ControlPlane{a, b} {
		list := &corev1.ConfigMapList{}
		if err := cp.Client().List(t.Context(), list, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		for _, cm := range list.Items {
			if strings.HasPrefix(cm.Name, markPrefix) && cm.Name != markPrefix+identityOf(t, cp) {
				t.Errorf("%s was written to %s", cm.Name, cp.Name)
			}
		}
	}
}

// repeater asks for each request again, in each way that there is.
type repeater struct {
	record
	rounds atomic.Int64
}

// Reconcile implements mcreconcile.Reconciler.
func (r *repeater) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	n := r.rounds.Add(1)
	cm := &corev1.ConfigMap{}
	if err := mcreconcile.ClusterFrom(ctx).GetClient().Get(ctx, req.NamespacedName, cm); err != nil {
		_, _ = r.record.Reconcile(ctx, req) // it has nothing of this name
	}
	switch n % 3 {
	case 0:
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	case 1:
		return reconcile.Result{RequeueAfter: 500 * time.Millisecond}, nil
	default:
		return reconcile.Result{}, errors.New("once more")
	}
}

// TestRequestsForOneClusterAreNotRunOnAnother: neither those that wait, nor those that are to be repeated.
func TestRequestsForOneClusterAreNotRunOnAnother(t *testing.T) {
	t.Parallel()
	f, ns, a, b := twoClusters(t)
	g := newGateway(t, newAuthority(t), a)
	m, _ := newWatchedManager(t, f.Local)
	again := &repeater{record: record{seen: map[mcreconcile.Request]int{}}}
	m.control(again)
	m.set(fleet.Member{Name: "m", Config: g.config()})
	m.start()
	for _, cp := range []*mctest.ControlPlane{a, b, a, b} {
		g.failOver(t, cp)
		m.isCluster(identityOf(t, cp))
		rounds := again.rounds.Load()
		eventually(t, "requests are repeated", func() bool { return again.rounds.Load() > rounds+200 })
	}
	for req, n := range again.of(ns) {
		t.Errorf("%s was asked of a cluster that never had it: %v", req, n)
	}
}

// TestAMemberIsNotReadyAgainAsAnotherCluster: it was away, and what answers at its address afterwards is another cluster.
// When its own is back, so is the member.
func TestAMemberIsNotReadyAgainAsAnotherCluster(t *testing.T) {
	t.Parallel()
	f, ns, a, b := twoClusters(t)
	g := newGateway(t, newAuthority(t), a)
	m, seen := newWatchedManager(t, f.Local)
	m.set(fleet.Member{Name: "m", Config: g.config()})
	m.start()
	m.isCluster(identityOf(t, a))
	seen.mustAgree(t, "m", a, ns)
	if err := a.APIServer.Stop(); err != nil {
		t.Fatal(err)
	}
	m.becomes(fleet.Unreachable)
	first := m.attached()
	g.lead(t, b) // on the connections that there are
	m.isCluster(identityOf(t, b))
	if !errors.Is(context.Cause(first.Context()), fleet.ErrAnotherCluster) {
		t.Errorf("the engagement of the first cluster goes on, or ended by %v", context.Cause(first.Context()))
	}
	seen.mustHave(t, "m", b, ns)
	if err := a.APIServer.Restart(); err != nil {
		t.Fatal(err)
	}
	g.failOver(t, a)
	m.isCluster(identityOf(t, a))
	seen.mustHave(t, "m", a, ns)
}

// TestAGatewayThatKnowsNoWayIsNotAnotherCluster: it answers everything with a page that says so, for a while.
func TestAGatewayThatKnowsNoWayIsNotAnotherCluster(t *testing.T) {
	t.Parallel()
	f, _, a, _ := twoClusters(t)
	g := newGateway(t, newAuthority(t), a)
	m, _ := newWatchedManager(t, f.Local)
	m.set(fleet.Member{Name: "m", Config: g.config()})
	m.start()
	m.isCluster(identityOf(t, a))
	first := m.attached()
	g.answer(http.NotFound)
	g.server.CloseClientConnections()
	m.becomes(fleet.Unreachable)
	g.answer(g.serve)
	m.becomes(fleet.Ready)
	if m.attached() != first {
		t.Errorf("the member was engaged anew: %v", context.Cause(first.Context()))
	}
}

// TestWhatWasDeletedDuringAReplacementIsReconciled: a member gets another address while it is away, and some of its
// objects are deleted meanwhile.
func TestWhatWasDeletedDuringAReplacementIsReconciled(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	for i := range 30 {
		configMap(t, cp, ns, fmt.Sprintf("cm-%d", i))
	}
	first, second := newProxy(t, cp), newProxy(t, cp)
	m, seen := newWatchedManager(t, f.Local)
	m.set(fleet.Member{Name: "m", Config: first.Through(cp.Config())})
	m.start()
	m.is("m", fleet.Ready)
	seen.mustAgree(t, "m", cp, ns)
	before := m.attached()
	first.Hold(true, true)
	for i := range 10 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("cm-%d", i)}}
		if err := cp.Client().Delete(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
	}
	m.set(fleet.Member{Name: "m", Config: second.Through(cp.Config())})
	eventually(t, "the member is engaged at its other address", func() bool { return m.attached() != before })
	seen.mustAgree(t, "m", cp, ns)
}

// identityReader has the right to read which cluster it is.
var identityReader = rbacv1.PolicyRule{
	APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"},
}

// TestNothingIsLostWhenTheRightToReadTheIdentityIsOthers: it is given or taken while the member is away, and some of its objects
// are deleted meanwhile. The others show that it is the same cluster.
func TestNothingIsLostWhenTheRightToReadTheIdentityIsOthers(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	for i := range 30 {
		configMap(t, cp, ns, fmt.Sprintf("cm-%d", i))
	}
	users := map[string]*rest.Config{
		"":                cp.AddUser(t, "nobody", configMapReader),
		identityOf(t, cp): cp.AddUser(t, "somebody", configMapReader, identityReader),
	}
	m, seen := newWatchedManager(t, f.Local)
	first := newProxy(t, cp)
	m.set(fleet.Member{Name: "m", Config: first.Through(users[""])})
	m.start()
	m.isCluster("")
	seen.mustAgree(t, "m", cp, ns)
	for i, identity := range []string{identityOf(t, cp), ""} {
		first.Hold(true, true)
		for n := range 10 {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("cm-%d", 10*i+n)}}
			if err := cp.Client().Delete(t.Context(), cm); err != nil {
				t.Fatal(err)
			}
		}
		first = newProxy(t, cp)
		m.set(fleet.Member{Name: "m", Config: first.Through(users[identity])})
		m.isCluster(identity)
		seen.mustAgree(t, "m", cp, ns)
	}
}

// TestAClusterOfUnknownIdentityIsAnotherUnlessItHasTheSameObjects: nothing is told as deleted that the other one never had.
func TestAClusterOfUnknownIdentityIsAnotherUnlessItHasTheSameObjects(t *testing.T) {
	t.Parallel()
	f, ns, a, b := twoClusters(t)
	m, _ := newWatchedManager(t, f.Local)
	seen := newRecord()
	m.control(seen)
	m.set(fleet.Member{Name: "m", Config: a.AddUser(t, "nobody", configMapReader)})
	m.start()
	eventually(t, "the objects of the first are reconciled", func() bool { return seen.count("m", ns, "only-in-"+a.Name) > 0 })
	first := m.attached()
	m.set(fleet.Member{Name: "m", Config: b.Config()})
	m.isCluster(identityOf(t, b))
	before := seen.count("m", ns, "only-in-"+a.Name)
	configMap(t, b, ns, "after")
	eventually(t, "the objects of the second are reconciled", func() bool {
		return seen.count("m", ns, "only-in-"+b.Name) > 0 && seen.count("m", ns, "after") > 0
	})
	if n := seen.count("m", ns, "only-in-"+a.Name) - before; n > 0 {
		t.Errorf("what is in the first alone was reconciled %d times in the second", n)
	}
	if cause := context.Cause(first.Context()); !errors.Is(cause, fleet.ErrAnotherCluster) {
		t.Errorf("the engagement of the first cluster ended by %v, want ErrAnotherCluster", cause)
	}
}

// TestAnEngagementIsSyncedBeforeItTakesThePlaceOfAnother: readers find everything in the new cache at once.
func TestAnEngagementIsSyncedBeforeItTakesThePlaceOfAnother(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	bigConfigMaps(t, cp, ns, 20)
	slow := newSlowProxy(t, cp, 500<<10)
	m, seen := newWatchedManager(t, f.Local)
	m.set(fleet.Member{Name: "m", Config: cp.Config()})
	m.start()
	m.is("m", fleet.Ready)
	seen.mustAgree(t, "m", cp, ns)
	before := m.attached()
	m.set(fleet.Member{Name: "m", Config: slow.Through(cp.Config())})
	eventually(t, "the member is engaged at its other address", func() bool { return m.attached() != before })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // far less than the list takes
	defer cancel()
	list := &corev1.ConfigMapList{}
	if err := m.attached().Cluster().GetCache().List(ctx, list, client.InNamespace(ns)); err != nil || len(list.Items) < 20 {
		t.Errorf("the new cache has %d objects: %v", len(list.Items), err)
	}
}

// TestANewCABundleIsTakenOverInPlace: like other credentials, once it is known to be the same cluster.
func TestANewCABundleIsTakenOverInPlace(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	atFirst := lists(t, cp)
	m, seen := newWatchedManager(t, f.Local)
	m.set(fleet.Member{Name: "m", Config: cp.Config()})
	m.start()
	m.is("m", fleet.Ready)
	seen.mustAgree(t, "m", cp, ns)
	before, outages := m.attached(), m.outages()
	listed := listsMoreThan(t, cp, atFirst)
	configMap(t, cp, ns, "before") // a watch that ends within a second, and has brought nothing, is followed by a list
	seen.mustAgree(t, "m", cp, ns)
	cfg := cp.Config()
	cfg.CAData = slices.Concat(cfg.CAData, []byte("\n"), otherCA(t))
	m.set(fleet.Member{Name: "m", Config: cfg})
	eventually(t, "the new bundle is in use", func() bool {
		return string(m.attached().Cluster().GetConfig().CAData) == string(cfg.CAData)
	})
	configMap(t, cp, ns, "after")
	seen.mustAgree(t, "m", cp, ns)
	if m.attached() != before {
		t.Error("the member was engaged anew")
	}
	m.listsNoMoreThan(cp, listed, outages())
}

// TestAMemberOfUnknownIdentityWorks: without the right to read it, and what could be another cluster counts as one.
func TestAMemberOfUnknownIdentityWorks(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	user := cp.AddUser(t, "nobody", configMapReader)
	m, seen := newWatchedManager(t, f.Local)
	m.set(fleet.Member{Name: "m", Config: user})
	m.start()
	m.is("m", fleet.Ready)
	seen.mustAgree(t, "m", cp, ns)
	before := m.attached()
	if status := m.status("m"); status.Identity != "" || status.Reason != "" {
		t.Errorf("the status is %+v, want an unknown identity and no complaint", status)
	}
	other := rest.CopyConfig(user)
	other.CAData = slices.Concat(other.CAData, []byte("\n"), otherCA(t))
	m.set(fleet.Member{Name: "m", Config: other})
	eventually(t, "a way that may lead elsewhere is connected anew", func() bool { return m.attached() != before })

	before = m.attached()
	m.set(fleet.Member{Name: "m", Config: cp.AddUser(t, "somebody", configMapReader, identityReader)})
	m.isCluster(identityOf(t, cp))
	if m.attached() == before {
		t.Error("a cluster of unknown identity is taken for one of a known identity")
	}
	seen.mustAgree(t, "m", cp, ns)
}

// TestAnIdentityIsLearnedOnceTheRightIsGranted: to the credentials that there are, and on connections that stay.
func TestAnIdentityIsLearnedOnceTheRightIsGranted(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	m, seen := newWatchedManager(t, f.Local)
	m.set(fleet.Member{Name: "m", Config: cp.AddUser(t, "promoted", configMapReader)})
	m.start()
	m.is("m", fleet.Ready)
	before := m.attached()
	cp.AddUser(t, "promoted", configMapReader, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"},
	})
	m.isCluster(identityOf(t, cp))
	if m.attached() == before {
		t.Error("the engagement has another identity than it had")
	}
	seen.mustAgree(t, "m", cp, ns)
}

// TestTwoMembersThatAreOneClusterAreTold: both show it, or the second is refused, and comes when the first has left.
func TestTwoMembersThatAreOneClusterAreTold(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	cp := f.Members[0]
	m, _ := newWatchedManager(t, f.Local)
	m.set(fleet.Member{Name: "m", Config: cp.Config()})
	m.set(fleet.Member{Name: "twin", Config: newProxy(t, cp).Through(cp.Config())})
	m.start()
	eventually(t, "each shows the other", func() bool {
		return slices.Equal(m.status("m").Duplicates, []fleet.ClusterName{"twin"}) &&
			slices.Equal(m.status("twin").Duplicates, []fleet.ClusterName{"m"})
	})
	if all := m.GetFleet().Problems(); len(all) != 1 || all[0].About != "cluster "+identityOf(t, cp) || all[0].Reason != fleet.ReasonDuplicate {
		t.Errorf("the problems are %+v, want one about the cluster", all)
	}
	<-m.members.Remove("twin")
	if all := m.GetFleet().Problems(); len(all) > 0 {
		t.Errorf("there are still problems: %+v", all)
	}
	if status := m.status("m"); len(status.Duplicates) > 0 {
		t.Errorf("the one that is left shows %q", status.Duplicates)
	}
}

// TestASecondMemberForOneClusterCanBeRefused: it comes when the first has left.
func TestASecondMemberForOneClusterCanBeRefused(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	cp := f.Members[0]
	m := newManagerWith(t, f.Local, "", static{}, func(*mcmanager.Options) {}, func(o *fleet.Options) { o.RefuseDuplicates = true })
	m.set(fleet.Member{Name: "m", Config: cp.Config()})
	m.start()
	m.is("m", fleet.Ready)
	m.set(fleet.Member{Name: "twin", Config: cp.Config()})
	m.isBecause("twin", fleet.Connecting, fleet.ReasonDuplicate)
	if status := m.status("m"); status.State != fleet.Ready || len(status.Duplicates) > 0 {
		t.Errorf("the first is %+v", status)
	}
	<-m.members.Remove("m")
	m.is("twin", fleet.Ready)
}

// TestAStorageThatIsRestoredFromABackupIsListedAnew: what was written since the backup is gone, what was deleted is back,
// and what is written afterwards has the versions of before.
func TestAStorageThatIsRestoredFromABackupIsListedAnew(t *testing.T) {
	t.Parallel()
	f := mctest.Start(t, mctest.Options{Clusters: 1}) // not of the pool: its storage is replaced
	ns := inAll(t, f)
	cp := f.Members[0]
	for i := range 10 {
		configMap(t, cp, ns, fmt.Sprintf("old-%d", i))
	}
	restore := cp.Backup(t)
	m, seen := newWatchedManager(t, f.Local)
	m.set(fleet.Member{Name: "m", Config: cp.Config()})
	m.start()
	m.is("m", fleet.Ready)
	identity := identityOf(t, cp)
	for i := range 5 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("old-%d", i)}}
		if err := cp.Client().Delete(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 300 {
		configMap(t, cp, ns, fmt.Sprintf("new-%d", i))
	}
	seen.mustAgree(t, "m", cp, ns)
	restore()
	m.is("m", fleet.Ready)
	configMap(t, cp, ns, "new-0") // with another UID, and a version that was counted before
	seen.mustAgree(t, "m", cp, ns)
	cached := &corev1.ConfigMapList{}
	if err := m.attached().Cluster().GetCache().List(t.Context(), cached, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	served := &corev1.ConfigMapList{}
	if err := cp.Client().List(t.Context(), served, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if got, want := uidsOf(cached), uidsOf(served); !slices.Equal(got, want) {
		t.Errorf("the cache has %d objects, the server %d others", len(got), len(want))
	}
	if now := m.status("m").Identity; now != identity {
		t.Errorf("the identity is %q, and was %q", now, identity)
	}
}

func uidsOf(list *corev1.ConfigMapList) []string {
	uids := make([]string, len(list.Items))
	for i, cm := range list.Items {
		uids[i] = string(cm.UID) + "@" + cm.ResourceVersion
	}
	slices.Sort(uids)
	return uids
}
