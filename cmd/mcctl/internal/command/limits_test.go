package command_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

func TestLeaveOfACallerThatOnlyReadsTheHubChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.addUser(t, s.Local, "reader", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}})
	before := s.madeByMcctl(t)
	for _, more := range [][]string{nil, {"--dependents=prune"}, {"--force"}} {
		r := s.run(t, append([]string{"leave", "east", "--user", s.Local.Name + "-reader", "--member-context", "member"}, more...)...)
		says := "delete clusteraccesses.access.fleet-runtime.dev east in default"
		if slices.Contains(more, "--force") {
			says = "ClusterAccess default/east in the hub"
		}
		if r.code != 1 || !strings.Contains(r.errOut, says) {
			t.Errorf("%v: %+v", more, r)
		}
		if after := s.madeByMcctl(t); !maps.Equal(before, after) {
			t.Errorf("%v: there were\n%v\nand then\n%v", more, before, after)
		}
	}
}

func TestAMemberIsNotHeldBackByACallerThatOnlyReadsTheHub(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.addMember(t, "east", wellAt("https://east.example.com"))
	s.addUser(t, s.Local, "reader", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}})
	asReader := []string{"--user", s.Local.Name + "-reader"}
	for _, verb := range []string{"pause", "drain"} {
		r := s.run(t, append([]string{verb, "east", "--reason", "a test"}, asReader...)...)
		if r.code != 1 || !strings.Contains(r.errOut, "change Member default/east in the hub") || !strings.Contains(r.errOut, "forbidden") {
			t.Errorf("%s: %+v", verb, r)
		}
		m := &membersv1alpha1.Member{}
		if err := s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "east"}, m); err != nil || m.Spec.Paused || m.Spec.Drained || m.Spec.Reason != "" {
			t.Errorf("%s: the spec is %+v, %v", verb, m.Spec, err)
		}
	}
	// rbac writes to the member alone, and reads the hub.
	if r := s.run(t, append([]string{"rbac", "east", "--member-context", "member", "--rules", rules(t)}, asReader...)...); r.code != 0 {
		t.Errorf("rbac: %+v", r)
	}
}

func TestAFederatedMemberMayHaveTheLongestNameThatAnObjectMayHave(t *testing.T) {
	t.Parallel()
	at := kubeconfigOf(t, "https://member.example.com", "")
	for length, code := range map[int]int{247: 0, 253: 0, 254: 2} {
		r := run(t.Context(), "join", strings.Repeat("n", length), "--kubeconfig", at, "--member-kubeconfig", at, "--member-context", "member", "--rules", rules(t),
			"--federated", "operator", "--dry-run=client")
		if r.code != code {
			t.Errorf("of %d characters: exit code %d, want %d: %s", length, r.code, code, r.errOut)
		}
	}
}

func TestAMemberOfTheLongestNameAndTheLargestAnnotationsJoinsAndLeaves(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	name := strings.Repeat("n", 253-len("-minter"))
	join := []string{"join", name, "--member-context", "member", "--rules", rules(t), "--advertise-server", s.Members[0].Config().Host}
	if r := s.run(t, join...); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	access := &accessv1alpha1.ClusterAccess{}
	if err := s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, access); err != nil {
		t.Fatal(err)
	}
	access.Annotations["example.com/note"] = strings.Repeat("x", 200_000)
	if err := s.Local.Client().Update(t.Context(), access); err != nil {
		t.Fatal(err)
	}
	before := s.madeByMcctl(t)
	if r := s.run(t, join...); r.code != 0 {
		t.Errorf("join again: %+v", r)
	}
	if after := s.madeByMcctl(t); !maps.Equal(before, after) {
		t.Errorf("joining again wrote: there were\n%v\nand then\n%v", before, after)
	}
	for _, args := range [][]string{{"list"}, {"check", name, "--rules", rules(t)}} {
		if r := s.run(t, args...); r.code != 0 || strings.Contains(r.out+r.errOut, "xxxx") {
			t.Errorf("%s: exit code %d, %.300s", args[0], r.code, r.out+r.errOut)
		}
	}
	if r := s.run(t, "leave", name, "--member-context", "member"); r.code != 0 {
		t.Errorf("leave: %.300s", r.errOut)
	}
	if left := s.madeByMcctl(t); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
}
