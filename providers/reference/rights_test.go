package reference_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"regexp"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/reference"
)

func TestTheRightsOfThePageSuffice(t *testing.T) {
	h, others := startHub(t, 1)
	const user = "manager"
	config := h.AddUser(t, user)
	for _, role := range rolesIn(t, "../../docs/providers-reference.md") {
		h.grant(t, user, role.Name, role.Rules...)
	}
	f := followAs(t, config, reference.Provider{Format: reference.Flux(), Namespaces: []string{h.namespace}})
	h.secret(t, "good", map[string][]byte{"value": others[0].Kubeconfig()})
	h.secret(t, "bad", map[string][]byte{"value": []byte("{")})
	h.create(t, helmReleases, "good", fields{"spec.kubeConfig.secretRef.name": "good"})
	bad := h.create(t, kustomizations, "bad", fields{"spec.kubeConfig.secretRef.name": "bad"})
	f.waitFor(t, "good", fleet.Ready, "")
	f.waitFor(t, "bad", fleet.Pending, kubeconfig.ReasonInvalid)
	h.waitForEvent(t, bad, kubeconfig.ReasonInvalid)
}

func TestMembersAreShownWithoutRightsOnSecrets(t *testing.T) {
	h, others := startHub(t, 1)
	h.secret(t, "east", map[string][]byte{"kubeconfig": others[0].Kubeconfig()})
	h.create(t, places, "east", fields{"spec.secretRef.name": "east"})
	const user = "lesser-manager"
	config := h.AddUser(t, user)
	h.grant(t, user, "read-places", rbacv1.PolicyRule{
		APIGroups: []string{places.Group}, Resources: []string{"places"}, Verbs: []string{"get", "list", "watch"},
	})
	f := followAs(t, config, reference.Provider{Format: placesBySecret(), Namespaces: []string{h.namespace}})
	f.waitFor(t, "east", fleet.Pending, reference.ReasonSecretsUnreadable)

	h.grant(t, user, "read-secrets", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"},
	})
	f.waitFor(t, "east", fleet.Ready, "")
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
