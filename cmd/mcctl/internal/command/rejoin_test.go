package command_test

import (
	"testing"

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
		s.changesNothing(t, "mcctl leave east --namespace default", append(again, more)...)
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
