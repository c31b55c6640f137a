package command_test

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// untouched fails the test if mcctl has made anything on either side.
func (s *stage) untouched(t *testing.T) {
	t.Helper()
	for _, cp := range []*mctest.ControlPlane{s.Local, s.Members[0]} {
		for _, list := range []client.ObjectList{&corev1.ServiceAccountList{}, &corev1.SecretList{}, &corev1.NamespaceList{}, &rbacv1.ClusterRoleList{}} {
			if err := cp.Client().List(t.Context(), list, client.MatchingLabels{"app.kubernetes.io/managed-by": "mcctl"}); err != nil {
				t.Fatal(err)
			}
			if n := meta.LenList(list); n > 0 {
				t.Errorf("%s has %d objects in a %T", cp.Name, n, list)
			}
		}
	}
	accesses := &accessv1alpha1.ClusterAccessList{}
	if err := s.Local.Client().List(t.Context(), accesses); err != nil || len(accesses.Items) > 0 {
		t.Errorf("%d ClusterAccesses, %v", len(accesses.Items), err)
	}
}

func TestJoinWritesNothingThatTheCallerMayNotWriteWhole(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	readHub := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}
	all := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "create", "patch"}}
	s.addUser(t, s.Local, "reader", readHub)
	s.addUser(t, s.Members[0], "reader", readHub)
	s.addUser(t, s.Members[0], "writer", all) // which may neither watch, nor give that to others

	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"a hub that is read-only":            {[]string{"--user", "local-reader"}, []string{"in the hub", "create clusteraccesses.access.fleet-runtime.dev in default", "create secrets"}},
		"a member that is read-only":         {[]string{"--member-user", "member-1-reader"}, []string{"in the member", "create clusterroles.rbac", "create serviceaccounts/token fleet-minter"}},
		"rights that the caller cannot give": {[]string{"--member-user", "member-1-writer"}, []string{"cannot give rights", "watch configmaps"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.join(t, c.args...)
			if r.code != 1 {
				t.Errorf("exit code %d", r.code)
			}
			for _, says := range c.says {
				if !strings.Contains(r.errOut, says) {
					t.Errorf("%q is not in:\n%s", says, r.errOut)
				}
			}
			s.untouched(t)
		})
	}
	t.Run("a member that is the hub", func(t *testing.T) {
		r := s.run(t, "join", "east", "--member-context", "hub", "--rules", rules(t), "--advertise-server", s.Local.Config().Host)
		if r.code != 1 || !strings.Contains(r.errOut, "the same cluster") {
			t.Errorf("%+v", r)
		}
		s.untouched(t)
	})
	t.Run("a dry run of the servers", func(t *testing.T) {
		r := s.join(t, "--dry-run=server")
		for _, says := range []string{
			"Namespace fleet-system: created (server dry run)\n", "ServiceAccount fleet-system/fleet: created (server dry run)\n", "ClusterAccess default/east: created",
			"ValidatingAdmissionPolicy fleet-runtime.fleet-system.fleet-minter: created (server dry run)\n",
			"ValidatingAdmissionPolicyBinding fleet-runtime.fleet-system.fleet-minter: created (server dry run)\n",
		} {
			if r.code != 0 || !strings.Contains(r.errOut, says) {
				t.Errorf("%q is not in %d:\n%s", says, r.code, r.errOut)
			}
		}
		s.untouched(t)
	})
}

func TestLeaveOfAMemberThatIsTheHubChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	before := s.madeByMcctl(t)
	for _, args := range [][]string{{"leave", "east", "--member-context", "hub"}, {"leave", "east", "--member-context", "hub", "--force"}} {
		if r := s.run(t, args...); r.code != 1 || !strings.Contains(r.errOut, "the same cluster") {
			t.Errorf("%v: %+v", args, r)
		}
		if after := s.madeByMcctl(t); !maps.Equal(before, after) {
			t.Errorf("%v: there were\n%v\nand then\n%v", args, before, after)
		}
	}
}

func TestWhatOthersHaveMadeStaysWhenAMemberLeaves(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	member := s.Members[0].Client()
	theirs := []client.Object{
		&corev1.Namespace{ObjectMeta: named("fleet-system")},
		&rbacv1.ClusterRole{ObjectMeta: named("checksums"), Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch", "patch"}},
		}},
	}
	for _, obj := range theirs {
		if err := member.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	if r := s.run(t, "leave", "east", "--member-context", "member"); r.code != 0 {
		t.Fatalf("leave: %+v", r)
	}
	for _, obj := range theirs {
		if err := member.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil || obj.GetDeletionTimestamp() != nil {
			t.Errorf("%T %s: %v", obj, obj.GetName(), err)
		}
	}
}

