package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

const guarded = "example.com/guarded"

// guard puts a finalizer on the ConfigMaps of one namespace, and takes it back in clusters that leave.
type guard struct {
	ns       string
	stuck    atomic.Bool // it cannot take back anything
	panics   atomic.Bool // the next time that it takes back something
	tried    atomic.Int64
	takeback atomic.Int64
}

var errStuck = errors.New("it is stuck")

// Reconcile implements mcreconcile.Reconciler.
func (g *guard) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	if req.Namespace != g.ns {
		return reconcile.Result{}, nil
	}
	cl := mcreconcile.ClusterFrom(ctx).GetClient()
	cm := &corev1.ConfigMap{}
	if err := cl.Get(ctx, req.NamespacedName, cm); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := cm.DeepCopy()
	if !mcreconcile.Leaving(ctx) {
		if !controllerutil.AddFinalizer(cm, guarded) {
			return reconcile.Result{RequeueAfter: time.Hour}, nil
		}
		return reconcile.Result{RequeueAfter: time.Hour}, cl.Patch(ctx, cm, client.MergeFrom(before))
	}
	g.tried.Add(1)
	switch {
	case g.stuck.Load():
		return reconcile.Result{}, errStuck
	case g.panics.CompareAndSwap(true, false):
		panic("once")
	case !controllerutil.RemoveFinalizer(cm, guarded):
		return reconcile.Result{}, nil
	}
	g.takeback.Add(1)
	return reconcile.Result{}, cl.Patch(ctx, cm, client.MergeFrom(before))
}

// are waits until the ConfigMaps have the finalizer, or not.
func (g *guard) are(t *testing.T, cp *mctest.ControlPlane, guards bool, names ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q have the finalizer: %t", names, guards), func() bool {
		for _, name := range names {
			cm := &corev1.ConfigMap{}
			if err := cp.Client().Get(t.Context(), client.ObjectKey{Namespace: g.ns, Name: name}, cm); err != nil {
				t.Fatal(err)
			}
			if controllerutil.ContainsFinalizer(cm, guarded) != guards {
				return false
			}
		}
		return true
	})
}

// leavesWell gives the Secret of a member the finalizer by which that leaves well.
func (m *manager) leavesWell(secret *corev1.Secret) {
	m.t.Helper()
	before := secret.DeepCopy()
	controllerutil.AddFinalizer(secret, objects.LeaveFinalizer)
	if err := m.local().Patch(m.t.Context(), secret, client.MergeFrom(before)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *manager) isGone(secret *corev1.Secret) {
	m.t.Helper()
	eventually(m.t, "Secret "+secret.Name+" is gone, and its member", func() bool {
		err := m.local().Get(m.t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{})
		_, known := m.GetFleet().Status(fleet.ClusterName(secret.Name))
		return apierrors.IsNotFound(err) && !known
	})
}

// guardedMember is a manager with a member whose ConfigMaps "a" and "b" are guarded, and a Secret that is let leave well.
func guardedMember(t *testing.T) (*mctest.Fleet, *manager, *guard, *corev1.Secret) {
	t.Helper()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	configMap(t, f.Members[0], ns, "b")
	m, g := newManager(t, f.Local), &guard{ns: ns}
	m.control(g)
	secret := m.join("m", f.Members[0].Config())
	m.leavesWell(secret)
	return f, m, g, secret
}

// TestAMemberThatLeavesKeepsNoFinalizerOfAController, although a reconcile panics, and one watches what is not served there.
func TestAMemberThatLeavesKeepsNoFinalizerOfAController(t *testing.T) {
	t.Parallel()
	f, m, g, secret := guardedMember(t)
	err := mcbuilder.ControllerManagedBy(m).Named(controllerName(t)).For(widget()).
		Watches(&corev1.Secret{}, mchandler.EnqueueRequestForObject, mcbuilder.InLocalCluster).Complete(newRecord())
	if err != nil {
		t.Fatal(err)
	}
	m.start()
	g.are(t, f.Members[0], true, "a", "b")
	g.panics.Store(true)
	m.leave(secret)
	m.isGone(secret)
	g.are(t, f.Members[0], false, "a", "b")
	if n := g.takeback.Load(); n != 2 {
		t.Errorf("%d finalizers were taken back, want 2", n)
	}
	if problems := m.GetFleet().Problems(); len(problems) > 0 {
		t.Errorf("there are problems: %+v", problems)
	}
}

// TestAMemberLeavesBeyondTheLifeOfAManager: the next one goes on, and is the one that lets the Secret go.
func TestAMemberLeavesBeyondTheLifeOfAManager(t *testing.T) {
	t.Parallel()
	f, m, g, secret := guardedMember(t)
	g.stuck.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	g.are(t, f.Members[0], true, "a", "b")
	m.leave(secret)
	eventually(t, "it is tried to take back the finalizers", func() bool { return g.tried.Load() > 2 })
	if !m.status("m").Leaving {
		t.Error("the status does not say that the member leaves")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err := m.local().Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatalf("the Secret went with the manager: %v", err)
	}
	m.leave(secret) // once more

	next := newManagerOf(t, f.Local, m.ns, m.members.Beside)
	g.stuck.Store(false)
	next.control(g)
	next.start()
	next.isGone(secret)
	g.are(t, f.Members[0], false, "a", "b")
}

// TestAMemberThatIsAwayLeavesWhenItIsBack, with other credentials.
func TestAMemberThatIsAwayLeavesWhenItIsBack(t *testing.T) {
	t.Parallel()
	f, m, g, secret := guardedMember(t)
	m.start()
	g.are(t, f.Members[0], true, "a", "b")
	g.stuck.Store(true)
	m.leave(secret)
	eventually(t, "it is tried to take back the finalizers", func() bool { return g.tried.Load() > 0 })
	f.Members[0].Stop(t)
	m.isBecause("m", fleet.Unreachable, fleet.ReasonRefused)
	f.Members[0].Restart(t)
	m.rejoin(secret, f.Members[0].AddUser(t, "other", rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}))
	g.stuck.Store(false) // not before: the former credentials are good again, too, and it would leave with these
	m.isGone(secret)
	g.are(t, f.Members[0], false, "a", "b")
}

