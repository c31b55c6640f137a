package capi_test

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/capi"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

func TestTheRightsOfThePageSuffice(t *testing.T) {
	h, others := startHub(t, 1)
	f := hubtest.Follow(t, hubtest.UserWithRights(t, h.ControlPlane, h.namespace, "../../docs/providers-capi.md"), capi.Provider{Namespace: h.namespace})
	h.createSecret(t, "good", others[0].Kubeconfig())
	h.createSecret(t, "bad", withExec(t))
	h.create(t, "good", initialize)
	bad := h.create(t, "bad", initialize)
	f.WaitFor(t, "good", fleet.Ready, "")
	f.WaitFor(t, "bad", fleet.Pending, kubeconfig.ReasonRefused)
	hubtest.WaitForEvent(t, h.ControlPlane, bad, kubeconfig.ReasonRefused)
}

func TestMembersAreShownWithoutRightsOnSecrets(t *testing.T) {
	h, others := startHub(t, 1)
	h.createSecret(t, "east", others[0].Kubeconfig())
	h.create(t, "east", initialize)
	h.create(t, "young", nil)
	h.create(t, "bare", initialize)
	const user = "lesser-manager"
	config := h.AddUser(t, user)
	hubtest.Grant(t, h.ControlPlane, h.namespace, user, "read-clusters", rbacv1.PolicyRule{
		APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"clusters"}, Verbs: []string{"get", "list", "watch"},
	})
	f := hubtest.Follow(t, config, capi.Provider{Namespace: h.namespace})
	f.WaitFor(t, "young", fleet.Pending, capi.ReasonNotInitialized)
	s := f.WaitFor(t, "east", fleet.Pending, capi.ReasonSecretsUnreadable)
	if want := h.namespace + "/east-kubeconfig"; !strings.Contains(s.Message, want) {
		t.Errorf("the message %q does not name the Secret %s", s.Message, want)
	}

	hubtest.Grant(t, h.ControlPlane, h.namespace, user, "read-secrets", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"},
	})
	f.WaitFor(t, "east", fleet.Ready, "")
	f.WaitFor(t, "bare", fleet.Pending, capi.ReasonNoKubeconfig)
}
