package clusterprofile_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/clusterprofile"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

func TestTheRightsOfThePageSuffice(t *testing.T) {
	h, others := startHub(t, 1)
	f := hubtest.Follow(t, hubtest.UserWithRights(t, h.ControlPlane, h.namespace, "../../docs/providers-clusterprofile.md"), clusterprofile.Provider{
		Namespace: h.namespace, SecretNamespace: h.namespace,
	})
	h.createSecret(t, h.namespace, "good", belongsTo(h.namespace, "good"), others[0].Kubeconfig())
	h.createSecret(t, h.namespace, "bad", belongsTo(h.namespace, "bad"), []byte("{"))
	h.create(t, "good", v1alpha1.ClusterProfileStatus{})
	bad := h.create(t, "bad", v1alpha1.ClusterProfileStatus{})
	f.WaitFor(t, "good", fleet.Ready, "")
	f.WaitFor(t, "bad", fleet.Pending, kubeconfig.ReasonInvalid)
	hubtest.WaitForEvent(t, h.ControlPlane, bad, kubeconfig.ReasonInvalid)
}

func TestMembersAreShownWithoutRightsOnSecrets(t *testing.T) {
	h, others := startHub(t, 1)
	h.createSecret(t, h.namespace, "east", belongsTo(h.namespace, "east"), others[0].Kubeconfig())
	h.create(t, "east", v1alpha1.ClusterProfileStatus{})
	const user = "lesser-manager"
	config := h.AddUser(t, user)
	hubtest.Grant(t, h.ControlPlane, h.namespace, user, "read-profiles", rbacv1.PolicyRule{
		APIGroups: []string{"multicluster.x-k8s.io"}, Resources: []string{"clusterprofiles"}, Verbs: []string{"get", "list", "watch"},
	})
	f := hubtest.Follow(t, config, clusterprofile.Provider{Namespace: h.namespace, SecretNamespace: h.namespace})
	f.WaitFor(t, "east", fleet.Pending, clusterprofile.ReasonSecretsUnreadable)

	hubtest.Grant(t, h.ControlPlane, h.namespace, user, "read-secrets", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"},
	})
	f.WaitFor(t, "east", fleet.Ready, "")
}
