package command_test

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// addMember plays the manager that writes a Member.
func (s *stage) addMember(t *testing.T, name string, status membersv1alpha1.Status) {
	t.Helper()
	m := &membersv1alpha1.Member{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: membersv1alpha1.ObjectName(name), Labels: map[string]string{"name": strings.ReplaceAll(name, "/", "-")}},
		Spec:       membersv1alpha1.Spec{ClusterName: name},
	}
	if err := s.Local.Client().Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	m.Status = status
	if err := s.Local.Client().Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func (s *stage) addLease(t *testing.T, name string, renewed time.Time) {
	t.Helper()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(name), LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(renewed)),
		},
	}
	if err := s.Local.Client().Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}

// wellAt is the status of a member that is Ready.
func wellAt(server string) membersv1alpha1.Status {
	return membersv1alpha1.Status{
		State: "Ready", Since: metav1.Now(), Version: "v1.37.1", Server: server,
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.Now()}},
	}
}

// world is a hub whose managers have written Members: two that are well, one of a manager that is gone, and one that is refused.
func world(t *testing.T) *stage {
	t.Helper()
	s := newStage(t)
	s.addLease(t, "alive", time.Now().Add(time.Hour))
	s.addLease(t, "dead", time.Now().Add(-time.Hour))
	well := wellAt("https://east.example.com")
	well.Replica, well.Lease = "alive", &membersv1alpha1.Lease{Namespace: "default", Name: "alive"}
	s.addMember(t, "east", well)
	s.addMember(t, "team/north", well)
	gone := well
	gone.Replica, gone.Lease = "dead", &membersv1alpha1.Lease{Namespace: "default", Name: "dead"}
	gone.Expires = metav1.NewTime(time.Now().Add(-time.Hour))
	s.addMember(t, "south", gone)
	refused := well
	refused.State, refused.Reason, refused.Message = "Unreachable", "Refused", "connection refused"
	refused.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Refused", LastTransitionTime: metav1.Now()}}
	s.addMember(t, "west", refused)
	return s
}