// TestAMemberWhoseControllersHangLeavesAtItsDeadline, and harms no other.
func TestAMemberWhoseControllersHangLeavesAtItsDeadline(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 2})
	ns := inAll(t, f)
	namespace := f.Local.CreateNamespace(t)
	m := newManagerWith(t, f.Local, namespace, kubeconfigsIn(namespace), func(*mcmanager.Options) {},
		func(o *fleet.Options) { o.LeaveTimeout = 3 * time.Second })
	g := &guard{ns: ns}
	err := mcbuilder.ControllerManagedBy(m).For(&corev1.ConfigMap{}).Named(controllerName(t)).
		WithEventFilter(predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetNamespace() == ns })).
		Complete(mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			if req.ClusterName == "hangs" && mcreconcile.Leaving(ctx) {
				<-ctx.Done()
				return reconcile.Result{}, context.Cause(ctx)
			}
			return g.Reconcile(ctx, req)
		}))
	if err != nil {
		t.Fatal(err)
	}
	hangs, leaves := m.join("hangs", f.Members[0].Config()), m.join("leaves", f.Members[1].Config())
	m.leavesWell(hangs)
	m.leavesWell(leaves)
	m.start()
	g.are(t, f.Members[0], true, "a")
	g.are(t, f.Members[1], true, "a")
	m.leave(hangs)
	m.leave(leaves)
	m.isGone(leaves)
	g.are(t, f.Members[1], false, "a")
	m.isGone(hangs)
	g.are(t, f.Members[0], true, "a")
}

// TestAKindThatMayNotBeListedHoldsNoMemberThatLeaves: nobody knows of its objects, which is said.
func TestAKindThatMayNotBeListedHoldsNoMemberThatLeaves(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	member := fleet.Member{Name: "m", Config: f.Members[0].AddUser(t, "limited", rule("", "configmaps", "get", "list", "watch", "patch"))}
	m, g := newManager(t, f.Local), &guard{ns: ns}
	err := mcbuilder.ControllerManagedBy(m).For(&corev1.ConfigMap{}).Named(controllerName(t)).
		Watches(&corev1.Secret{}, mchandler.EnqueueRequestForObject).Complete(g)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.members.Set(member); err != nil {
		t.Fatal(err)
	}
	m.start()
	g.are(t, f.Members[0], true, "a")
	if _, err := m.members.Leave(member); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the member has left, long before its time is up", func() bool { return m.status("m").State == "" })
	g.are(t, f.Members[0], false, "a")
	problems := m.GetFleet().Problems()
	if len(problems) != 1 || problems[0].Reason != fleet.ReasonLeftUndone || !strings.Contains(problems[0].Message, "not be listed there: Secret") {
		t.Errorf("the problems are %+v, want that nobody knows of Secrets", problems)
	}
}

