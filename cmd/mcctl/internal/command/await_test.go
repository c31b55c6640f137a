package command_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

func TestJoinDoesNotTakeAnOldReadyForTheNewOne(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const elsewhere = "https://elsewhere.example.com:6443"
	server := strings.TrimRight(s.Members[0].Config().Host, "/")
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	found := func() {
		t.Helper()
		a := s.access(t)
		ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "AsExpected", ObservedGeneration: a.Generation}
		meta.SetStatusCondition(&a.Status.Conditions, ready)
		if err := s.Local.Client().Status().Update(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	join := func(want int, says string, args ...string) {
		t.Helper()
		if r := s.join(t, args...); r.code != want || !strings.Contains(r.errOut, says) {
			t.Errorf("%v: %+v, want the code %d and %q", args, r, want, says)
		}
	}
	found()
	join(0, "east is Ready", "--wait", "1m")
	join(3, "no manager has tried the ClusterAccess as it is now", "--advertise-server", elsewhere, "--wait", "2s")
	found()
	s.addMember(t, "east", membersv1alpha1.Status{Server: server, Conditions: []metav1.Condition{
		{Type: "Ready", Status: metav1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: metav1.Now()},
	}})
	join(3, "not yet at "+elsewhere, "--advertise-server", elsewhere, "--wait", "2s")
	join(3, "no manager has tried", "--wait", "2s")
	found()
	join(0, "east is Ready", "--wait", "1m")
}
