package command_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/command"
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

func TestANamespaceThatOthersHaveBegunToUseStaysWhenTheMemberRefusesTheRest(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.refuseRoles(t)
	use := func() {
		s.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: "theirs"}})
	}
	errOut := &writesOn{text: "Namespace one: created"}
	errOut.then = func() { errOut.then = func() {}; use() }
	code := command.Run(t.Context(), "v1.2.3", []string{
		"mcctl", "join", "east", "--kubeconfig", s.kubeconfig, "--member-kubeconfig", s.kubeconfig, "--member-context", "member",
		"--rules", rules(t), "--advertise-server", s.Members[0].Config().Host, "--service-account", "one/fleet",
	}, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &bytes.Buffer{}, ErrOut: errOut})
	if says := errOut.String(); code != 1 || !strings.Contains(says, "a Role needs a team") || !strings.Contains(says, "Namespace one stays, since ConfigMap theirs is in it") {
		t.Errorf("exit code %d:\n%s", code, says)
	}
	found := &corev1.Namespace{}
	if err := s.Members[0].Client().Get(t.Context(), client.ObjectKey{Name: "one"}, found); err != nil || found.DeletionTimestamp != nil {
		t.Errorf("the namespace was deleted at %v: %v", found.DeletionTimestamp, err)
	}
}

func TestAnErrorThatIsNoRefusalIsNotCalledOne(t *testing.T) {
	t.Parallel()
	for says, all := range map[string][]error{
		"the member refuses a part of it": {
			apierrors.NewForbidden(schema.GroupResource{Resource: "roles"}, "any", nil), apierrors.NewBadRequest("any"), &meta.NoKindMatchError{},
		},
		"it is not known whether the member takes all of it": {
			apierrors.NewInternalError(io.ErrUnexpectedEOF), apierrors.NewTimeoutError("any", 1), apierrors.NewTooManyRequests("any", 1),
			context.Canceled, io.ErrUnexpectedEOF,
		},
	} {
		for _, err := range all {
			if said := command.NotTaken(fmt.Errorf("apply: %w", err)); said != says {
				t.Errorf("of %v it says %q, want %q", err, said, says)
			}
		}
	}
}