func TestAClusterJoinsUnderOneName(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	again := s.run(t, "join", "west", "--member-context", "member", "--rules", rules(t), "--advertise-server", s.Members[0].Config().Host)
	if again.code != 1 || !strings.Contains(again.errOut, "was made for the member default/east") {
		t.Errorf("under another name: %+v", again)
	}
	err := s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "west"}, &accessv1alpha1.ClusterAccess{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the ClusterAccess west: %v", err)
	}
}

func TestLeaveNamesWhatItCannotReach(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	if r := s.run(t, "leave", "east"); r.code != 2 || !strings.Contains(r.errOut, "--force") {
		t.Errorf("without a member: %+v", r)
	}
	s.Members[0].Stop(t)
	r := s.run(t, "leave", "east", "--member-context", "member")
	if r.code != 1 || !strings.Contains(r.errOut, "the hub is clean") || !strings.Contains(r.errOut, s.Members[0].Config().Host) {
		t.Errorf("with a member that is down: %+v", r)
	}
	err := s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "east"}, &accessv1alpha1.ClusterAccess{})
	if client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the ClusterAccess: %v", err)
	}
	forced := s.run(t, "leave", "east", "--force")
	if forced.code != 0 || !strings.Contains(forced.out, "kubectl delete serviceaccount,clusterrolebinding") {
		t.Errorf("by force: %+v", forced)
	}
	s.Members[0].Restart(t)
	if again := s.run(t, "leave", "east", "--member-context", "member"); again.code != 0 || !strings.Contains(again.errOut, "ServiceAccount fleet-system/fleet: deleted") {
		t.Errorf("when it is back: %+v", again)
	}
}

func TestRolesAndBindingsOfOthersAreNotWrittenOver(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	theirs := &rbacv1.ClusterRole{ObjectMeta: named("checksums"), Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: named("more"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "more"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "somebody"}},
	}
	empty := &rbacv1.ClusterRole{ObjectMeta: named("empty")}
	ofNobody := &rbacv1.ClusterRoleBinding{ObjectMeta: named("nobody"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nobody"}}
	s.create(t, theirs, binding, empty, ofNobody)
	join := func(role string) []string {
		rules := write(t, strings.Replace(roleDocument, "checksums", role, 1))
		return []string{"join", "east", "--member-context", "member", "--advertise-server", s.Members[0].Config().Host, "--rules", rules}
	}
	for role, what := range map[string]string{
		"checksums": "ClusterRole checksums", "more": "ClusterRoleBinding more", "empty": "ClusterRole empty", "nobody": "ClusterRoleBinding nobody",
	} {
		for _, says := range []string{"nothing was written, since the member has something in the way", what, "give yours another name", "delete that one"} {
			s.changesNothing(t, says, join(role)...)
		}
		s.untouched(t)
	}
	for _, obj := range []client.Object{theirs, binding, empty, ofNobody} {
		before := obj.GetResourceVersion()
		if err := s.Members[0].Client().Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil || obj.GetResourceVersion() != before {
			t.Errorf("%T %s was written, or: %v", obj, obj.GetName(), err)
		}
	}
	if r := s.run(t, join("own")...); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	rbac := []string{"rbac", "east", "--member-context", "member", "--rules", write(t, roleDocument)}
	s.changesNothing(t, "give yours another name", rbac...)
	s.delete(t, theirs)
	if r := s.run(t, rbac...); r.code != 0 {
		t.Errorf("once the role of others is deleted: %+v", r)
	}
	own := &rbacv1.ClusterRole{}
	if err := s.Members[0].Client().Get(t.Context(), client.ObjectKey{Name: "own"}, own); err != nil {
		t.Fatal(err)
	}
	own.Rules = nil
	if err := s.Members[0].Client().Update(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	if r := s.run(t, join("own")...); r.code != 0 || !strings.Contains(r.errOut, "ClusterRole own: changed") {
		t.Errorf("what mcctl has made is made right again: %+v", r)
	}
}

func TestADryRunSaysWhatBecomesOfAMinterWithoutASecret(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	if err := s.Local.Client().Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "east-minter"}}); err != nil {
		t.Fatal(err)
	}
	r := s.join(t, "--dry-run=server")
	for _, says := range []string{
		"hub: Secret default/east-minter: would get a new token\n",
		"ValidatingAdmissionPolicy fleet-runtime.fleet-system.fleet-minter: would be for the audiences of the new token\n",
		"ValidatingAdmissionPolicyBinding fleet-runtime.fleet-system.fleet-minter: unchanged (server dry run)\n",
	} {
		if r.code != 0 || !strings.Contains(r.errOut, says) {
			t.Errorf("%q is not in %d:\n%s", says, r.code, r.errOut)
		}
	}
}

