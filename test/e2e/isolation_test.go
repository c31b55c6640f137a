package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// healthyMembers are joined after the bad one. They are two API servers under five names each: connections, caches and
// watches are as many as with ten.
const healthyMembers = 10

// TestABadMemberHarmsNobody: in each case a bad member joins first. All healthy members are reconciled, the
// manager runs on, the bad member's status says what is wrong, and it joins by itself once it is repaired.
func TestABadMemberHarmsNobody(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		// bad makes the bad member's config, and what repairs it.
		bad    func(t *testing.T, cp *mctest.ControlPlane) (cfg *rest.Config, repair func(m *manager, secret *corev1.Secret))
		state  fleet.State
		reason string
	}{
		"Refuses": {
			bad: func(t *testing.T, cp *mctest.ControlPlane) (*rest.Config, func(*manager, *corev1.Secret)) {
				t.Helper()
				cp.Stop(t)
				return cp.Config(), func(*manager, *corev1.Secret) { cp.Restart(t) }
			},
			state: fleet.Connecting, reason: fleet.ReasonRefused,
		},
		"NeverAnswers": {
			bad: func(t *testing.T, cp *mctest.ControlPlane) (*rest.Config, func(*manager, *corev1.Secret)) {
				t.Helper()
				cp.Freeze(t)
				return cp.Config(), func(*manager, *corev1.Secret) { cp.Thaw(t) }
			},
			state: fleet.Connecting, reason: fleet.ReasonTimeout,
		},
		"ForbidsTheList": {
			bad: func(t *testing.T, cp *mctest.ControlPlane) (*rest.Config, func(*manager, *corev1.Secret)) {
				t.Helper()
				return cp.AddUser(t, "no-rights"), func(*manager, *corev1.Secret) { allowConfigMaps(t, cp, "no-rights") }
			},
			state: fleet.Ready, reason: fleet.ReasonNotSynced,
		},
		"WrongCertificate": {
			bad: func(t *testing.T, cp *mctest.ControlPlane) (*rest.Config, func(*manager, *corev1.Secret)) {
				t.Helper()
				right, wrong := cp.Config(), cp.Config()
				wrong.CAData = otherCA(t)
				return wrong, func(m *manager, secret *corev1.Secret) { m.rejoin(secret, right) }
			},
			state: fleet.Connecting, reason: fleet.ReasonCertificate,
		},
		"Silent": {
			bad: func(t *testing.T, cp *mctest.ControlPlane) (*rest.Config, func(*manager, *corev1.Secret)) {
				t.Helper()
				right, silent := cp.Config(), cp.Config()
				silent.Host = "https://" + mctest.Silent(t)
				return silent, func(m *manager, secret *corev1.Secret) { m.rejoin(secret, right) }
			},
			state: fleet.Connecting, reason: fleet.ReasonTimeout,
		},
		"UnknownUser": {
			bad: func(t *testing.T, cp *mctest.ControlPlane) (*rest.Config, func(*manager, *corev1.Secret)) {
				t.Helper()
				right, unknown := cp.Config(), rest.AnonymousClientConfig(cp.Config())
				unknown.BearerToken = "of-nobody"
				return unknown, func(m *manager, secret *corev1.Secret) { m.rejoin(secret, right) }
			},
			state: fleet.Connecting, reason: fleet.ReasonUnauthorized,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := pool.Start(t, mctest.Options{Clusters: 3})
			secrets := f.Local.CreateNamespace(t)
			m := newManagerWith(t, f.Local, secrets, kubeconfig.Provider{Namespace: secrets}, func(*mcmanager.Options) {},
				func(o *fleet.Options) { o.ConnectTimeout = 3 * time.Second }) // two cases wait for it
			seen := newRecord()
			m.control(seen)
			bad, healthy := f.Members[0], f.Members[1:]
			ns := inAll(t, f)
			cfg, repair := tc.bad(t, bad)

			m.start()
			secret := m.join("bad", cfg)
			eventually(t, "the bad member was tried", func() bool { return m.status("bad").State != "" })
			for i := range healthyMembers {
				m.join(fmt.Sprintf("healthy-%d", i), healthy[i%len(healthy)].Config())
			}
			for i := range healthyMembers {
				name := mcreconcile.ClusterName(fmt.Sprintf("healthy-%d", i))
				eventually(t, string(name)+" is reconciled", func() bool { return seen.count(name, ns, "a") > 0 })
			}
			eventually(t, "the status of the bad member says why", func() bool {
				status := m.status("bad")
				return status.State == tc.state && status.Reason == tc.reason && status.Message != ""
			})
			if n := seen.total("bad"); n > 0 {
				t.Errorf("%d reconciles of a member that does not work", n)
			}
			m.mustRun()

			repair(m, secret)
			eventually(t, "the repaired member is reconciled", func() bool { return seen.count("bad", ns, "a") > 0 })
			eventually(t, "the repaired member has nothing to complain about", func() bool {
				status := m.status("bad")
				return status.State == fleet.Ready && status.Reason == ""
			})
		})
	}
}

// inAll creates a namespace and in it the ConfigMap "a" in every member, and returns the namespace.
func inAll(t *testing.T, f *mctest.Fleet) (namespace string) {
	t.Helper()
	namespace = f.Members[0].CreateNamespace(t)
	for _, cp := range f.Members {
		ns := &corev1.Namespace{}
		ns.Name = namespace
		if err := cp.Client().Create(t.Context(), ns); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
		configMap(t, cp, namespace, "a")
	}
	return namespace
}

func allowConfigMaps(t *testing.T, cp *mctest.ControlPlane, user string) {
	t.Helper()
	role := &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"},
	}}}
	role.Name = "late-" + user
	binding := &rbacv1.ClusterRoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	binding.Name = role.Name
	for _, obj := range []client.Object{role, binding} {
		if err := cp.Client().Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
}

// otherCA is the certificate of an authority that has signed nothing.
func otherCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "another authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
