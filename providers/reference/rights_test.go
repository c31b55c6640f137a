package reference_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/reference"
)

func TestTheRightsOfThePageSuffice(t *testing.T) {
	h, others := startHub(t, 1)
	config := hubtest.UserWithRights(t, h.ControlPlane, h.namespace, "../../docs/providers-reference.md")
	f := hubtest.Follow(t, config, reference.Provider{Format: reference.Flux(), Namespaces: []string{h.namespace}})
	h.secret(t, "good", map[string][]byte{"value": others[0].Kubeconfig()})
	h.secret(t, "bad", map[string][]byte{"value": []byte("{")})
	h.create(t, helmReleases, "good", fields{"spec.kubeConfig.secretRef.name": "good"})
	bad := h.create(t, kustomizations, "bad", fields{"spec.kubeConfig.secretRef.name": "bad"})
	f.WaitFor(t, "good", fleet.Ready, "")
	f.WaitFor(t, "bad", fleet.Pending, kubeconfig.ReasonInvalid)
	hubtest.WaitForEvent(t, h.ControlPlane, bad, kubeconfig.ReasonInvalid)
}

func TestMembersAreShownWithoutRightsOnSecrets(t *testing.T) {
	h, others := startHub(t, 1)
	h.secret(t, "east", map[string][]byte{"kubeconfig": others[0].Kubeconfig()})
	h.create(t, places, "east", fields{"spec.secretRef.name": "east"})
	const user = "lesser-manager"
	config := h.AddUser(t, user)
	hubtest.Grant(t, h.ControlPlane, h.namespace, user, "read-places", rbacv1.PolicyRule{
		APIGroups: []string{places.Group}, Resources: []string{"places"}, Verbs: []string{"get", "list", "watch"},
	})
	f := hubtest.Follow(t, config, reference.Provider{Format: placesBySecret(), Namespaces: []string{h.namespace}})
	f.WaitFor(t, "east", fleet.Pending, reference.ReasonSecretsUnreadable)

	hubtest.Grant(t, h.ControlPlane, h.namespace, user, "read-secrets", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"},
	})
	f.WaitFor(t, "east", fleet.Ready, "")
}
