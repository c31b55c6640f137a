package command_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// TestNothingThatStrangersHaveWrittenMovesTheCursor: titles of terminals and answers to them could be set that way.
func TestNothingThatStrangersHaveWrittenMovesTheCursor(t *testing.T) {
	t.Parallel()
	const evil = "a\x1b]0;b\a\x1b[2J\u202ec\rd"
	s := newStage(t)
	s.addMember(t, "east", membersv1alpha1.Status{
		State: "Unreachable", Reason: "Refused", Message: evil, Identity: evil, Server: evil, Version: evil, Duplicates: []string{evil}, Replica: evil,
		NotSynced: []membersv1alpha1.NotSynced{{Kind: evil, Reason: "Forbidden", Message: evil}},
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionFalse, Reason: "Refused", Message: evil, LastTransitionTime: metav1.Now(),
		}},
	})
	m := &membersv1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "east"}}
	patch := client.MergeFrom(m.DeepCopy())
	m.Spec.Paused, m.Spec.Reason = true, evil
	if err := s.Local.Client().Patch(t.Context(), m, patch); err != nil {
		t.Fatal(err)
	}
	access := &accessv1alpha1.ClusterAccess{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "east"},
		Spec: accessv1alpha1.ClusterAccessSpec{
			Server: "https://east.example.com", Federated: &accessv1alpha1.Federated{ServiceAccountName: "operator"},
		},
	}
	if err := s.Local.Client().Create(t.Context(), access); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"describe", "east"}, {"list"}, {"list", "-o", "wide"}, {"check", "east", "--rules", rules(t)}, {"shards"}} {
		if r := s.run(t, args...); strings.ContainsAny(r.out+r.errOut, "\x1b\a\r\u202e") {
			t.Errorf("mcctl %s shows it:\n%q", strings.Join(args, " "), r.out+r.errOut)
		}
	}
}
