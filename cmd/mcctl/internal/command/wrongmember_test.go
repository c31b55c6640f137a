package command_test

import (
	"strings"
	"testing"
)

func TestAMemberThatOthersHaveAppliedIsNotTakenForAnotherMember(t *testing.T) {
	t.Parallel()
	const label = "    access.fleet-runtime.dev/member: east\n"
	for name, c := range map[string]struct {
		server func(own string) string
		labels string
	}{
		"where labels say which member it is":      {func(string) string { return "https://east.example.com" }, label},
		"where the server says which member it is": {func(own string) string { return own }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStageOfThree(t)
			printed := s.join(t, "--dry-run=client", "--advertise-server", c.server(s.Members[0].Config().Host))
			if printed.code != 0 || !strings.Contains(printed.out, label) {
				t.Fatalf("%+v", printed)
			}
			s.applyPrinted(t, strings.ReplaceAll(printed.out, label, c.labels))
			west := s.run(t, "join", "west", "--member-context", "other", "--rules", rules(t), "--advertise-server", s.Members[1].Config().Host)
			if west.code != 0 {
				t.Fatalf("join: %+v", west)
			}
			for _, says := range []string{"nothing was changed", "Name the context of the member", "annotate clusteraccess.access.fleet-runtime.dev east "} {
				s.changesNothing(t, says, "leave", "east", "--member-context", "other")
			}
			if r := s.run(t, "leave", "east", "--member-context", "other", "--member-insecure-skip-tls-verify"); r.code != 2 || !strings.Contains(r.errOut, "nothing was changed") {
				t.Errorf("leave where nobody checks who answers: %+v", r)
			}
			if r := s.run(t, "leave", "east", "--member-context", "member"); r.code != 0 || !strings.Contains(r.errOut, "ServiceAccount fleet-system/fleet: kept") {
				t.Errorf("leave of the member itself: %+v", r)
			}
			if r := s.run(t, "check", "west"); r.code != 0 {
				t.Errorf("check of the other one: %+v", r)
			}
		})
	}
}

// TestWebhooksOfANamesakeDoNotMakeItsClusterTheMember that leaves: others have applied both.
func TestWebhooksOfANamesakeDoNotMakeItsClusterTheMember(t *testing.T) {
	t.Parallel()
	s := newStageOfThree(t)
	const label = "    access.fleet-runtime.dev/member: east\n"
	printed := s.join(t, "--dry-run=client", "--namespace", "kube-public", "--advertise-server", "https://east.example.com")
	if printed.code != 0 {
		t.Fatalf("%+v", printed)
	}
	s.applyPrinted(t, strings.ReplaceAll(printed.out, label, ""))
	s.create(t, newWebhooks("of-default", "limits", s.addProgram(t), "east")) // where the member is another cluster
	s.changesNothing(t, "nothing was changed", "leave", "east", "--namespace", "kube-public", "--member-context", "member")
}
