package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// newSecretsManager makes a manager of Secrets with quick probes, and a ledger of its members' ConfigMaps.
func newSecretsManager(t *testing.T, local *mctest.ControlPlane, opts ...mcmanager.FleetOption) (*manager, *ledger) {
	t.Helper()
	ns := local.CreateNamespace(t)
	m := newManagerWith(t, local, ns, kubeconfig.Provider{Namespace: ns}, func(*mcmanager.Options) {}, append(opts, quickHealth)...)
	seen := newLedger()
	m.control(seen)
	return m, seen
}

// configMapReader has the rights that a member's watches need.
var configMapReader = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}}

// withToken returns the config of a new service account, with a token that is valid as long as the account exists.
func withToken(t *testing.T, cp *mctest.ControlPlane, namespace, name string) (*rest.Config, *corev1.ServiceAccount) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := cp.Client().Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	// AddUser returns once the rights of this name hold. Only the name is of use here.
	cp.AddUser(t, fmt.Sprintf("system:serviceaccount:%s:%s", namespace, name), configMapReader)
	return newToken(t, cp, account), account
}

// newToken returns the config of a service account with another token.
func newToken(t *testing.T, cp *mctest.ControlPlane, account *corev1.ServiceAccount) *rest.Config {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if err := cp.Client().SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	cfg := rest.AnonymousClientConfig(cp.Config())
	cfg.BearerToken = request.Status.Token
	return cfg
}

// who asks the member "m" who the fleet's client is to it, empty if that cannot be found out now.
func (m *manager) who() string {
	m.t.Helper()
	cl, err := m.GetCluster(m.t.Context(), "m")
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), writeTimeout)
	defer cancel()
	review := &authenticationv1.SelfSubjectReview{}
	if err := cl.GetClient().Create(ctx, review); err != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}

// TestARevokedTokenIsReplaced: the member is shown as refusing, and is back with the credentials that repair it. What
// changed meanwhile is reconciled.
func TestARevokedTokenIsReplaced(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	m, seen := newSecretsManager(t, f.Local)
	old, account := withToken(t, cp, ns, "old")
	secret := m.join("m", old)
	m.start()
	m.is("m", fleet.Ready)
	writes := startLoad(t, cp, ns, 20)
	writes.reaches(t, 50)
	writes.end(t)
	seen.mustAgree(t, "m", cp, ns)
	if err := cp.Client().Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	m.becomes(fleet.Unreachable, fleet.ReasonUnauthorized)
	writes = startLoad(t, cp, ns, 20)
	writes.reaches(t, 50)
	writes.end(t)
	renewed, _ := withToken(t, cp, ns, "new")
	m.rejoin(secret, renewed)
	m.becomes(fleet.Ready)
	seen.mustAgree(t, "m", cp, ns)
	if status := m.status("m"); status.Reason != "" {
		t.Errorf("the repaired member complains: %+v", status)
	}
}

// TestARevokedTokenShowsOnABusyMember: its watch was let in before, and goes on to deliver. That is no proof that the
// credentials are still good.
func TestARevokedTokenShowsOnABusyMember(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	m, _ := newSecretsManager(t, f.Local)
	token, account := withToken(t, cp, ns, "revoked")
	m.join("m", token)
	m.start()
	m.is("m", fleet.Ready)
	writes := startLoad(t, cp, ns, 20)
	writes.reaches(t, 50)
	if err := cp.Client().Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server refuses the token", func() bool { return m.who() == "" })
	m.becomes(fleet.Unreachable, fleet.ReasonUnauthorized)
}

