package command_test

import (
	"maps"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

func TestAMemberJoinsAgainOnlyOnceItsClusterAccessIsGone(t *testing.T) {
	t.Parallel()
	s := newStageWithNamespace(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.leavingWith(t, objects.LeaveFinalizer)
	again := []string{"join", "east", "--member-context", "member", "--rules", rules(t), "--advertise-server", s.Members[0].Config().Host}
	for _, more := range []string{"--minted", "--federated=operator", "--dry-run=server"} {
		s.changesNothing(t, "mcctl leave east --namespace default", slices.Concat(again, []string{more})...)
	}
	a := s.access(t)
	a.Finalizers = nil
	if err := s.Local.Client().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if r := s.join(t); r.code != 0 || s.access(t).DeletionTimestamp != nil {
		t.Errorf("join, once it is gone: %+v", r)
	}
}

func TestANameIsFreeForAnotherClusterOnceTheFirstHasLeftWhole(t *testing.T) {
	t.Parallel()
	s := newStageOfThree(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	if err := s.Local.Client().Delete(t.Context(), s.access(t)); err != nil { // as by a leave that was interrupted then
		t.Fatal(err)
	}
	other := []string{"join", "east", "--rules", rules(t), "--advertise-server", s.Members[1].Config().Host}
	s.refusesOther(t, other...)
	s.refusesOther(t, append(other, "--federated", "operator")...)
	s.addUser(t, s.Local, "narrow", rbacv1.PolicyRule{APIGroups: []string{accessv1alpha1.GroupVersion().Group}, Resources: []string{"*"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}})
	before := s.madeByMcctl(t)
	if r := s.run(t, append(other, "--member-context", "other", "--federated", "operator", "--dry-run=server", "--user", "local-narrow")...); r.code != 0 {
		t.Errorf("join without a minter, by a caller that may not read Secrets: %+v", r)
	}
	if after := s.madeByMcctl(t); !maps.Equal(before, after) {
		t.Errorf("there were\n%v\nand then\n%v", before, after)
	}
	if r := s.run(t, "leave", "east", "--member-context", "member", "--dependents=keep"); r.code != 0 {
		t.Errorf("leave of the first: %+v", r)
	}
	if left := s.madeByMcctl(t); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
	if r := s.run(t, append(other, "--member-context", "other")...); r.code != 0 {
		t.Errorf("join of the other: %+v", r)
	}
}
