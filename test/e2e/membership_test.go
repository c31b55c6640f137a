package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// request is one for an object of a member.
func request(cluster mcreconcile.ClusterName, namespace, name string) mcreconcile.Request {
	req := mcreconcile.Request{ClusterName: cluster}
	req.Namespace, req.Name = namespace, name
	return req
}

// TestHelloWorld: a reconciler of Pods sees exactly the Pods of the fleet, updates coalesce, and clusters come
// and go without a restart.
func TestHelloWorld(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 3})
	ns := f.Local.CreateNamespace(t)
	for _, cp := range f.Members {
		if err := cp.Client().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
			t.Fatal(err)
		}
	}
	pods := map[string]*corev1.Pod{"cluster1": pod(t, f.Members[0], ns), "cluster2": pod(t, f.Members[1], ns)}

	seen := newRecord()
	inside, goOn := make(chan struct{}, 1000), make(chan struct{})
	var hold, toldAll atomic.Bool
	m := newManager(t, f.Local)
	telling := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		if obj.GetNamespace() == ns && obj.GetLabels()["touched"] == "50" {
			toldAll.Store(true)
		}
		return true
	})
	err := mcbuilder.ControllerManagedBy(m).For(&corev1.Pod{}, mcbuilder.WithPredicates(telling)).Named(controllerName(t)).
		Complete(mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			if hold.Load() {
				inside <- struct{}{}
				<-goOn
			}
			return seen.Reconcile(ctx, req)
		}))
	if err != nil {
		t.Fatal(err)
	}
	first := m.join("cluster1", f.Members[0].Config())
	m.join("cluster2", f.Members[1].Config())
	m.start()
	both := map[mcreconcile.Request]bool{request("cluster1", ns, "nginx"): true, request("cluster2", ns, "nginx"): true}
	stage.Soon(t, "exactly the two Pods were reconciled", func() bool { return cmp.Equal(both, seen.of(ns)) })

	// 50 updates while a reconcile of the Pod runs lead to at most two more.
	before := seen.count("cluster2", ns, "nginx")
	hold.Store(true)
	touch(t, f.Members[1], pods["cluster2"], 0)
	<-inside
	hold.Store(false)
	for i := range 50 {
		touch(t, f.Members[1], pods["cluster2"], i+1)
	}
	// Events come later than the answers to the writes, and to the controller later than to the cache.
	stage.Soon(t, "the controller is told of the last update", toldAll.Load)
	close(goOn)
	stage.Soon(t, "the last update was reconciled", func() bool { return seen.count("cluster2", ns, "nginx") >= before+2 })
	if n := seen.count("cluster2", ns, "nginx") - before; n > 3 {
		t.Errorf("%d reconciles for 51 updates, want them to coalesce into at most 3", n)
	}

	pod(t, f.Members[2], ns)
	m.join("cluster3", f.Members[2].Config())
	stage.Soon(t, "the Pod of the new cluster was reconciled", func() bool { return seen.count("cluster3", ns, "nginx") > 0 })
	m.leave(first)
	m.is("cluster1", "")
	total := seen.total("cluster1")
	before = seen.count("cluster2", ns, "nginx")
	touch(t, f.Members[0], pods["cluster1"], 0)
	touch(t, f.Members[1], pods["cluster2"], 100)
	stage.Soon(t, "the update of the other cluster was reconciled", func() bool { return seen.count("cluster2", ns, "nginx") > before })
	if n := seen.total("cluster1") - total; n > 0 {
		t.Errorf("%d reconciles of a cluster that has left", n)
	}
}