// TestTheProviderIsAskedForFreshCredentials: when the server refuses those that there are, both of a member that is being
// connected and of one that is engaged. That one keeps its engagement.
func TestTheProviderIsAskedForFreshCredentials(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	m := newManagerWith(t, f.Local, "", static{}, func(*mcmanager.Options) {}, quickHealth,
		func(o *fleet.Options) { o.MaxRetryPeriod = time.Second })
	seen := newLedger()
	m.control(seen)

	fresh := make(chan *rest.Config, 1) // what the provider would answer with
	member := fleet.Member{Name: "m"}
	m.members.OnRefresh = func(context.Context, fleet.ClusterName) error {
		select {
		case cfg := <-fresh:
			next := member
			next.Config = cfg
			return m.members.Set(next)
		default:
			return errors.New("there are none yet")
		}
	}
	member.Config = rest.AnonymousClientConfig(cp.Config())
	member.Config.BearerToken = "of nobody"
	m.set(member)
	m.start()
	eventually(t, "the credentials are refused", func() bool { return m.status("m").Reason == fleet.ReasonUnauthorized })
	first, account := withToken(t, cp, ns, "first")
	fresh <- first
	m.becomes(fleet.Ready)
	engagement := m.attached()

	second, _ := withToken(t, cp, ns, "second")
	fresh <- second
	if err := cp.Client().Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second user is used", func() bool { return strings.HasSuffix(m.who(), ":second") })
	m.becomes(fleet.Ready)
	writes := startLoad(t, cp, ns, 20)
	writes.reaches(t, 50)
	writes.end(t)
	seen.mustAgree(t, "m", cp, ns)
	if m.attached() != engagement {
		t.Error("the member was engaged anew")
	}
}

// TestNothingIsLostInRotationsUnderLoad: 20 new kubeconfigs of four users, with certificates and tokens, while 200 objects
// change.
func TestNothingIsLostInRotationsUnderLoad(t *testing.T) {
	t.Parallel()
	const rotations = 20
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	account := func(name string) string { return "system:serviceaccount:" + ns + ":" + name }
	type user struct {
		name string
		cfg  *rest.Config
	}
	third, _ := withToken(t, cp, ns, "third")
	fourth, _ := withToken(t, cp, ns, "fourth")
	users := []user{
		{"first", cp.AddUser(t, "first", configMapReader)},
		{"second", cp.AddUser(t, "second", configMapReader)},
		{account("third"), third},
		{account("fourth"), fourth},
	}
	m, seen := newSecretsManager(t, f.Local)
	secret := m.join("m", users[0].cfg)
	m.start()
	m.is("m", fleet.Ready)
	writes := startLoad(t, cp, ns, 200)
	writes.reaches(t, 200)
	for i := range rotations {
		to := users[(i+1)%len(users)]
		m.rejoin(secret, to.cfg)
		eventually(t, "the member is reached as "+to.name, func() bool { return m.who() == to.name })
		writes.reaches(t, 20)
	}
	writes.end(t)
	m.is("m", fleet.Ready)
	seen.mustAgree(t, "m", cp, ns)
	t.Logf("%d writes, %d reconciles", writes.written.Load(), seen.total("m"))
}

// TestCredentialsThatDoNotWorkLeaveTheOldOnesInUse: the status says what is wrong, and changes are still reconciled.
func TestCredentialsThatDoNotWorkLeaveTheOldOnesInUse(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	m, seen := newSecretsManager(t, f.Local)
	good := cp.AddUser(t, "good", configMapReader)
	secret := m.join("m", good)
	m.start()
	m.is("m", fleet.Ready)
	before := m.attached()
	bad := rest.AnonymousClientConfig(cp.Config())
	bad.BearerToken = "of-nobody"
	m.rejoin(secret, bad)
	eventually(t, "the status says what is wrong with the new credentials", func() bool {
		return m.status("m").Reason == fleet.ReasonUnauthorized
	})
	writes := startLoad(t, cp, ns, 20)
	writes.reaches(t, 50)
	writes.end(t)
	seen.mustAgree(t, "m", cp, ns)
	if m.attached() != before {
		t.Errorf("the engagement did not go on: status %+v", m.status("m"))
	}
	who := ""
	eventually(t, "the member is reached", func() bool {
		who = m.who()
		return who != ""
	})
	if who != "good" {
		t.Errorf("the member is reached as %q, want the user whose credentials work", who)
	}
	m.rejoin(secret, good)
	eventually(t, "there is nothing to complain about any more", func() bool {
		status := m.status("m")
		return status.State == fleet.Ready && status.Reason == ""
	})
}

// relabel writes a Secret as it is, with one more label, and waits until the fleet knows that.
func (m *manager) relabel(secret *corev1.Secret, value string) {
	m.t.Helper()
	patch := client.MergeFrom(secret.DeepCopy())
	secret.Labels["written"] = value
	if err := m.local().Patch(m.t.Context(), secret, patch); err != nil {
		m.t.Fatal(err)
	}
	eventually(m.t, "the Secret that was written again has arrived", func() bool {
		return m.status(fleet.ClusterName(secret.Name)).Labels["written"] == value
	})
}
