package command_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/command"
)

func TestLeaveOfACallerThatMayNotLookIntoTheMemberChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.addUser(t, s.Members[0], "nobody")
	s.addUser(t, s.Members[0], "onlooker", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}})
	all, err := clientcmd.LoadFromFile(s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	all.AuthInfos["unknown"] = &clientcmdapi.AuthInfo{Token: "nonsense"}
	if err := clientcmd.WriteToFile(*all, s.kubeconfig); err != nil {
		t.Fatal(err)
	}
	before := s.madeByMcctl(t)
	leave := []string{"leave", "east", "--member-context", "member", "--member-user"}
	for _, user := range []string{"member-1-nobody", "member-1-onlooker", "unknown"} {
		if r := s.run(t, append(leave, user)...); r.code != 1 || !strings.Contains(r.errOut, "nothing was changed") || !strings.Contains(r.errOut, "--force") {
			t.Errorf("%s: %+v", user, r)
		}
		if after := s.madeByMcctl(t); !maps.Equal(before, after) {
			t.Errorf("%s: there were\n%v\nand then\n%v", user, before, after)
		}
	}
	r := s.run(t, append(leave, "unknown", "--force")...)
	if r.code != 0 || !strings.Contains(r.out, "kubectl delete serviceaccount") {
		t.Errorf("by force: %+v", r)
	}
	err = s.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "east"}, &accessv1alpha1.ClusterAccess{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("by force, the ClusterAccess: %v", err)
	}
}

// addLeaver adds the user member-1-leaver, that may delete in the member all that join makes but namespaces.
func (s *stage) addLeaver(t *testing.T) {
	t.Helper()
	s.addUser(t, s.Members[0], "leaver",
		rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
		rbacv1.PolicyRule{APIGroups: []string{"", rbacv1.GroupName, "admissionregistration.k8s.io"}, Resources: []string{
			"serviceaccounts", "roles", "rolebindings", "clusterroles", "clusterrolebindings",
			"validatingadmissionpolicies", "validatingadmissionpolicybindings",
		}, Verbs: []string{"delete"}},
	)
}

func TestToLeaveTakesNoRightToDeleteANamespaceThatStays(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.addLeaver(t)
	leave := []string{"leave", "east", "--member-context", "member", "--member-user", "member-1-leaver"}
	if r := s.run(t, leave...); r.code != 1 || !strings.Contains(r.errOut, "delete namespaces fleet-system") {
		t.Errorf("where nothing else is in it: %+v", r)
	}
	s.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-system", Name: "stays"}})
	if r := s.run(t, leave...); r.code != 0 || !strings.Contains(r.errOut, "kept, since ConfigMap stays is in it") {
		t.Errorf("where something of others is in it: %+v", r)
	}
	if left := s.madeByMcctl(t); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
}

func TestANamespaceThatTheCallerMayNotLookIntoOrDeleteStays(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addUser(t, s.Members[0], "blind",
		rbacv1.PolicyRule{APIGroups: []string{"", rbacv1.GroupName, "admissionregistration.k8s.io"}, Resources: []string{
			"namespaces", "serviceaccounts", "roles", "rolebindings", "clusterroles", "clusterrolebindings", "validatingadmissionpolicies",
			"validatingadmissionpolicybindings", "validatingwebhookconfigurations", "mutatingwebhookconfigurations",
		}, Verbs: []string{"get", "list", "delete"}},
	)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	r := s.run(t, "leave", "east", "--member-context", "member", "--member-user", "member-1-blind")
	if r.code != 0 || !strings.Contains(r.errOut, "Namespace fleet-system: kept, since you may not look into it") {
		t.Errorf("where the caller may not look into it: %+v", r)
	}
	if left := s.madeByMcctl(t); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
	s.addLeaver(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	used := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-system", Name: "pruned"}}
	s.create(t, used)
	errOut := &writesOn{text: "ClusterAccess default/east: gone"}
	errOut.then = func() {
		if err := s.Members[0].Client().Delete(t.Context(), used); err != nil {
			t.Error(err)
		}
	}
	code := command.Run(t.Context(), "v1.2.3", []string{
		"mcctl", "leave", "east", "--kubeconfig", s.kubeconfig, "--member-kubeconfig", s.kubeconfig, "--member-context", "member", "--member-user", "member-1-leaver",
	}, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &bytes.Buffer{}, ErrOut: errOut})
	if says := errOut.String(); code != 0 || !strings.Contains(says, "Namespace fleet-system: kept, since you may not delete it") {
		t.Errorf("where what was in it is pruned meanwhile: exit code %d:\n%s", code, says)
	}
	if left := s.madeByMcctl(t); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
}

func TestLeaveByForceGoesOnPastASecretOfTheHubThatStays(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.addUser(t, s.Local, "accesses",
		rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
		rbacv1.PolicyRule{APIGroups: []string{accessv1alpha1.GroupVersion().Group}, Resources: []string{"*"}, Verbs: []string{"*"}},
	)
	r := s.run(t, "leave", "east", "--member-context", "member", "--user", "local-accesses", "--force")
	if r.code != 0 || !strings.Contains(r.out, "kubectl --namespace default delete secret east-minter\n") {
		t.Errorf("%+v", r)
	}
	for left := range s.madeByMcctl(t) {
		if !strings.HasPrefix(left, "local default/east-minter ") {
			t.Errorf("it leaves %s", left)
		}
	}
}

func TestTheRightToDeleteANamespaceIsListedWhereTheCallerMayNotLookIntoIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.addUser(t, s.Members[0], "blind",
		rbacv1.PolicyRule{APIGroups: []string{"", rbacv1.GroupName, "admissionregistration.k8s.io"}, Resources: []string{
			"serviceaccounts", "roles", "rolebindings", "clusterroles", "clusterrolebindings", "validatingadmissionpolicies",
			"validatingadmissionpolicybindings", "validatingwebhookconfigurations", "mutatingwebhookconfigurations",
		}, Verbs: []string{"get", "list", "delete"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list"}},
	)
	s.changesNothing(t, "delete namespaces fleet-system", "leave", "east", "--member-context", "member", "--member-user", "member-1-blind")
}

func TestAFederatedMemberLeavesByACallerThatMayNotListSecrets(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addUser(t, s.Local, "accesses", rbacv1.PolicyRule{APIGroups: []string{accessv1alpha1.GroupVersion().Group}, Resources: []string{"*"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}})
	as := []string{"--member-context", "member", "--user", "local-accesses"}
	if r := s.join(t, "--federated", "operator", "--user", "local-accesses"); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	if r := s.run(t, append(as, "leave", "east")...); r.code != 0 || !strings.Contains(r.errOut, "hub: Secrets: not looked for, since you may not list them") {
		t.Errorf("leave: %+v", r)
	}
	if left := s.madeByMcctl(t); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
	if r := s.join(t, "--federated", "operator", "--user", "local-accesses"); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.Members[0].Stop(t)
	if r := s.run(t, append(as, "leave", "east")...); r.code != 1 || !strings.Contains(r.errOut, "the hub is clean") {
		t.Errorf("leave while the member is away: %+v", r)
	}
	s.Members[0].Restart(t)
	if r := s.run(t, append(as, "leave", "east")...); r.code != 0 {
		t.Errorf("leave again: %+v", r)
	}
	if left := s.madeByMcctl(t); len(left) > 0 {
		t.Errorf("it leaves then %v", left)
	}
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	s.changesNothing(t, "list each Secret in the hub", append(as, "leave", "east")...)
}
