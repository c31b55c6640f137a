package clusterprofile_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/clusterprofile"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

func TestTheRightsOfThePageSuffice(t *testing.T) {
	h, others := startHub(t, 1)
	f := followAs(t, h.userWithRights(t, "../../docs/providers-clusterprofile.md"), clusterprofile.Provider{
		Namespace: h.namespace, SecretNamespace: h.namespace,
	})
	h.createSecret(t, h.namespace, "good", belongsTo(h.namespace, "good"), others[0].Kubeconfig())
	h.createSecret(t, h.namespace, "bad", belongsTo(h.namespace, "bad"), []byte("{"))
	h.create(t, "good", v1alpha1.ClusterProfileStatus{})
	bad := h.create(t, "bad", v1alpha1.ClusterProfileStatus{})
	f.waitFor(t, "good", fleet.Ready, "")
	f.waitFor(t, "bad", fleet.Pending, kubeconfig.ReasonInvalid)
	h.waitForEvent(t, bad, kubeconfig.ReasonInvalid)
}

func TestMembersAreShownWithoutRightsOnSecrets(t *testing.T) {
	h, others := startHub(t, 1)
	h.createSecret(t, h.namespace, "east", belongsTo(h.namespace, "east"), others[0].Kubeconfig())
	h.create(t, "east", v1alpha1.ClusterProfileStatus{})
	const user = "lesser-manager"
	config := h.AddUser(t, user)
	h.grant(t, user, "read-profiles", rbacv1.PolicyRule{
		APIGroups: []string{"multicluster.x-k8s.io"}, Resources: []string{"clusterprofiles"}, Verbs: []string{"get", "list", "watch"},
	})
	f := followAs(t, config, clusterprofile.Provider{Namespace: h.namespace, SecretNamespace: h.namespace})
	f.waitFor(t, "east", fleet.Pending, clusterprofile.ReasonSecretsUnreadable)

	h.grant(t, user, "read-secrets", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"},
	})
	f.waitFor(t, "east", fleet.Ready, "")
}

// userWithRights returns the config of a user who has the rights that a page says, in the namespace, and no others.
func (h hub) userWithRights(t *testing.T, page string) *rest.Config {
	t.Helper()
	const user = "manager"
	config := h.AddUser(t, user)
	for _, role := range rolesIn(t, page) {
		h.grant(t, user, role.Name, role.Rules...)
	}
	return config
}

// grant gives a user rights in the namespace.
func (h hub) grant(t *testing.T, user, name string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	cl, err := client.New(h.Config(), client.Options{})
	must(t, err)
	meta := metav1.ObjectMeta{Namespace: h.namespace, Name: name}
	must(t, cl.Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}))
	must(t, cl.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(apiVersion: rbac.*?)```")

func rolesIn(t *testing.T, page string) (roles []rbacv1.Role) {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	block := yamlBlock.FindSubmatch(text)
	if block == nil {
		t.Fatalf("%s has no roles", page)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(block[1]), 1000)
	for {
		var role rbacv1.Role
		if err := decoder.Decode(&role); errors.Is(err, io.EOF) {
			return roles
		} else if err != nil {
			t.Fatal(err)
		}
		roles = append(roles, role)
	}
}

func (h hub) waitForEvent(t *testing.T, about client.Object, reason string) {
	t.Helper()
	cl, err := client.New(h.Config(), client.Options{})
	must(t, err)
	must(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		list := &eventsv1.EventList{}
		if err := cl.List(ctx, list, client.InNamespace(about.GetNamespace())); err != nil {
			return false, err
		}
		for _, e := range list.Items {
			if e.Regarding.UID == about.GetUID() && e.Reason == reason {
				return true, nil
			}
		}
		return false, nil
	}))
}
