package command_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestRightsAreGivenToThoseAsWhichTheControllersCome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		joins   []string
		subject rbacv1.Subject
	}{
		"minted": {
			[]string{"--service-account", "team/worker"},
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "team", Name: "worker"},
		},
		"federated": {
			[]string{"--federated", "operator"},
			rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "hub:system:serviceaccount:default:operator"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			if r := s.join(t, c.joins...); r.code != 0 {
				t.Fatalf("join: %+v", r)
			}
			more := write(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: more}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [list]}
`)
			if r := s.run(t, "rbac", "east", "--member-context", "member", "--rules", more); r.code != 0 {
				t.Fatalf("rbac: %+v", r)
			}
			binding := &rbacv1.ClusterRoleBinding{}
			if err := s.Members[0].Client().Get(t.Context(), client.ObjectKey{Name: "more"}, binding); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(binding.Subjects, []rbacv1.Subject{c.subject}) {
				t.Errorf("the rights are given to %+v, want %+v", binding.Subjects, c.subject)
			}
			if err := s.Members[0].Client().Get(t.Context(), client.ObjectKey{Name: "fleet-system"}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
				t.Errorf("the namespace of an account that nobody has asked for: %v", err)
			}
		})
	}
}

func TestACallerThatMayNotGiveRightsIsToldWhichAndWritesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.addUser(t, s.Members[0], "reader", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}})
	s.addUser(t, s.Members[0], "writer", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "create", "patch"}})
	more := write(t, strings.NewReplacer("checksums", "more", "get", "watch").Replace(roleDocument))
	before := s.madeByMcctl(t)
	for user, says := range map[string]string{"reader": "create clusterroles.rbac.authorization.k8s.io", "writer": "watch configmaps"} {
		r := s.run(t, "rbac", "east", "--member-context", "member", "--member-user", "member-1-"+user, "--rules", more)
		if r.code != 1 || !strings.Contains(r.errOut, says) || !strings.Contains(r.errOut, "nothing was written") {
			t.Errorf("as the %s: %+v", user, r)
		}
		if after := s.madeByMcctl(t); !maps.Equal(before, after) {
			t.Errorf("as the %s: there were\n%v\nand then\n%v", user, before, after)
		}
	}
}
