package command_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
)

func TestFederatePrintsWhatAMemberIsToTrust(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r := s.run(t, "federate", "east", "--member-context", "member", "--service-account", "manager", "--advertise-server", s.Members[0].Config().Host,
		"--member-tls-server-name", "localhost")
	for _, says := range []string{"kind: AuthenticationConfiguration", "prefix: 'hub:'", `claims.sub == "system:serviceaccount:default:manager"`, "#localhost"} {
		if r.code != 0 || !strings.Contains(r.out, says) {
			t.Errorf("%q is not in %d:\n%s%s", says, r.code, r.out, r.errOut)
		}
	}
	s.untouched(t)
	if none := s.run(t, "federate", "east", "--member-context", "member"); none.code != 2 {
		t.Errorf("without an account: %+v", none)
	}
}

func TestAMemberWithTheIssuerOfTheHubIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.Members[0].RestartWith(t, "--service-account-issuer="+accesstest.Issuer(s.Local))
	for _, r := range []result{
		s.join(t, "--federated", "operator"),
		s.join(t, "--federated", "operator", "--dry-run=server"),
		s.run(t, "federate", "east", "--member-context", "member", "--service-account", "operator", "--advertise-server", s.Members[0].Config().Host),
	} {
		if r.code != 1 || r.out != "" || !strings.Contains(r.errOut, "the same issuer, "+accesstest.Issuer(s.Local)) || !strings.Contains(r.errOut, "nothing was changed") {
			t.Errorf("%+v", r)
		}
	}
	s.untouched(t)
	if left := s.inMember(t); len(left) > 0 {
		t.Errorf("in the member there is %v", left)
	}
	if r := s.join(t); r.code != 0 {
		t.Errorf("with a minter: %+v", r)
	}
}

func TestTheServerWithTheHubsKeysMayHaveAnotherCA(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	args := []string{"federate", "east", "--member-context", "member", "--service-account", "manager", "--advertise-server", s.Members[0].Config().Host}
	other := string(s.Members[0].Config().CAData)
	for name, c := range map[string]struct {
		more []string
		want string
	}{
		"the hub's":   {nil, string(s.Local.Config().CAData)},
		"another one": {[]string{"--discovery-url", "https://keys.example.com/o", "--discovery-ca", write(t, other)}, other},
		"none":        {[]string{"--discovery-ca", ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.run(t, append(args, c.more...)...)
			var printed struct {
				JWT []struct {
					Issuer struct{ CertificateAuthority string }
				}
			}
			if err := yaml.Unmarshal([]byte(r.out), &printed); r.code != 0 || err != nil || len(printed.JWT) != 1 {
				t.Fatalf("%+v, %v", r, err)
			}
			if got := printed.JWT[0].Issuer.CertificateAuthority; got != c.want {
				t.Errorf("the CA is %q, want %q", got, c.want)
			}
		})
	}
	t.Run("a hub that is not checked", func(t *testing.T) {
		r := s.run(t, append(args, "--insecure-skip-tls-verify")...)
		if r.code != 2 || !strings.Contains(r.errOut, "the hub's certificate; name its CA with --certificate-authority") {
			t.Errorf("%+v", r)
		}
	})
}
