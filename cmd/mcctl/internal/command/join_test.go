package command_test

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
)

// join joins the member as east.
func (s *stage) join(t *testing.T, args ...string) result {
	t.Helper()
	return s.run(t, append([]string{
		"join", "east", "--member-context", "member", "--rules", rules(t),
		"--advertise-server", s.Members[0].Config().Host,
	}, args...)...)
}

func TestJoinMakesAMemberOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	args := []string{"--labels", "region=eu", "--member-tls-server-name", "localhost"}
	if first := s.join(t, args...); first.code != 0 {
		t.Fatalf("join: %+v", first)
	}
	hub, member := s.Local.Client(), s.Members[0].Client()
	access := &accessv1alpha1.ClusterAccess{}
	secret := &corev1.Secret{}
	minter := &rbacv1.Role{}
	get := func(c client.Client, key client.ObjectKey, obj client.Object) {
		t.Helper()
		if err := c.Get(t.Context(), key, obj); err != nil {
			t.Fatal(err)
		}
	}
	look := func() string {
		get(hub, client.ObjectKey{Namespace: "default", Name: "east"}, access)
		get(hub, client.ObjectKey{Namespace: "default", Name: "east-minter"}, secret)
		get(member, client.ObjectKey{Namespace: "fleet-system", Name: "fleet-minter"}, minter)
		return access.ResourceVersion + " " + secret.ResourceVersion + " " + minter.ResourceVersion
	}
	before := look()
	if !maps.Equal(access.Labels, map[string]string{"region": "eu"}) || access.Spec.Minter == nil || access.Spec.Server != strings.TrimRight(s.Members[0].Config().Host, "/") {
		t.Errorf("the ClusterAccess has labels %v and the server %s", access.Labels, access.Spec.Server)
	}
	if name := string(secret.Data[accessv1alpha1.MinterTLSServerName]); name != "localhost" || access.Spec.TLSServerName != name {
		t.Errorf("the minter's Secret is for the name %q, and the ClusterAccess has %q", name, access.Spec.TLSServerName)
	}

	second := s.join(t, args...)
	if second.code != 0 {
		t.Fatalf("join again: %+v", second)
	}
	if after := look(); after != before {
		t.Errorf("joining again wrote: %s, then %s\n%s", before, after, second.errOut)
	}
	if strings.Contains(second.errOut, "created") || strings.Contains(second.errOut, "changed\n") && !strings.Contains(second.errOut, "unchanged\n") {
		t.Errorf("joining again says:\n%s", second.errOut)
	}
	token := string(secret.Data[accessv1alpha1.MinterToken])
	t.Run("The minter makes tokens of these accounts and does nothing else", func(t *testing.T) {
		s.checkMinter(t, token)
	})
	t.Run("No token is shown", func(t *testing.T) {
		for _, r := range []result{second, s.run(t, "list", "-o", "yaml"), s.run(t, "list", "-o", "wide")} {
			if strings.Contains(r.out+r.errOut, token) {
				t.Error("the minter's token is shown")
			}
		}
	})
}

func (s *stage) checkMinter(t *testing.T, token string) {
	t.Helper()
	config := rest.AnonymousClientConfig(s.Members[0].Config())
	config.BearerToken = token
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	worker := &corev1.ServiceAccount{}
	worker.Namespace, worker.Name = "fleet-system", "fleet"
	// API servers follow policies after a moment.
	eventually(t, "a token of the worker for two days is refused", func() bool {
		return c.SubResource("token").Create(t.Context(), worker, tokenRequest(2*24*3600)) != nil
	})
	eventually(t, "a token for another audience is refused", func() bool {
		return c.SubResource("token").Create(t.Context(), worker, tokenRequest(3600, "vault")) != nil
	})
	for account, allowed := range map[string]bool{"fleet": true, "fleet-minter": true, "default": false} {
		obj := &corev1.ServiceAccount{}
		obj.Namespace, obj.Name = "fleet-system", account
		if err := c.SubResource("token").Create(t.Context(), obj, tokenRequest(3600)); (err == nil) != allowed {
			t.Errorf("a token of %s: %v", account, err)
		}
	}
	if err := c.List(t.Context(), &corev1.SecretList{}); err == nil {
		t.Error("the minter may list Secrets")
	}
}

func TestJoiningAgainLetsTheMinterMakeTokensAfterTheMemberGotAnotherIssuer(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	member := s.Members[0]
	member.RestartWith(t, "--service-account-issuer=https://another.example.com", "--service-account-issuer="+accesstest.Issuer(member))
	eventually(t, "a policy from before refuses the tokens", func() bool { return s.run(t, "token", "east").code != 0 })
	minter := &corev1.Secret{}
	minter.Namespace, minter.Name = "default", "east-minter"
	if err := s.Local.Client().Get(t.Context(), client.ObjectKeyFromObject(minter), minter); err != nil {
		t.Fatal(err)
	}
	before := minter.ResourceVersion
	if r := s.join(t); r.code != 0 || !strings.Contains(r.errOut, "ValidatingAdmissionPolicy fleet-runtime.fleet-system.fleet-minter: changed") {
		t.Errorf("join again: %+v", r)
	}
	eventually(t, "the minter makes tokens again", func() bool { return s.run(t, "token", "east").code == 0 })
	if err := s.Local.Client().Get(t.Context(), client.ObjectKeyFromObject(minter), minter); err != nil || minter.ResourceVersion != before {
		t.Errorf("the minter's own token, which the member accepts, was written anew, or: %v", err)
	}
}

func TestLeaveUndoesWhatJoinHasMade(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	left := s.run(t, "leave", "east", "--member-context", "member")
	if left.code != 0 {
		t.Fatalf("leave: %+v", left)
	}
	if strings.Contains(left.errOut, "kept") {
		t.Errorf("something stays:\n%s", left.errOut)
	}
	remains := func(c client.Client, list client.ObjectList) {
		t.Helper()
		if err := c.List(t.Context(), list, client.MatchingLabels{"app.kubernetes.io/managed-by": "mcctl"}); err != nil {
			t.Fatal(err)
		}
	}
	accounts, roles, secrets := &corev1.ServiceAccountList{}, &rbacv1.ClusterRoleList{}, &corev1.SecretList{}
	remains(s.Members[0].Client(), accounts)
	remains(s.Members[0].Client(), roles)
	remains(s.Local.Client(), secrets)
	if n := len(accounts.Items) + len(roles.Items) + len(secrets.Items); n > 0 {
		t.Errorf("%d objects are left:\n%s", n, left.errOut)
	}
	again := s.run(t, "leave", "east", "--member-context", "member")
	if again.code != 1 || !strings.Contains(again.errOut, "nothing to undo") {
		t.Errorf("leaving again: %+v", again)
	}
}
