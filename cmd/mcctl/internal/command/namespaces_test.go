package command_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
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

func TestLeaveInANamespaceInWhichNothingHasJoinedChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t, "--namespace", "kube-public"); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.create(t, newWebhooks("limits", "limits", s.addProgram(t), "east"))
	for _, name := range []string{"east", "kube-system/east"} {
		s.changesNothing(t, "it may have joined as kube-public/east", "leave", name, "--member-context", "member")
		s.changesNothing(t, "MutatingWebhookConfiguration limits: kept, since the program", "leave", name, "--member-context", "member")
	}
	if r := s.run(t, "leave", "east", "--namespace", "kube-public", "--member-context", "member"); r.code != 0 {
		t.Errorf("leave: %+v", r)
	}
	if left, webhooks := s.madeByMcctl(t), s.webhooksOf(t); len(left)+len(webhooks) > 0 {
		t.Errorf("it leaves %v, and the webhooks %q", left, webhooks)
	}
}

func TestLeaveKeepsTheWebhooksOfANamesakeInAnotherNamespace(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.joinTwice(t)
	id := s.addProgram(t) // in default
	s.create(t, newWebhooks("of-default", "limits", id, "east"), newWebhooks("of-kube-public", "limits", id, "kube-public/east"))
	r := s.run(t, "leave", "east", "--namespace", "kube-public", "--member-context", "member")
	if left := s.webhooksOf(t); r.code != 0 || !slices.Equal(left, []string{"of-default"}) || !strings.Contains(r.errOut, "may keep it for default/east") {
		t.Errorf("there are still %q: %+v", left, r)
	}
	if r := s.run(t, "leave", "east", "--member-context", "member"); r.code != 0 || len(s.webhooksOf(t)) > 0 {
		t.Errorf("there are still %q: %+v", s.webhooksOf(t), r)
	}
}

// TestWebhooksOfAMemberOfWhichNothingElseIsLeftGo where the program says of which namespace it is: the cluster has joined in another one too.
func TestWebhooksOfAMemberOfWhichNothingElseIsLeftGo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t, "--namespace", "kube-public"); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	id := s.addProgram(t)
	s.create(t, newWebhooks("of-default", "limits", id, "default/east"), newWebhooks("of-either", "limits", id, "east"))
	before := s.madeByMcctl(t)
	r := s.run(t, "leave", "east", "--member-context", "member")
	if left := s.webhooksOf(t); r.code != 0 || !slices.Equal(left, []string{"of-either"}) || !strings.Contains(r.errOut, "may keep it for kube-public/east") {
		t.Errorf("there are still %q: %+v", left, r)
	}
	if after := s.madeByMcctl(t); !maps.Equal(before, after) {
		t.Errorf("of the other one there were\n%v\nand then\n%v", before, after)
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

// TestAPausedMemberOfAProviderOfAllNamespacesIsFoundByEitherName: the Member is in the namespace default.
func TestAPausedMemberOfAProviderOfAllNamespacesIsFoundByEitherName(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t, "--namespace", "kube-public"); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.addMember(t, "kube-public/east", wellAt(s.Members[0].Config().Host))
	if r := s.run(t, "pause", "kube-public/east"); r.code != 0 {
		t.Fatalf("pause: %+v", r)
	}
	s.addUser(t, s.Local, "narrow",
		rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "delete", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}})
	for _, called := range [][]string{
		{"kube-public/east"}, {"east", "--namespace", "kube-public"}, {"kube-public/east", "--namespace", "kube-system"}, {"kube-public/east", "--user", "local-narrow"},
	} {
		s.changesNothing(t, "mcctl resume kube-public/east --namespace default", append([]string{"leave", "--member-context", "member", "--dependents=prune"}, called...)...)
	}
	if r := s.run(t, "resume", "kube-public/east", "--namespace", "default"); r.code != 0 {
		t.Errorf("resume: %+v", r)
	}
	r := s.run(t, "leave", "east", "--namespace", "kube-public", "--member-context", "member", "--dependents=prune", "--timeout=3s")
	if r.code != 1 || !strings.Contains(r.errOut, "mcctl describe kube-public/east --live --namespace default") {
		t.Errorf("where no controller takes back anything: %+v", r)
	}
}

func TestAMemberOfAProviderOfOneNamespaceLeavesByTheNameWithTheNamespaceToo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t, "--namespace", "kube-public"); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	member := &membersv1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "east"}, Spec: membersv1alpha1.Spec{ClusterName: "east", Paused: true}}
	of := &accessv1alpha1.ServiceAccountImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "lister"},
		Spec:       accessv1alpha1.ServiceAccountImportSpec{ClusterName: "east", Namespace: "default", Name: "lister"},
	}
	if err := s.Local.Client().Create(t.Context(), member); err != nil {
		t.Fatal(err)
	}
	if err := s.Local.Client().Create(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	s.create(t, newWebhooks("limits", "limits", s.addProgram(t), "east"))
	s.changesNothing(t, "mcctl resume east --namespace kube-public", "leave", "kube-public/east", "--member-context", "member", "--dependents=prune")
	r := s.run(t, "leave", "kube-public/east", "--member-context", "member")
	if r.code != 0 || !strings.Contains(r.errOut, "hub: ServiceAccountImport kube-public/lister: kept") {
		t.Errorf("leave: %+v", r)
	}
	if left, webhooks := s.madeByMcctl(t), s.webhooksOf(t); len(left)+len(webhooks) > 0 {
		t.Errorf("it leaves %v, and the webhooks %q", left, webhooks)
	}
}

