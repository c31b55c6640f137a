package command_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// joinIn joins the member as east of a namespace of the hub, with a role and an account of its own.
func (s *stage) joinIn(t *testing.T, namespace, role, account string, more ...string) result {
	t.Helper()
	return s.joinBy(t, strings.Replace(roleDocument, "checksums", role, 1), append([]string{"--namespace", namespace, "--service-account", account}, more...)...)
}

// joinTwice joins the member as east of two namespaces of the hub.
func (s *stage) joinTwice(t *testing.T) {
	t.Helper()
	for namespace, is := range map[string]string{"default": "a", "kube-public": "b"} {
		if r := s.joinIn(t, namespace, "of-"+is, is+"/fleet"); r.code != 0 {
			t.Fatalf("join in %s: %+v", namespace, r)
		}
	}
}

// changesNothing runs mcctl, which fails and changes nothing.
func (s *stage) changesNothing(t *testing.T, says string, args ...string) {
	t.Helper()
	before, webhooks := s.madeByMcctl(t), s.webhooksOf(t)
	r := s.run(t, args...)
	if r.code != 1 || !strings.Contains(r.errOut, says) {
		t.Errorf("%q: %q is not in %+v", args, says, r)
	}
	if after := s.madeByMcctl(t); !maps.Equal(before, after) {
		t.Errorf("%q: there were\n%v\nand then\n%v", args, before, after)
	}
	if after := s.webhooksOf(t); !slices.Equal(webhooks, after) {
		t.Errorf("%q: there were the webhooks %q, and then %q", args, webhooks, after)
	}
}

func TestANameThatNoClusterAccessHasTakesNothingOfThoseThatHaveOne(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.joinTwice(t)
	for _, name := range []string{"", "/", "/east", "east/", "default/", "default/east/", "a/b/east", "default/x/east", "default/../east", "../east"} {
		s.changesNothing(t, "nothing to undo", "leave", name, "--member-context", "member")
	}
}

func TestMembersOfOneNameInTwoNamespacesOfAHubKeepWhatIsTheirs(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.joinIn(t, "default", "of-a", "a/fleet"); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	before := s.madeByMcctl(t)
	join := func(role, account string, more ...string) []string {
		return append([]string{
			"join", "east", "--namespace", "kube-public", "--member-context", "member", "--service-account", account, "--advertise-server", s.Members[0].Config().Host,
			"--rules", write(t, strings.Replace(roleDocument, "checksums", role, 1)),
		}, more...)
	}
	s.changesNothing(t, "was made for the member default/east", join("of-b", "a/fleet")...)
	s.changesNothing(t, "--service-account", join("of-b", "a/fleet")...)
	s.changesNothing(t, "was made for the member default/east", join("of-a", "b/fleet")...)
	s.changesNothing(t, "was made for the member default/east", join("of-a", "b/fleet", "--federated", "operator")...)
	if r := s.run(t, join("of-b", "b/fleet")...); r.code != 0 || strings.Contains(r.errOut, ": deleted") {
		t.Fatalf("join: %+v", r)
	}
	after := s.madeByMcctl(t)
	for what, version := range before {
		if after[what] != version {
			t.Errorf("%s was at version %s, and is at %q once the other has joined", what, version, after[what])
		}
	}
	if r := s.run(t, "leave", "east", "--namespace", "kube-public", "--member-context", "member"); r.code != 0 {
		t.Errorf("leave: %+v", r)
	}
	if after := s.madeByMcctl(t); !maps.Equal(before, after) {
		t.Errorf("there were\n%v\nand once the other has left\n%v", before, after)
	}
	if r := s.run(t, "check", "east"); r.code != 0 {
		t.Errorf("check: %+v", r)
	}
}

func TestWhatIsPrintedSaysOfWhichNamespaceTheMemberIs(t *testing.T) {
	t.Parallel()
	for _, called := range [][]string{{"team-a/east"}, {"east", "--namespace", "team-a"}} {
		r := run(t.Context(), append([]string{"rbac", "--rules", write(t, roleDocument), "--service-account", "fleet-system/fleet", "--dry-run=client"}, called...)...)
		for _, label := range []string{"access.fleet-runtime.dev/namespace: team-a\n", "access.fleet-runtime.dev/member: east\n"} {
			if r.code != 0 || !strings.Contains(r.out, label) {
				t.Errorf("%q: %q is not in %+v", called, label, r)
			}
		}
	}
}
