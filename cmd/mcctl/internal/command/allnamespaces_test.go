package command_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// TestAMemberOfAProviderOfAllNamespacesHasItsClusterAccess: the provider calls it by the namespace of that too, and Members are elsewhere.
func TestAMemberOfAProviderOfAllNamespacesHasItsClusterAccess(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const name = "kube-public/east"
	member := []string{"--member-context", "member"}
	if r := s.join(t, "--namespace", "kube-public"); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.addMember(t, name, wellAt(s.Members[0].Config().Host))
	elsewhere := wellAt("https://north.example.com")
	elsewhere.Identity = string(systemNamespace(t, s.Members[0].Client()).UID)
	s.addMember(t, "team/north", elsewhere)
	s.addMember(t, "a/name/of-others", wellAt("https://others.example.com"))
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"describe", name}, 0, "by the ClusterAccess kube-public/east, at "},
		{[]string{"describe", "team/north"}, 0, "by another provider"},
		{[]string{"describe", "east", "--namespace", "kube-public"}, 3, "calls it kube-public/east"},
		{[]string{"check", name, "--rules", rules(t)}, 0, "all 3 are there"},
		{[]string{"token", name}, 0, "ExecCredential"},
		{[]string{"token", "team/north"}, 1, "its credentials come from elsewhere"},
		{append(member, "rbac", name, "--rules", rules(t)), 0, "ClusterRole checksums: unchanged"},
		{append(member, "rbac", "team/north", "--rules", rules(t), "--service-account", "fleet-system/fleet"), 1, "was made for the member kube-public/east"},
		{append(member, "rbac", "a/name/of-others", "--rules", rules(t), "--service-account", "fleet-system/fleet"), 1, "nobody has noted which cluster"},
		{[]string{"pause", name}, 0, "changed"},
		{[]string{"pause", "east", "--namespace", "kube-public"}, 1, "calls it kube-public/east"},
		{[]string{"federate", name, "--member-context", "member", "--service-account", "operator"}, 2, "--namespace"},
		{append(member, "leave", name, "--dependents=prune"), 1, "mcctl resume " + name + " --namespace default"},
		{append(member, "leave", "a/name/of-others"), 1, "nothing to undo"},
		{append(member, "leave", name), 0, "hub: Secret kube-public/east-minter: deleted"},
	} {
		if r := s.run(t, c.args...); r.code != c.code || !strings.Contains(r.out+r.errOut, c.says) {
			t.Errorf("%v: %q is not in %+v", c.args, c.says, r)
		}
	}
	if left := s.madeByMcctl(t); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
}

func TestACallerWhoseRightsAreOfOneNamespaceSeesMembersOfOtherProviders(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addMember(t, "team/north", wellAt("https://north.example.com"))
	s.addUser(t, s.Local, "members", rbacv1.PolicyRule{APIGroups: []string{membersv1alpha1.GroupVersion().Group}, Resources: []string{"*"}, Verbs: []string{"get"}})
	if r := s.run(t, "describe", "team/north", "--user", s.Local.Name+"-members"); r.code != 0 {
		t.Errorf("%+v", r)
	}
}

// TestACallerWhoseRightsAreOfOneNamespaceGivesThoseThatItHas: it reads no ClusterAccess, and writes neither namespaces nor accounts.
func TestACallerWhoseRightsAreOfOneNamespaceGivesThoseThatItHas(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t, "--namespace", "kube-public"); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	well := wellAt(s.Members[0].Config().Host)
	well.Identity = string(systemNamespace(t, s.Members[0].Client()).UID)
	s.addMember(t, "kube-public/east", well)
	see := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}}
	s.addUser(t, s.Local, "narrow", see, rbacv1.PolicyRule{APIGroups: []string{membersv1alpha1.GroupVersion().Group}, Resources: []string{"*"}, Verbs: []string{"get"}})
	see.Resources, see.ResourceNames = append(see.Resources, "serviceaccounts"), append(see.ResourceNames, "fleet-system", "fleet")
	s.addUser(t, s.Members[0], "narrow", see)
	s.create(t, &corev1.Namespace{ObjectMeta: named("team")},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "own"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}, Verbs: []string{"get"}}, // its own
			{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"}, Verbs: []string{"get", "create", "patch"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "own"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "own"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "narrow"}},
		},
	)
	role := strings.NewReplacer("ClusterRole", "Role", "name: checksums", "namespace: team, name: checksums").Replace(roleDocument)
	rbac := func(role string) result {
		return s.run(t, "rbac", "kube-public/east", "--user", s.Local.Name+"-narrow", "--member-context", "member", "--member-user", "member-1-narrow",
			"--service-account", "fleet-system/fleet", "--rules", write(t, role))
	}
	if r := rbac(strings.Replace(role, "configmaps", "secrets", 1)); r.code != 1 || !strings.Contains(r.errOut, "get secrets in team") {
		t.Errorf("rights that the caller has not: %+v", r)
	}
	eventually(t, "the caller gives what it has", func() bool { return rbac(role).code == 0 })
	if r := rbac(role); r.code != 0 || !strings.Contains(r.errOut, "RoleBinding team/checksums: unchanged") || !strings.Contains(r.errOut, "ServiceAccount fleet-system/fleet: unchanged") {
		t.Errorf("once more: %+v", r)
	}
	if r := rbac(strings.Replace(role, "team", "other", 1)); r.code != 1 || !strings.Contains(r.errOut, "create namespaces") {
		t.Errorf("in another namespace: %+v", r)
	}
}
