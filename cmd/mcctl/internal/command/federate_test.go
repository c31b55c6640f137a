package command_test

import (
	"strings"
	"testing"
)

func TestFederatePrintsWhatAMemberIsToTrust(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r := s.run(t, "federate", "east", "--member-context", "member", "--service-account", "manager", "--advertise-server", s.Members[0].Config().Host)
	for _, says := range []string{"kind: AuthenticationConfiguration", "prefix: 'hub:'", `claims.sub == "system:serviceaccount:default:manager"`, "#"} {
		if r.code != 0 || !strings.Contains(r.out, says) {
			t.Errorf("%q is not in %d:\n%s%s", says, r.code, r.out, r.errOut)
		}
	}
	s.untouched(t)
	if none := s.run(t, "federate", "east", "--member-context", "member"); none.code != 2 {
		t.Errorf("without an account: %+v", none)
	}
}
