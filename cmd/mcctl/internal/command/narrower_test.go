package command_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// narrowUser adds a user to the member that may write accounts and roles, and has the rules itself.
func (s *stage) narrowUser(t *testing.T, name string, has ...rbacv1.PolicyRule) {
	t.Helper()
	write := []string{"get", "list", "create", "patch"}
	s.addUser(t, s.Members[0], name, append(has,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces", "serviceaccounts"}, Verbs: write},
		rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"*"}, Verbs: write},
	)...)
}

func TestABindingIsJudgedByTheRulesThatItsRoleGets(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.joinBy(t, strings.Replace(roleDocument, "[configmaps]", "[configmaps, secrets]", 1)); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.narrowUser(t, "narrow", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}})
	narrower := write(t, roleDocument+"---\n"+fmt.Sprintf(bindingDocument, "ClusterRoleBinding", "checksums", "fleet-system")+
		"- {kind: Group, name: onlookers, apiGroup: rbac.authorization.k8s.io}\n")
	rbac := func(more ...string) result {
		t.Helper()
		return s.run(t, append([]string{"rbac", "east", "--member-context", "member", "--member-user", "member-1-narrow", "--rules", narrower}, more...)...)
	}
	r := rbac("--dry-run=server")
	if r.code != 0 || !strings.Contains(r.errOut, "ClusterRole checksums: changed") || !strings.Contains(r.errOut, "ClusterRoleBinding checksums: changed") {
		t.Errorf("a dry run: %+v", r)
	}
	// The member may judge the binding before it has seen the role.
	eventually(t, "the rights are given", func() bool { return rbac().code == 0 })
}

func TestARoleThatIsThereTakesItsRightsWhereItIsBoundAlone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	get := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}
	s.create(t, &rbacv1.ClusterRole{ObjectMeta: named("checksums"), Rules: []rbacv1.PolicyRule{get}})
	if r := s.joinBy(t, strings.Replace(roleDocument, "name: checksums", "name: more", 1)); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.narrowUser(t, "narrow")
	s.create(t,
		&corev1.Namespace{ObjectMeta: named("team")}, &corev1.Namespace{ObjectMeta: named("other")},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "own"}, Rules: []rbacv1.PolicyRule{get}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "own"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "own"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "narrow"}},
		},
	)
	// rbac gives the role in a namespace, as the user.
	rbac := func(role, namespace string) result {
		binding := strings.Replace(fmt.Sprintf(bindingDocument, "RoleBinding", "checksums", "fleet-system"), "{name:", "{namespace: "+namespace+", name:", 1)
		return s.run(t, "rbac", "east", "--member-context", "member", "--member-user", "member-1-narrow", "--rules", write(t, role+"---\n"+binding))
	}
	eventually(t, "the user may give the role in the namespace of its own", func() bool { return rbac(roleDocument, "team").code == 0 })
	if r := rbac(roleDocument, "team"); r.code != 0 || !strings.Contains(r.errOut, "RoleBinding team/checksums: unchanged") {
		t.Errorf("once more: %+v", r)
	}
	if r := rbac(roleDocument, "other"); r.code != 1 || !strings.Contains(r.errOut, "get configmaps in other") {
		t.Errorf("in another namespace: %+v", r)
	}
	if r := rbac(strings.Replace(roleDocument, "get", "list", 1), "team"); r.code != 1 || !strings.Contains(r.errOut, "list configmaps\n") {
		t.Errorf("with other rules: %+v", r)
	}
}

func TestABindingThatIsRefusedForMoreThanItsRightsLeavesItsRoleAsItIs(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.joinBy(t, roleDocument); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	ends := &corev1.Namespace{ObjectMeta: named("ends")}
	s.create(t, ends)
	if err := s.Members[0].Client().Delete(t.Context(), ends); err != nil {
		t.Fatal(err)
	}
	binding := strings.Replace(fmt.Sprintf(bindingDocument, "RoleBinding", "checksums", "fleet-system"), "{name:", "{namespace: ends, name:", 1)
	changed := strings.Replace(roleDocument, "[get]", "[list]", 1)
	s.changesNothing(t, "because it is being terminated", "rbac", "east", "--member-context", "member", "--rules", write(t, changed+"---\n"+binding))
}