func TestMembersAreShownAsTheirManagersSeeThem(t *testing.T) {
	t.Parallel()
	s := world(t)
	t.Run("list", func(t *testing.T) {
		r := s.run(t, "list")
		lines := fields(r.out)
		for name, starts := range map[string]string{"east": "Ready", "team/north": "Ready", "south": "STALE WriterGone", "west": "Unreachable Refused"} {
			if !strings.HasPrefix(lines[name], starts) {
				t.Errorf("%s is %q, want %q", name, lines[name], starts)
			}
		}
		if r.code != 0 || len(lines) != 5 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("list by label and format", func(t *testing.T) {
		if r := s.run(t, "list", "-l", "name=west", "-o", "jsonpath={.items[*].status.reason}"); r.code != 0 || r.out != "Refused" {
			t.Errorf("%+v", r)
		}
		if r := s.run(t, "list", "-l", "name=west", "-o", "wide"); r.code != 0 || !strings.Contains(r.out, "connection refused") {
			t.Errorf("%+v", r)
		}
		if r := s.run(t, "list", "-o", "nonsense"); r.code != 2 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("describe", func(t *testing.T) {
		if r := s.run(t, "describe", "east"); r.code != 0 || strings.Contains(r.out, "Do this") {
			t.Errorf("east: %+v", r)
		}
		if r := s.run(t, "describe", "west"); r.code != 3 || !strings.Contains(r.out, "Do this:") || !strings.Contains(r.out, "API server runs") {
			t.Errorf("west: %+v", r)
		}
		if r := s.run(t, "describe", "south"); r.code != 3 || !strings.Contains(r.out, "why the manager does not run") || strings.Contains(r.out, "renew them where") {
			t.Errorf("south: %+v", r)
		}
		if r := s.run(t, "describe", "nowhere"); r.code != 1 || !strings.Contains(r.errOut, "no member") {
			t.Errorf("nowhere: %+v", r)
		}
	})
	t.Run("shards", func(t *testing.T) {
		lines := fields(s.run(t, "shards").out)
		if lines["alive"] != "3 2 0 Live" || lines["dead"] != "1 1 0 STALE" {
			t.Errorf("%v", lines)
		}
	})
}

func TestListHasThoseThatHaveJoinedAndHaveNoMember(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addMember(t, "east", wellAt("https://east.example.com"))
	for _, name := range []string{"east", "west", "new"} {
		a := accessOf("federated", "")
		a.Namespace, a.Name, a.Labels = "default", name, map[string]string{"name": name}
		if err := s.Local.Client().Create(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if name == "west" {
			a.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "TokenRefused", LastTransitionTime: metav1.Now()}}
			if err := s.Local.Client().Status().Update(t.Context(), a); err != nil {
				t.Fatal(err)
			}
		}
	}
	lines := fields(s.run(t, "list").out)
	if len(lines) != 4 || !strings.HasPrefix(lines["east"], "Ready") || !strings.HasPrefix(lines["west"], "<none> TokenRefused") || !strings.HasPrefix(lines["new"], "<none> NoMember") {
		t.Errorf("it shows %q", lines)
	}
	if r := s.run(t, "list", "-o", "name"); r.out != "member.fleet.fleet-runtime.dev/east\nclusteraccess.access.fleet-runtime.dev/new\nclusteraccess.access.fleet-runtime.dev/west\n" {
		t.Errorf("by name: %+v", r)
	}
	if r := s.run(t, "list", "-o", "jsonpath={.items[*].spec.clusterName}"); r.out != "east" || !strings.Contains(r.errOut, ": new, west\n") {
		t.Errorf("as JSON: %+v", r)
	}
	if lines := fields(s.run(t, "list", "-l", "name=west").out); len(lines) != 2 {
		t.Errorf("by a label of one: %q", lines)
	}
}

func TestAMemberIsPausedAndDrainedByItsSpec(t *testing.T) {
	t.Parallel()
	s := world(t)
	spec := func() membersv1alpha1.Spec {
		t.Helper()
		m := &membersv1alpha1.Member{}
		if err := s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: membersv1alpha1.ObjectName("team/north")}, m); err != nil {
			t.Fatal(err)
		}
		return m.Spec
	}
	want := membersv1alpha1.Spec{ClusterName: "team/north"}
	for _, step := range []struct {
		args  []string
		says  string
		after membersv1alpha1.Spec
	}{
		{[]string{"pause", "team/north", "--reason", "an upgrade"}, "changed", membersv1alpha1.Spec{ClusterName: "team/north", Paused: true, Reason: "an upgrade"}},
		{[]string{"pause", "team/north"}, "unchanged", membersv1alpha1.Spec{ClusterName: "team/north", Paused: true, Reason: "an upgrade"}},
		{[]string{"resume", "team/north"}, "changed", want},
		{[]string{"drain", "team/north"}, "changed", membersv1alpha1.Spec{ClusterName: "team/north", Drained: true}},
		{[]string{"undrain", "team/north"}, "changed", want},
		{[]string{"drain", "team/north", "--leave", "--reason", "given up"}, "changed", membersv1alpha1.Spec{ClusterName: "team/north", Leave: true, Reason: "given up"}},
		{[]string{"undrain", "team/north"}, "changed", want},
		{[]string{"drain", "team/north", "--leave"}, "changed", membersv1alpha1.Spec{ClusterName: "team/north", Leave: true}},
		{[]string{"resume", "team/north"}, "changed", want},
		{[]string{"pause", "team/north"}, "changed", membersv1alpha1.Spec{ClusterName: "team/north", Paused: true}},
		{[]string{"drain", "team/north", "--reason", "moved"}, "changed", membersv1alpha1.Spec{ClusterName: "team/north", Paused: true, Drained: true, Reason: "moved"}},
		{[]string{"resume", "team/north"}, "changed", membersv1alpha1.Spec{ClusterName: "team/north", Drained: true, Reason: "moved"}},
		{[]string{"pause", "team/north"}, "changed", membersv1alpha1.Spec{ClusterName: "team/north", Paused: true, Drained: true, Reason: "moved"}},
		{[]string{"undrain", "team/north"}, "changed", membersv1alpha1.Spec{ClusterName: "team/north", Paused: true, Reason: "moved"}},
		{[]string{"resume", "team/north"}, "changed", want},
	} {
		r := s.run(t, step.args...)
		if got := spec(); r.code != 0 || !strings.HasSuffix(r.out, ": "+step.says+"\n") || got != step.after {
			t.Errorf("%v: %+v, and then %+v", step.args, r, got)
		}
	}
}

// fields returns the lines of a table by their first field.
func fields(table string) map[string]string {
	lines := map[string]string{}
	for line := range strings.Lines(table) {
		if found := strings.Fields(line); len(found) > 0 {
			lines[found[0]] = strings.Join(found[1:], " ")
		}
	}
	return lines
}