func pod(t *testing.T, cp *mctest.ControlPlane, namespace string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nginx"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx"}}},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	if err := cp.Client().Create(t.Context(), account); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	if err := cp.Client().Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// touch changes a label of an object.
func touch(t *testing.T, cp *mctest.ControlPlane, obj client.Object, i int) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{"touched":"%d"}}}`, i))
	if err := cp.Client().Patch(t.Context(), obj, patch); err != nil {
		t.Fatal(err)
	}
}

// TestAMemberMayLeaveBeforeTheStart: one that was engaged while the manager waited for leadership, and has left by the
// time that its controllers start, harms nobody.
func TestAMemberMayLeaveBeforeTheStart(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 2})
	ns := inAll(t, f)
	lease := holdLease(t, f.Local, ns)
	m := newManagerWith(t, f.Local, ns, kubeconfig.Provider{Namespace: ns}, func(o *mcmanager.Options) {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, lease.Name, ns
	})
	seen := newRecord()
	m.control(seen)
	m.join("stays", f.Members[0].Config())
	leaves := m.join("leaves", f.Members[1].Config())
	m.start()
	m.is("stays", fleet.Ready)
	m.is("leaves", fleet.Ready)
	m.leave(leaves)
	m.is("leaves", "")
	if err := f.Local.Client().Delete(t.Context(), lease); err != nil { // leadership is free
		t.Fatal(err)
	}
	eventually(t, "the member that stays is reconciled", func() bool { return seen.count("stays", ns, "a") > 0 })
	if n := seen.total("leaves"); n > 0 {
		t.Errorf("%d reconciles of the member that had left", n)
	}
}

// holdLease has another replica be the leader.
func holdLease(t *testing.T, cp *mctest.ControlPlane, namespace string) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "leader"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(3600)),
			AcquireTime: new(metav1.NowMicro()), RenewTime: new(metav1.NowMicro()),
		},
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := cp.Client().Create(t.Context(), ns); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	if err := cp.Client().Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	return lease
}

// TestAControllerMayComeLate: one that is added long after members were engaged is given them.
func TestAControllerMayComeLate(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 2})
	ns := inAll(t, f)
	m := newManager(t, f.Local)
	for i, cp := range f.Members {
		m.join(fmt.Sprintf("m%d", i), cp.Config())
	}
	m.start()
	m.is("m0", fleet.Ready)
	m.is("m1", fleet.Ready)
	seen := newRecord()
	m.control(seen)
	for _, name := range []mcreconcile.ClusterName{"m0", "m1"} {
		eventually(t, string(name)+" is reconciled", func() bool { return seen.count(name, ns, "a") > 0 })
	}
}

// TestAMemberReportedAgainAndAgainIsEngagedOnce: 50 reports in a second change nothing.
func TestAMemberReportedAgainAndAgainIsEngagedOnce(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	m := newManager(t, f.Local)
	secret := m.join("m", f.Members[0].Config())
	m.start()
	m.is("m", fleet.Ready)
	before, err := m.GetFleet().Engagement("m")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		touch(t, f.Local, secret, i)
	}
	eventually(t, "the last report has arrived", func() bool { return m.status("m").Labels["touched"] == "49" })
	for range 50 { // by a provider that knows nothing of revisions
		if err := m.members.Set(fleet.Member{Name: "m", Config: f.Members[0].Config()}); err != nil {
			t.Fatal(err)
		}
	}
	after, err := m.GetFleet().Engagement("m")
	if err != nil || after != before {
		t.Errorf("the member was engaged anew (%v)", err)
	}
}

// TestTwoSecretsThatClaimTheSameName: the first has it, the second is told so, and takes over when the first leaves.
func TestTwoSecretsThatClaimTheSameName(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 3})
	ns := f.Local.CreateNamespace(t)
	m := newManagerOf(t, f.Local, ns, kubeconfig.Provider{Namespace: ns, Name: func(s *corev1.Secret, name string) fleet.ClusterName {
		if claimed := s.Labels["claims"]; claimed != "" {
			return fleet.ClusterName(claimed)
		}
		return fleet.ClusterName(name)
	}})
	m.start()
	claim := map[string]string{"claims": "prod"}
	first := m.joinWith("first", f.Members[0].Kubeconfig(), claim)
	m.is("prod", fleet.Ready)
	m.joinWith("second", f.Members[1].Kubeconfig(), claim)
	m.join("other", f.Members[2].Config())
	m.is("other", fleet.Ready)
	eventually(t, "the second Secret has an event that says so", func() bool { return hasEvent(t, f.Local, "second", "DuplicateName") })
	host := func() string {
		e, err := m.GetFleet().Engagement("prod")
		if err != nil {
			return ""
		}
		return e.Cluster().GetConfig().Host
	}
	if got, want := host(), f.Members[0].Config().Host; got != want {
		t.Errorf("the name stands for %s, want the first that claimed it, %s", got, want)
	}
	m.leave(first)
	eventually(t, "the second has taken over", func() bool { return host() == f.Members[1].Config().Host })
}

func hasEvent(t *testing.T, cp *mctest.ControlPlane, about, reason string) bool {
	t.Helper()
	events := &corev1.EventList{}
	if err := cp.Client().List(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.InvolvedObject.Name == about && e.Reason == reason && e.Type == corev1.EventTypeWarning {
			return true
		}
	}
	return false
}

// TestAKubeconfigThatRunsProgramsIsRefused is G12, seen from the outside: the member's state says what is refused.
func TestAKubeconfigThatRunsProgramsIsRefused(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	m := newManager(t, f.Local)
	m.start()
	m.joinWith("evil", []byte(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/touch, args: [/tmp/evil], interactiveMode: Never}}}]
`), nil)
	m.join("good", f.Members[0].Config())
	m.is("good", fleet.Ready)
	m.isBecause("evil", fleet.Pending, kubeconfig.ReasonRefused)
	eventually(t, "the Secret has an event that says so", func() bool { return hasEvent(t, f.Local, "evil", kubeconfig.ReasonRefused) })
}

