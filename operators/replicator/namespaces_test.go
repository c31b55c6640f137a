package main

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// TestReplicatorsCreateNamespaces where they may, and delete only what they have created, also if that has another tenant's objects.
func TestReplicatorsCreateNamespaces(t *testing.T) {
	t.Parallel()
	w := prepare(t, 1)
	w.run()
	east := w.Members[0]
	stage.Apply(t, east, "config/member.yaml")
	stage.Apply(t, east, "config/tenant.yaml")
	stage.Join(t, w.Local, "east", memberKubeconfig(t, east), nil)
	create(t, east, namespace("theirs"))
	before := map[string]string{}
	for _, name := range []string{"kube-system", "theirs"} {
		before[name] = get(t, east, namespace(name)).ResourceVersion
	}
	in := func(namespace string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "replicated"}}
	}
	making := replicator("making", []string{"east"}, in(tenant), in("kube-system"), in("theirs"), in("made"), in("shared"))
	making.Spec.CreateNamespace = true
	create(t, w.Local, making)
	isThere(t, east, in(tenant))
	w.condition("making", v1alpha1.ConditionSynced, "Failed", "cannot create resource \"namespaces\"")
	for _, name := range []string{"made", "shared"} {
		if get(t, east, namespace(name)) != nil {
			t.Errorf("%s was created without the right to do so", name)
		}
	}

	stage.Apply(t, east, "config/namespaces.yaml")
	otherTenant(t, east, "team-b")
	create(t, w.Local, namespace("team-b"))
	other := replicator("other", []string{"east"}, in("shared"))
	other.Namespace, other.Spec.CreateNamespace = "team-b", true
	other.Spec.Manifests[0] = raw(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"of-team-b","namespace":"shared"}}`)
	create(t, w.Local, other)
	ofOther := in("shared")
	ofOther.Name = "of-team-b"
	isThere(t, east, ofOther)
	w.synced("making")
	w.end("making")
	goes(t, east, "made")
	for name, version := range before {
		if now := get(t, east, namespace(name)); now == nil || now.ResourceVersion != version {
			t.Errorf("%s, which was there before, was %s and is now %+v", name, version, now)
		}
		if get(t, east, in(name)) != nil {
			t.Errorf("the ConfigMap in %s is left", name)
		}
	}
	if now := get(t, east, namespace("shared")); now == nil || now.DeletionTimestamp != nil || get(t, east, ofOther) == nil {
		t.Errorf("what another tenant has a ConfigMap in is %+v", now)
	}
	remove(t, w.Local, other)
	isGone(t, w.Local, other)
	goes(t, east, "shared")
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// goes waits until a namespace is being deleted: no controller of namespaces runs.
func goes(t *testing.T, cp *mctest.ControlPlane, name string) {
	t.Helper()
	stage.Soon(t, name+" is being deleted", func() bool {
		now := get(t, cp, namespace(name))
		return now == nil || now.DeletionTimestamp != nil
	})
}

// memberKubeconfig returns one of the account in config/member.yaml.
func memberKubeconfig(t *testing.T, cp *mctest.ControlPlane) []byte {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "replicator-member"}}
	token := &authenticationv1.TokenRequest{}
	must(t, cp.Client().SubResource("token").Create(t.Context(), account, token))
	config := rest.AnonymousClientConfig(cp.Config())
	config.BearerToken = token.Status.Token
	kubeconfig, err := mctest.Kubeconfig(config)
	must(t, err)
	return kubeconfig
}

// otherTenant gives another namespace of the hub what the manifests give team-a.
func otherTenant(t *testing.T, cp *mctest.ControlPlane, name string) {
	t.Helper()
	user := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "fleet-runtime:replicator:" + name}
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "fleet", Name: "replicator-member"}
	impersonates := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "impersonates-" + name}}
	impersonates.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"users"}, ResourceNames: []string{user.Name}, Verbs: []string{"impersonate"}}}
	bind := func(role string, to rbacv1.Subject) client.Object {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role + "-" + name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{to},
		}
	}
	create(t, cp, impersonates, bind(impersonates.Name, account), bind("fleet-replicator-namespaces", user), bind("fleet-replicator-tenant", user))
}
