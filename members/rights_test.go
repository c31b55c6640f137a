package members_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// TestTheRightsOfTheDocsSuffice, in the namespace of the Members alone.
func TestTheRightsOfTheDocsSuffice(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1)
	role := &rbacv1.Role{Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"fleet.fleet-runtime.dev"}, Resources: []string{"members"}, Verbs: []string{"list", "watch", "create", "patch", "delete"}},
		{APIGroups: []string{"fleet.fleet-runtime.dev"}, Resources: []string{"members/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "patch"}},
	}}
	role.Namespace, role.Name = s.ns, "members"
	binding := &rbacv1.RoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "manager"}},
	}
	binding.Namespace, binding.Name = s.ns, "members"
	for _, create := range []func() error{
		func() error { return s.client.Create(t.Context(), role) },
		func() error { return s.client.Create(t.Context(), binding) },
	} {
		if err := create(); err != nil {
			t.Fatal(err)
		}
	}
	m := s.newManager(s.Local.AddUser(t, "manager"))
	m.set(fleet.Member{Name: "east", Config: s.Members[0].Config(), Labels: map[string]string{"a": "b"}})
	m.start()
	got := s.is("east", fleet.Ready)
	s.say("east", paused)
	s.becomesPaused("east")
	if err := s.client.Delete(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	s.is("east", fleet.Ready)
	<-m.Remove("east")
	s.eventually("the Member is gone", func() bool { return s.get("east") == nil })
	s.eventually("the writer's Lease is there", s.hasLease)
}