// TestASecretThatIsCreatedAgainAtOnceIsAMemberThatStays, whose controllers put back what they have taken back.
func TestASecretThatIsCreatedAgainAtOnceIsAMemberThatStays(t *testing.T) {
	t.Parallel()
	ways := map[string]func(m *manager, g *guard, secret *corev1.Secret){
		"after it has left": func(m *manager, _ *guard, secret *corev1.Secret) { m.leave(secret) },
		"while it leaves": func(m *manager, g *guard, secret *corev1.Secret) {
			g.stuck.Store(true)
			m.leave(secret)
			eventually(m.t, "it is tried to take back the finalizers", func() bool { return g.tried.Load() > 0 })
			g.stuck.Store(false)
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			if err := m.local().Patch(m.t.Context(), secret, patch); client.IgnoreNotFound(err) != nil {
				m.t.Fatal(err)
			}
		},
	}
	for name, let := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, m, g, secret := guardedMember(t)
			m.start()
			g.are(t, f.Members[0], true, "a", "b")
			again := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
				Namespace: secret.Namespace, Name: secret.Name, Labels: secret.Labels, Finalizers: secret.Finalizers,
			}, Data: secret.Data}
			let(m, g, secret)
			eventually(t, "the Secret can be created again", func() bool { return m.local().Create(t.Context(), again.DeepCopy()) == nil })
			eventually(t, "the member is there", func() bool { return m.status("m").State == fleet.Ready && !m.status("m").Leaving })
			g.are(t, f.Members[0], true, "a", "b")
			m.leave(again)
			m.isGone(again)
			g.are(t, f.Members[0], false, "a", "b")
		})
	}
}

// TestAHundredMembersLeaveAtOnce: each of them sees each of its objects once more.
func TestAHundredMembersLeaveAtOnce(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	m := newManager(t, f.Local)
	stays, leaves := newRecord(), newRecord()
	m.control(mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
		if mcreconcile.Leaving(ctx) {
			return leaves.Reconcile(ctx, req)
		}
		return stays.Reconcile(ctx, req)
	}))
	secrets := make([]*corev1.Secret, 100)
	for i := range secrets {
		secrets[i] = m.join(fmt.Sprintf("m%d", i), f.Members[0].Config())
		m.leavesWell(secrets[i])
	}
	m.start()
	eventually(t, "all are reconciled", func() bool { return len(stays.of(ns)) == len(secrets) })
	for _, secret := range secrets {
		m.leave(secret)
	}
	for _, secret := range secrets {
		m.isGone(secret)
	}
	if n := len(leaves.of(ns)); n != len(secrets) {
		t.Errorf("%d members were reconciled when they left, want %d", n, len(secrets))
	}
}

// TestAStandbyLetsMembersLeaveThatTheLeaderHasNot when it leads.
func TestAStandbyLetsMembersLeaveThatTheLeaderHasNot(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	g := &guard{ns: ns}
	namespace := f.Local.CreateNamespace(t)
	replica := func() *manager {
		t.Helper()
		m := newManagerWith(t, f.Local, namespace, kubeconfigsIn(namespace), func(o *mcmanager.Options) {
			o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, "leaving", namespace
			o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = new(4*time.Second), new(3*time.Second), new(time.Second)
			o.LeaderElectionReleaseOnCancel = true
		})
		m.control(g)
		return m
	}
	leader := replica()
	secret := leader.join("m", f.Members[0].Config())
	leader.leavesWell(secret)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- leader.Start(ctx) }()
	<-leader.Elected()
	g.are(t, f.Members[0], true, "a")
	standby := replica()
	standby.start()
	standby.is("m", fleet.Ready)
	g.stuck.Store(true)
	leader.leave(secret)
	eventually(t, "both know that it leaves", func() bool { return leader.status("m").Leaving && standby.status("m").Leaving })
	eventually(t, "the leader tries", func() bool { return g.tried.Load() > 0 })
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	<-standby.Elected()
	g.stuck.Store(false)
	standby.isGone(secret)
	g.are(t, f.Members[0], false, "a")
}

func kubeconfigsIn(namespace string) fleet.Provider { return kubeconfig.Provider{Namespace: namespace} }
