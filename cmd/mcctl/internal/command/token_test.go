package command_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

func TestTheTokenIsThatOfTheControllers(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	r := s.run(t, "token", "east")
	credential := &clientauthenticationv1.ExecCredential{}
	if err := json.Unmarshal([]byte(r.out), credential); r.code != 0 || err != nil || credential.Status == nil {
		t.Fatalf("token: %d, %v, %s", r.code, err, r.errOut)
	}
	config := rest.AnonymousClientConfig(s.Members[0].Config())
	config.BearerToken = credential.Status.Token
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.List(t.Context(), &corev1.ConfigMapList{}); err != nil {
		t.Errorf("list ConfigMaps: %v", err)
	}
	if err := c.List(t.Context(), &corev1.SecretList{}); err == nil {
		t.Error("it may list Secrets")
	}
	if none := s.run(t, "token", "west"); none.code != 1 || none.out != "" || !strings.Contains(none.errOut, "no member \"west\"") {
		t.Errorf("of a member that is not there: %+v", none)
	}
}

func TestCheckAsksForTheRightsThatAreNeeded(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	if r := s.run(t, "check", "east", "--rules", rules(t)); r.code != 0 || !strings.Contains(r.out, "all 3 are there") {
		t.Errorf("with all rights: %+v", r)
	}
	more := write(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: more}
rules:
- {apiGroups: [""], resources: [configmaps, secrets], verbs: [list]}
`)
	if r := s.run(t, "check", "east", "--rules", more); r.code != 3 || !strings.Contains(r.out, "1 of 2 are missing\n  list secrets\n") {
		t.Errorf("with a right too few: %+v", r)
	}
	if r := s.run(t, "rbac", "east", "--member-context", "member", "--rules", more); r.code != 0 {
		t.Fatalf("rbac: %+v", r)
	}
	if r := s.run(t, "check", "east", "--rules", more); r.code != 0 {
		t.Errorf("after rbac: %+v", r)
	}
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = "fleet-system", "fleet"
	if err := s.Members[0].Client().Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	if r := s.run(t, "check", "east"); r.code != 3 || !strings.Contains(r.errOut, "Do this: run mcctl join east --namespace default again") {
		t.Errorf("without the account: %+v", r)
	}
}

func TestAnAccountThatMayGiveAllRightsIsToldWhichItDoesNotHave(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	roles := strings.NewReplacer(`""`, "rbac.authorization.k8s.io", "configmaps", "clusterroles, roles", "get", "'*'").Replace(roleDocument)
	if r := s.joinBy(t, roles); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.addMember(t, "east", wellAt("https://east.example.com"))
	for what, documents := range map[string]string{
		"everywhere":     strings.Replace(roleDocument, "configmaps", "secrets", 1),
		"in a namespace": strings.NewReplacer("ClusterRole", "Role", "{name: checksums}", "{namespace: team, name: checksums}").Replace(roleDocument),
	} {
		for _, command := range []string{"check", "describe"} {
			if r := s.run(t, command, "east", "--rules", write(t, documents)); r.code != 3 || !strings.Contains(r.out, "1 of 1 are missing") {
				t.Errorf("%s: %s: %+v", what, command, r)
			}
		}
	}
}

func TestDescribeAsksForTheRightsThatAreNeeded(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.addMember(t, "east", wellAt("https://east.example.com"))
	describe := func(more ...string) (result, []string) {
		t.Helper()
		r := s.run(t, append([]string{"describe", "east"}, more...)...)
		var order []string
		for line := range strings.Lines(r.out) {
			if about, _, found := strings.Cut(line, ":"); found && about == strings.TrimSpace(about) {
				order = append(order, about)
			}
		}
		return r, order
	}
	r, order := describe()
	if want := []string{"Member", "Discovered", "Credentials", "State", "Identity", "Rights", "Kinds", "Replica", "Paused", "Queue"}; r.code != 0 || !slices.Equal(order, want) {
		t.Errorf("%q, want %q: %+v", order, want, r)
	}
	for _, says := range []string{"not asked; mcctl describe east --rules FILE", "not asked; mcctl describe east --live"} {
		if !strings.Contains(r.out, says) {
			t.Errorf("%q is not in:\n%s", says, r.out)
		}
	}
	if r, _ := describe("--rules", rules(t)); r.code != 0 || !strings.Contains(r.out, "all 3 are there") {
		t.Errorf("with all rights: %+v", r)
	}
	more := write(t, strings.Replace(roleDocument, "configmaps", "configmaps, secrets", 1))
	if r, _ := describe("--rules", more); r.code != 3 || !strings.Contains(r.out, "! 2 of 2 are missing") || !strings.Contains(r.out, "get secrets") || !strings.Contains(r.out, "mcctl rbac east") {
		t.Errorf("with a right too few: %+v", r)
	}
	if r, _ := describe("--rules", rules(t), "--member-server", "https://127.0.0.1:1"); r.code != 1 || !strings.Contains(r.errOut, "--member-server") || !strings.Contains(r.out, "could not be asked for") {
		t.Errorf("where it is not reached from here: %+v", r)
	}
}

func TestAMemberIsAskedWhereTheCallerReachesIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t, "--advertise-server", "https://east.invalid:6443", "--advertise-proxy-url", "http://proxy.invalid:3128"); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.addMember(t, "east", wellAt("https://east.invalid:6443"))
	here := s.Members[0].Config().Host
	for _, command := range []string{"check", "describe"} {
		if r := s.run(t, command, "east", "--rules", rules(t), "--member-server", here); r.code != 0 || !strings.Contains(r.out, "all 3 are there") {
			t.Errorf("%s: %+v", command, r)
		}
	}
	if r := s.run(t, "check", "east"); r.code != 3 || !strings.Contains(r.errOut, "Do this: say with --member-server") {
		t.Errorf("check where the hub reaches it: %+v", r)
	}
	for name, elsewhere := range map[string]string{"another CA": s.Local.Config().Host, "no server": "https://127.0.0.1:1"} {
		r := s.run(t, "check", "east", "--member-server", elsewhere)
		if r.code != 3 || !strings.Contains(r.errOut, "make a token") || !strings.Contains(r.errOut, "Do this: see that "+elsewhere+", of --member-server") {
			t.Errorf("check where there is %s: %+v", name, r)
		}
	}
}

// TestWhatIsWrongInTheHubIsNotSaidOfAnotherAddress, which was not asked.
func TestWhatIsWrongInTheHubIsNotSaidOfAnotherAddress(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.addUser(t, s.Local, "blind", rbacv1.PolicyRule{APIGroups: []string{accessv1alpha1.GroupVersion().Group}, Resources: []string{"*"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{membersv1alpha1.GroupVersion().Group}, Resources: []string{"*"}, Verbs: []string{"get"}})
	secret := &corev1.Secret{}
	if err := s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "east-minter"}, secret); err != nil {
		t.Fatal(err)
	}
	says := func(what, cure string, more ...string) {
		t.Helper()
		r := s.run(t, append([]string{"check", "east", "--member-server", "https://127.0.0.1:1"}, more...)...)
		if r.code != 3 || !strings.Contains(r.errOut, cure) || strings.Contains(r.errOut, "Do this: see that https://127.0.0.1:1") {
			t.Errorf("%s: %q is not in %+v", what, cure, r)
		}
	}
	says("a Secret that may not be read", "in the hub the manager gets and updates the minter's Secret", "--user", s.Local.Name+"-blind")
	for _, step := range []struct{ what, key, value, cure string }{
		{"a Secret for another server", "server", "https://another.example.com", "undo what was edited"},
		{"a Secret without an account", "serviceAccount", "", "it makes what is missing"},
	} {
		secret.Data[step.key] = []byte(step.value)
		if err := s.Local.Client().Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		says(step.what, step.cure)
	}
	if err := s.Local.Client().Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	says("no Secret", "it makes what is missing")
}
