// Package accesstest lets clusters of tests join a hub by ClusterAccesses, as an operator would.
package accesstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// What a member has once it has joined.
const (
	// Namespace is that of the accounts in the member.
	Namespace = "fleet-access"
	// Minter is the account in the member that makes tokens.
	Minter = "minter"
	// Worker is the account in the member that they are for.
	Worker = "worker"
	// WorkerUser is the user that a member with a minter takes the tokens for.
	WorkerUser = "system:serviceaccount:" + Namespace + ":" + Worker
	// Operator is an account of the hub.
	Operator = "operator"
	// Prefix is what federated members put before the names of the hub's users.
	Prefix = "hub:"
)

// Must ends the test if there is an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Options returns those of a fleet whose clusters have the CRDs.
func Options(t *testing.T, members int) mctest.Options {
	t.Helper()
	scheme := runtime.NewScheme()
	Must(t, clientgoscheme.AddToScheme(scheme))
	Must(t, v1alpha1.AddToScheme(scheme))
	o := mctest.Options{Clusters: members, Scheme: scheme}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(v1alpha1.CRDs()), 1000)
	for range 2 {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		Must(t, decoder.Decode(crd))
		o.CRDs = append(o.CRDs, crd)
	}
	return o
}

// Mint lets a member join by a minter that may do nothing else.
func Mint(t *testing.T, hub, member *mctest.ControlPlane, namespace, name string) *v1alpha1.ClusterAccess {
	t.Helper()
	a := New(member, namespace, name)
	a.Spec.Minter = &v1alpha1.Minter{SecretName: name + "-minter", ServiceAccountNamespace: Namespace, ServiceAccountName: Worker}
	Grant(t, member, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: Namespace, Name: Worker}, WorkerRules()...)
	Create(t, member, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}})
	for _, account := range []string{Minter, Worker} {
		Create(t, member, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: account}})
	}
	meta := metav1.ObjectMeta{Namespace: Namespace, Name: Minter}
	Create(t, member, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{Minter, Worker}, Verbs: []string{"create"},
	}}})
	Create(t, member, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: Minter},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: Namespace, Name: Minter}},
	})
	Create(t, hub, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: a.Spec.Minter.SecretName}, Data: map[string][]byte{
		v1alpha1.MinterToken: []byte(Token(t, member, Namespace, Minter, 600)), v1alpha1.MinterServer: []byte(a.Spec.Server),
		v1alpha1.MinterCA: a.Spec.CABundle, v1alpha1.MinterNamespace: []byte(Namespace), v1alpha1.MinterServiceAccount: []byte(Minter),
	}})
	Create(t, hub, a)
	return a
}

// Token makes a token of an account, as an administrator.
func Token(t *testing.T, cp *mctest.ControlPlane, namespace, account string, seconds int64) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	Must(t, cp.Client().SubResource("token").Create(t.Context(), of, request))
	return request.Status.Token
}

// Federate lets a member join by trusting the hub's account [Operator] of the namespace. Both API servers are started again for
// that: the member's with what it trusts, and the hub's since it would lead members to its keys at an address of this machine
// where it does not listen.
func Federate(t *testing.T, hub, member *mctest.ControlPlane, namespace, name, audience string) *v1alpha1.ClusterAccess {
	t.Helper()
	a := New(member, namespace, name)
	a.Spec.Federated = &v1alpha1.Federated{ServiceAccountName: Operator}
	Create(t, hub, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: Operator}})
	OpenDiscovery(t, hub)
	user := "system:serviceaccount:" + namespace + ":" + Operator
	Grant(t, member, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: Prefix + user}, WorkerRules()...)
	hub.RestartWith(t, "--service-account-jwks-uri="+Issuer(hub)+"openid/v1/jwks")
	Trust(t, member, hub, user, audience)
	Create(t, hub, a)
	return a
}

// Trust starts the member's API server such that it takes the hub's tokens of a user for an audience.
func Trust(t *testing.T, member, hub *mctest.ControlPlane, user, audience string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	Must(t, os.WriteFile(file, []byte(AuthenticationConfiguration(hub, user, audience)), 0o600))
	member.RestartWith(t, "--authentication-config="+file)
}

// AuthenticationConfiguration returns the file by which an API server takes the hub's tokens of one user.
func AuthenticationConfiguration(hub *mctest.ControlPlane, user, audience string) string {
	return `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: ` + Issuer(hub) + `
    audiences: ["` + audience + `"]
    certificateAuthority: |
` + indent(string(hub.Config().CAData), "      ") + `
  claimValidationRules:
  - expression: claims.sub == "` + user + `"
    message: this account is not trusted
  claimMappings:
    username: {claim: sub, prefix: "` + Prefix + `"}
`
}

func indent(text, by string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return by + strings.Join(lines, "\n"+by)
}

// Issuer is what an API server calls itself in its tokens.
func Issuer(cp *mctest.ControlPlane) string { return strings.TrimSuffix(cp.Config().Host, "/") + "/" }

// OpenDiscovery lets everybody read which issuer a cluster is, and its public keys.
func OpenDiscovery(t *testing.T, cp *mctest.ControlPlane) {
	t.Helper()
	Create(t, cp, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "open-issuer-discovery"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:service-account-issuer-discovery"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:unauthenticated"}},
	})
}

// New returns an access that leads to a member, without a mode.
func New(member *mctest.ControlPlane, namespace, name string) *v1alpha1.ClusterAccess {
	cfg := member.Config()
	return &v1alpha1.ClusterAccess{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ClusterAccessSpec{Server: cfg.Host, CABundle: cfg.CAData},
	}
}

// WorkerRules are what tests do in members.
func WorkerRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{metav1.NamespaceSystem}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
	}
}

// Grant gives somebody rights in the whole cluster.
func Grant(t *testing.T, cp *mctest.ControlPlane, to rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "granted-to-" + strings.NewReplacer(":", "-", "/", "-").Replace(to.Name)}
	Create(t, cp, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules})
	Create(t, cp, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}, Subjects: []rbacv1.Subject{to},
	})
}

// Create creates an object, unless there is one of the name.
func Create(t *testing.T, cp *mctest.ControlPlane, obj client.Object) {
	t.Helper()
	if err := cp.Client().Create(t.Context(), obj); !apierrors.IsAlreadyExists(err) {
		Must(t, err)
	}
}