// TestALabelDecidesWhichWatchesApply: labels change while a member stays engaged.
func TestALabelDecidesWhichWatchesApply(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	m := newManager(t, f.Local)
	seen := newRecord()
	inProd := labels.SelectorFromSet(labels.Set{"stage": "prod"})
	if err := mcbuilder.ControllerManagedBy(m).For(&corev1.ConfigMap{}, mcbuilder.InMembers(inProd)).
		Named(controllerName(t)).Complete(seen); err != nil {
		t.Fatal(err)
	}
	m.start()
	secret := m.joinWith("m", f.Members[0].Kubeconfig(), map[string]string{"stage": "test"})
	m.is("m", fleet.Ready)
	e, err := m.GetFleet().Engagement("m")
	if err != nil {
		t.Fatal(err)
	}
	stage := func(value string) {
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{"stage":%q}}}`, value))
		if err := f.Local.Client().Patch(t.Context(), secret, patch); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the label has arrived", func() bool { return m.status("m").Labels["stage"] == value })
	}
	stage("prod")
	eventually(t, "the member is reconciled once its label matches", func() bool { return seen.count("m", ns, "a") > 0 })
	before := seen.count("m", ns, "a")
	eventually(t, "the watch ends without the label, so that all is listed anew with it", func() bool {
		stage("test") // which is not noticed if it is back too soon
		stage("prod")
		return seen.count("m", ns, "a") > before
	})
	if again, err := m.GetFleet().Engagement("m"); err != nil || again != e {
		t.Errorf("the member was engaged anew for a label (%v)", err)
	}
}

// TestAMemberIsDrainedAfterItsLastReconcile is the core of G3: the running reconcile learns why it must end, the drain waits
// for it, and none starts afterwards.
func TestAMemberIsDrainedAfterItsLastReconcile(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	m := newManager(t, f.Local)
	running, goOn := make(chan context.Context, 1), make(chan struct{})
	var afterRemove, removed atomic.Bool
	another := newRecord()
	m.control(mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
		switch {
		case req.ClusterName != "m":
			return another.Reconcile(ctx, req)
		case removed.Load():
			afterRemove.Store(true)
		case req.Namespace == ns:
			running <- ctx
			<-goOn
		}
		return reconcile.Result{}, nil
	}))
	secret := m.join("m", f.Members[0].Config())
	m.join("another", f.Members[0].Config()) // the same cluster by another name, which stays
	m.start()
	ctx := <-running
	m.leave(secret)
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, fleet.ErrDisengaged) {
		t.Errorf("the cause is %v, want ErrDisengaged", cause)
	}
	m.is("m", fleet.Draining)
	if status := m.status("m"); !strings.Contains(status.Message, ns+"/a") {
		t.Errorf("the status is %+v while a reconcile runs, want a message that names it", status)
	}
	close(goOn)
	<-m.members.Remove("m")
	removed.Store(true)
	configMap(t, f.Members[0], ns, "b")
	if _, err := m.GetCluster(t.Context(), "m"); !errors.Is(err, fleet.ErrGone) {
		t.Errorf("GetCluster() = %v, want ErrGone", err)
	}
	eventually(t, "who still watches the cluster is told of the new object", func() bool { return another.count("another", ns, "b") > 0 })
	if afterRemove.Load() {
		t.Error("a reconcile started after Remove had returned")
	}
}

// TestTheFleetItselfCanBeReconciled: the members are told to a controller by mcsource.Clusters.
func TestTheFleetItselfCanBeReconciled(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	m := newManager(t, f.Local)
	states := make(chan fleet.State, 100)
	source := mcsource.Clusters(m.GetFleet(), func(_ context.Context, s fleet.Status) []mcreconcile.Request {
		states <- s.State
		return []mcreconcile.Request{request(mcreconcile.LocalCluster, "", string(s.Name))}
	})
	seen := newRecord()
	if err := mcbuilder.ControllerManagedBy(m).Named(controllerName(t)).WatchesRawSource(source).Complete(seen); err != nil {
		t.Fatal(err)
	}
	m.start()
	secret := m.join("m", f.Members[0].Config())
	until := func(want fleet.State) {
		for got := range states {
			if got == want {
				return
			}
		}
	}
	until(fleet.Ready)
	eventually(t, "the member was reconciled as an object of the fleet", func() bool { return seen.count("", "", "m") > 0 })
	m.leave(secret)
	until("")
}
