package command_test

import (
	"maps"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAMemberThatIsFederatedInsteadKeepsNoMinter(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	all := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "create", "patch"}}
	s.addUser(t, s.Members[0], "writer", all)
	before := s.madeByMcctl(t)
	r := s.join(t, "--federated", "operator", "--member-user", s.Members[0].Name+"-writer")
	if r.code != 1 || !strings.Contains(r.errOut, "delete serviceaccounts fleet-minter in fleet-system") {
		t.Errorf("of a caller that may not delete: %+v", r)
	}
	if r := s.join(t, "--federated", "operator", "--dry-run=server"); r.code != 0 || !strings.Contains(r.errOut, "Secret default/east-minter: would be deleted") {
		t.Errorf("a dry run: %+v", r)
	}
	if after := s.madeByMcctl(t); !maps.Equal(before, after) {
		t.Errorf("there were\n%v\nand then\n%v", before, after)
	}
	r = s.join(t, "--federated", "operator")
	if r.code != 0 || s.access(t).Spec.Federated == nil {
		t.Fatalf("join: %+v", r)
	}
	for key, obj := range map[client.ObjectKey]client.Object{
		{Namespace: "fleet-system", Name: "fleet-minter"}: &corev1.ServiceAccount{},
		{Namespace: "fleet-system", Name: "fleet"}:        &corev1.ServiceAccount{},
	} {
		if err := s.Members[0].Client().Get(t.Context(), key, obj); !apierrors.IsNotFound(err) {
			t.Errorf("the account %s in the member: %v\n%s", key, err, r.errOut)
		}
	}
	err := s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "east-minter"}, &corev1.Secret{})
	if !apierrors.IsNotFound(err) || !strings.Contains(r.errOut, "hub: Secret default/east-minter: deleted\n") {
		t.Errorf("the Secret in the hub: %v\n%s", err, r.errOut)
	}
	if again := s.join(t, "--federated", "operator"); again.code != 0 || strings.Contains(again.errOut, "deleted") {
		t.Errorf("joining again: %+v", again)
	}
}

func TestAnotherAccountTakesThePlaceOfTheFormerOne(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	minter := metav1.ObjectMeta{Namespace: "team", Name: "former-minter"}
	formerly := func() (found []string) {
		t.Helper()
		for what, obj := range map[string]client.Object{
			"the account": &corev1.ServiceAccount{ObjectMeta: minter}, "its worker": &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "former"}},
			"the Role": &rbacv1.Role{ObjectMeta: minter}, "its binding": &rbacv1.RoleBinding{ObjectMeta: minter},
			"the policy": &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: named("fleet-runtime.team.former-minter")},
		} {
			err := s.Members[0].Client().Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
			if client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			if err == nil {
				found = append(found, what)
			}
		}
		return found
	}
	join := func(account string, more ...string) result {
		t.Helper()
		return s.join(t, append([]string{"--service-account", account}, more...)...)
	}
	if r := join("team/former"); r.code != 0 || len(formerly()) != 5 {
		t.Fatalf("join: %+v, and there are %v", r, formerly())
	}
	all := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "create", "patch"}}
	s.addUser(t, s.Members[0], "writer", all)
	before := s.madeByMcctl(t)
	r := join("team/now", "--member-user", s.Members[0].Name+"-writer")
	if r.code != 1 || !strings.Contains(r.errOut, "delete serviceaccounts former-minter in team") {
		t.Errorf("of a caller that may not delete: %+v", r)
	}
	if after := s.madeByMcctl(t); !maps.Equal(before, after) {
		t.Errorf("there were\n%v\nand then\n%v", before, after)
	}
	if r := join("team/now"); r.code != 0 || s.access(t).Spec.Minter.ServiceAccountName != "now" {
		t.Fatalf("join: %+v", r)
	}
	if left := formerly(); len(left) > 0 {
		t.Errorf("there still are %v of the former minter", left)
	}
	if r := s.run(t, "check", "east", "--rules", rules(t)); r.code != 0 {
		t.Errorf("check: %+v", r)
	}
	t.Run("after an interruption, when the hub knows the new one alone", func(t *testing.T) {
		if err := s.Local.Client().Delete(t.Context(), s.access(t)); err != nil {
			t.Fatal(err)
		}
		if r := join("team/former"); r.code != 0 || strings.Contains(r.errOut, "former: deleted") || !strings.Contains(r.errOut, "ServiceAccount team/now-minter: deleted\n") {
			t.Errorf("join: %+v", r)
		}
	})
}

func TestAMinterGoesWhereItsSecretIsGoneOrOfOthers(t *testing.T) {
	t.Parallel()
	for name, theirs := range map[string]*corev1.Secret{
		"gone": nil,
		"of others": {
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "east-minter"},
			StringData: map[string]string{"token": "of-others", "server": "https://east.example.com", "namespace": "fleet-system", "serviceAccount": "fleet-minter"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			if r := s.join(t); r.code != 0 {
				t.Fatalf("join: %+v", r)
			}
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "east-minter"}}
			if err := s.Local.Client().Delete(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
			if theirs != nil {
				if err := s.Local.Client().Create(t.Context(), theirs); err != nil {
					t.Fatal(err)
				}
			}
			r := s.join(t, "--federated", "operator")
			if r.code != 0 {
				t.Fatalf("join: %+v", r)
			}
			for _, gone := range []string{
				"ServiceAccount fleet-system/fleet", "ServiceAccount fleet-system/fleet-minter", "Role fleet-system/fleet-minter", "RoleBinding fleet-system/fleet-minter",
				"ValidatingAdmissionPolicy fleet-runtime.fleet-system.fleet-minter", "ValidatingAdmissionPolicyBinding fleet-runtime.fleet-system.fleet-minter",
			} {
				if !strings.Contains(r.errOut, "member: "+gone+": deleted\n") {
					t.Errorf("%s stays:\n%s", gone, r.errOut)
				}
			}
			if kept := strings.Contains(r.errOut, "Secret default/east-minter: kept"); kept != (theirs != nil) {
				t.Errorf("it names the Secret of others: %t\n%s", kept, r.errOut)
			}
		})
	}
}

func TestToJoinFederatedTakesNoRightToListWhereThereWasNoMinter(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addUser(t, s.Members[0], "writer",
		rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "create", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}})
	federated := []string{"--federated", "operator", "--member-user", "member-1-writer"}
	for range 2 {
		if r := s.join(t, federated...); r.code != 0 {
			t.Errorf("%+v", r)
		}
	}
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	if r := s.join(t, federated...); r.code != 1 || !strings.Contains(r.errOut, "forbidden") {
		t.Errorf("of one with a minter: %+v", r)
	}
}

func TestAJoinGoesOnRemovingTheFormerMinterAfterAnInterruption(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t, "--service-account", "team/former"); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	// The join with another account has got as far as the accounts.
	for _, name := range []string{"former", "former-minter"} {
		s.delete(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}})
	}
	r := s.join(t, "--service-account", "team/now")
	if r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	for _, gone := range []string{
		"RoleBinding team/former-minter", "Role team/former-minter", "ValidatingAdmissionPolicyBinding fleet-runtime.team.former-minter",
		"ValidatingAdmissionPolicy fleet-runtime.team.former-minter",
	} {
		if !strings.Contains(r.errOut, "member: "+gone+": deleted\n") {
			t.Errorf("%s stays:\n%s", gone, r.errOut)
		}
	}
}

// delete deletes an object of the member.
func (s *stage) delete(t *testing.T, obj client.Object) {
	t.Helper()
	if err := s.Members[0].Client().Delete(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}