func TestAMemberJoinsThatHasWhatJoinPrintsByOthers(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	printed := s.joinBy(t, roleDocument, "--dry-run=client")
	if printed.code != 0 {
		t.Fatalf("%+v", printed)
	}
	s.applyPrinted(t, printed.out)
	theirs := map[client.Object]string{
		&rbacv1.ClusterRole{ObjectMeta: named("checksums")}: "", &rbacv1.ClusterRoleBinding{ObjectMeta: named("checksums")}: "",
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-system", Name: "fleet-minter"}}: "",
	}
	for obj := range theirs {
		theirs[obj] = s.version(t, obj)
	}
	if r := s.joinBy(t, roleDocument); r.code != 0 {
		t.Errorf("join: %+v", r)
	}
	for obj, before := range theirs {
		if after := s.version(t, obj); after != before {
			t.Errorf("%T %s was written: %v", obj, obj.GetName(), obj.GetManagedFields())
		}
	}
	again := s.joinBy(t, roleDocument)
	if again.code != 0 || !strings.Contains(again.errOut, "ClusterRole checksums: unchanged") || !strings.Contains(again.errOut, "ClusterRoleBinding checksums: unchanged") {
		t.Errorf("join again: %+v", again)
	}
}

// version reads an object of the member, and returns its version.
func (s *stage) version(t *testing.T, obj client.Object) string {
	t.Helper()
	if err := s.Members[0].Client().Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		t.Fatal(err)
	}
	return obj.GetResourceVersion()
}

// TestTheCureForAMemberThatIsAppliedFromFilesWorks: mcctl does not write over what a tool has applied.
func TestTheCureForAMemberThatIsAppliedFromFilesWorks(t *testing.T) {
	t.Parallel()
	for name, how := range map[string][]string{"minted": nil, "federated": {"--federated", "operator"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			apply := func(roles string) {
				t.Helper()
				printed := s.joinBy(t, roles, append(how, "--dry-run=client")...)
				if printed.code != 0 {
					t.Fatalf("%+v", printed)
				}
				s.applyPrinted(t, printed.out)
			}
			apply(roleDocument)
			more := strings.Replace(roleDocument, "[get]", "[get, list]", 1)
			const cure = "mcctl join east --namespace default print"
			access := s.access(t)
			access.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: metav1.Now()}}
			if err := s.Local.Client().Status().Update(t.Context(), access); err != nil {
				t.Fatal(err)
			}
			refused := wellAt(access.Spec.Server)
			refused.NotSynced = []membersv1alpha1.NotSynced{{Kind: "ConfigMap", Reason: "Forbidden", Message: "no"}}
			s.addMember(t, "east", refused)
			if r := s.run(t, "describe", "east"); !strings.Contains(r.out, "Do this:     ") || !strings.Contains(r.out, cure) {
				t.Errorf("describe, of what a manager was refused: %+v", r)
			}
			rbac := []string{"rbac", "east", "--member-context", "member", "--rules", write(t, more)}
			if how == nil {
				s.createMinterSecret(t, "east")
				for _, asks := range []string{"check", "describe"} {
					if r := s.run(t, asks, "east", "--rules", write(t, more)); r.code != 3 || !strings.Contains(r.out+r.errOut, cure) {
						t.Errorf("%s: %+v", asks, r)
					}
				}
				s.changesNothing(t, "let that print it anew, and apply it by the tool", rbac...)
			}
			apply(more)
			if r := s.run(t, rbac...); r.code != 0 || !strings.Contains(r.errOut, "ClusterRole checksums: unchanged") {
				t.Errorf("rbac, once that is done: %+v", r)
			}
			if how == nil {
				if r := s.run(t, "check", "east", "--rules", write(t, more)); r.code != 0 {
					t.Errorf("check, once that is done: %+v", r)
				}
			}
		})
	}
}

// TestAMemberJoinsOverABindingThatLeavesOutItsGroups: API servers write them down.
func TestAMemberJoinsOverABindingThatLeavesOutItsGroups(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: named("people"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "checksums"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "somebody"}, {Kind: rbacv1.GroupKind, Name: "some"}},
	})
	r := s.joinBy(t, roleDocument+`---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: people}
roleRef: {kind: ClusterRole, name: checksums}
subjects: [{kind: User, name: somebody}, {kind: Group, name: some}]
`)
	if r.code != 0 {
		t.Errorf("join: %+v", r)
	}
}
