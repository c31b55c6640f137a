package command_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// refuseRoles has the member refuse Roles without the label team.
func (s *stage) refuseRoles(t *testing.T) {
	t.Helper()
	operations := []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
	s.create(t,
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: named("teams"), Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{Operations: operations, Rule: admissionv1.Rule{
					APIGroups: []string{rbacv1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"roles"},
				}},
			}}},
			Validations: []admissionv1.Validation{{Expression: "has(object.metadata.labels) && 'team' in object.metadata.labels", Message: "a Role needs a team"}},
		}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named("teams"), Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "teams", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}},
	)
	eventually(t, "the member refuses a Role", func() bool {
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "tried-"}}
		return s.Members[0].Client().Create(t.Context(), role, client.DryRunAll) != nil
	})
}

func TestAJoinThatAPolicyOfTheMemberRefusesLeavesNoNamespace(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.refuseRoles(t)
	s.addUser(t, s.Members[0], "writer", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "create", "patch"}})
	before := s.inMember(t)
	for namespace, c := range map[string]struct {
		args []string
		says string
		goes bool
	}{
		"one":   {nil, "nothing of it was left written", true},
		"other": {[]string{"--member-user", "member-1-writer"}, "Namespace other stays", false},
	} {
		r := s.join(t, append(c.args, "--service-account", namespace+"/fleet")...)
		if r.code != 1 || !strings.Contains(r.errOut, c.says) || !strings.Contains(r.errOut, "a Role needs a team") {
			t.Errorf("%s: %+v", namespace, r)
		}
		found := &corev1.Namespace{}
		if err := s.Members[0].Client().Get(t.Context(), client.ObjectKey{Name: namespace}, found); err != nil || c.goes != (found.DeletionTimestamp != nil) {
			t.Errorf("the namespace %s was deleted at %v: %v", namespace, found.DeletionTimestamp, err)
		}
		if after := s.inMember(t); len(after) != len(before) {
			t.Errorf("%s: there were\n%v\nand then\n%v", namespace, before, after)
		}
	}
}
