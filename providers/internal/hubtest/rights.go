package hubtest

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
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// UserWithRights returns the config of a user who has the rights that a page says, in the namespace, and no others.
func UserWithRights(t *testing.T, hub *mctest.ControlPlane, namespace, page string) *rest.Config {
	t.Helper()
	const user = "manager"
	config := hub.AddUser(t, user)
	for _, role := range rolesIn(t, page) {
		Grant(t, hub, namespace, user, role.Name, role.Rules...)
	}
	return config
}

// Grant gives a user rights in the namespace, by a role of the given name.
func Grant(t *testing.T, hub *mctest.ControlPlane, namespace, user, name string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	cl, err := client.New(hub.Config(), client.Options{})
	Must(t, err)
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	Must(t, cl.Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}))
	Must(t, cl.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(apiVersion: rbac.*?)```")

func rolesIn(t *testing.T, page string) (roles []rbacv1.Role) {
	t.Helper()
	text, err := os.ReadFile(page) //nolint:gosec // a page of the docs
	Must(t, err)
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