// TestCommandsThatAreToldDoNotGoToANamesake of the namespace of the reader's context.
func TestCommandsThatAreToldDoNotGoToANamesake(t *testing.T) {
	t.Parallel()
	s := newStageOfThree(t)
	if r := s.join(t, "--namespace", "kube-public"); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	in := func(args ...string) []string {
		return append(args, "--namespace", "kube-public", "--member-context")
	}
	leave := in("leave", "east")
	s.addUser(t, s.Members[0], "reader", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}})
	s.changesNothing(t, "mcctl leave east --force --namespace kube-public", append(leave, "other")...)
	s.changesNothing(t, "mcctl leave east --force --namespace kube-public", append(in("rbac", "east", "--rules", rules(t)), "other")...)
	s.changesNothing(t, "mcctl leave east --namespace kube-public goes as far", append(leave, "member", "--member-user", "member-1-reader")...)
	m := &membersv1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "east"}, Spec: membersv1alpha1.Spec{ClusterName: "east", Paused: true}}
	if err := s.Local.Client().Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	more := write(t, strings.Replace(roleDocument, "[get]", "[create]", 1))
	r := s.run(t, "describe", "east", "--namespace", "kube-public", "--rules", more)
	if !strings.Contains(r.out, "mcctl rbac east --namespace kube-public\n") {
		t.Errorf("describe, where a right is missing: %+v", r)
	}
	if r = s.run(t, "describe", "east", "--namespace", "kube-public", "--rules", rules(t)); !strings.Contains(r.out, "mcctl resume east --namespace kube-public\n") {
		t.Errorf("describe of one that is paused: %+v", r)
	}
	a := &accessv1alpha1.ClusterAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "east"}}
	if err := s.Local.Client().Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	s.changesNothing(t, "mcctl leave east --dependents=keep --namespace kube-public", append(leave, "member", "--dependents=prune")...)
}

func TestTheCommandThatNotesTheIdentityNamesTheAccessAsKubectlDoes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	a := accessOf("minted", "")
	a.Namespace = "kube-public"
	if err := s.Local.Client().Create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	s.changesNothing(t, "kubectl --namespace kube-public annotate clusteraccess.access.fleet-runtime.dev east ",
		"rbac", "kube-public/east", "--member-context", "member", "--rules", rules(t))
}

func TestAMemberThatNoManagerHasWrittenKeepsNothingFromBeingPruned(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t, "--namespace", "kube-public"); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	object := membersv1alpha1.ObjectName("kube-public/east")
	for _, m := range []*membersv1alpha1.Member{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: object}, Spec: membersv1alpha1.Spec{ClusterName: "kube-public/east", Paused: true}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "east"}, Spec: membersv1alpha1.Spec{ClusterName: "x; rm -r .", Paused: true}},
	} {
		if err := s.Local.Client().Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	// Nobody takes the finalizer off.
	r := s.run(t, "leave", "east", "--namespace", "kube-public", "--member-context", "member", "--dependents=prune", "--timeout=1ms")
	if r.code != 1 || !strings.Contains(r.errOut, "have not let go of the member") && !strings.Contains(r.errOut, "is not known after") {
		t.Errorf("%+v", r)
	}
}

// TestLeaveKeepsTheWebhooksOfANamesakeThatIsNotSeenAtOnce: the caller may not list ClusterAccesses, or its own Member alone says which cluster it is.
func TestLeaveKeepsTheWebhooksOfANamesakeThatIsNotSeenAtOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.joinTwice(t)
	id := s.addProgram(t) // in default
	s.create(t, newWebhooks("of-default", "limits", id, "east"), newWebhooks("of-kube-public", "limits", id, "kube-public/east"))
	s.addUser(t, s.Local, "narrow",
		rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "delete", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}})
	leave := []string{"leave", "east", "--namespace", "kube-public", "--member-context", "member"}
	r := s.run(t, slices.Concat(leave, []string{"--user", "local-narrow"})...)
	if left := s.webhooksOf(t); r.code != 0 || !slices.Equal(left, []string{"of-default"}) || !strings.Contains(r.errOut, "you may not list") {
		t.Errorf("of a caller that may not list ClusterAccesses: there are still %q: %+v", left, r)
	}
	if r := s.joinIn(t, "kube-public", "of-c", "c/fleet"); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	a := s.access(t)
	a.Annotations, a.Spec.Server = nil, "https://east.vpn.example.com"
	if err := s.Local.Client().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	s.addMember(t, "east", membersv1alpha1.Status{Identity: string(systemNamespace(t, s.Members[0].Client()).UID)})
	r = s.run(t, leave...)
	if left := s.webhooksOf(t); r.code != 0 || !slices.Equal(left, []string{"of-default"}) || !strings.Contains(r.errOut, "may keep it for default/east") {
		t.Errorf("where its Member says that it is the same cluster: there are still %q: %+v", left, r)
	}
}
