package capi_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/capi"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

func TestTheRightsOfThePageSuffice(t *testing.T) {
	h, others := startHub(t, 1)
	f := followAs(t, h.userWithRights(t, "../../docs/providers-capi.md"), capi.Provider{Namespace: h.namespace})
	h.createSecret(t, "good", others[0].Kubeconfig())
	h.createSecret(t, "bad", withExec(t))
	h.create(t, "good", initialize)
	bad := h.create(t, "bad", initialize)
	f.waitFor(t, "good", fleet.Ready, "")
	f.waitFor(t, "bad", fleet.Pending, kubeconfig.ReasonRefused)
	h.waitForEvent(t, bad, kubeconfig.ReasonRefused)
}

func TestMembersAreShownWithoutRightsOnSecrets(t *testing.T) {
	h, others := startHub(t, 1)
	h.createSecret(t, "east", others[0].Kubeconfig())
	h.create(t, "east", initialize)
	h.create(t, "young", nil)
	h.create(t, "bare", initialize)
	const user = "lesser-manager"
	config := h.AddUser(t, user)
	h.grant(t, user, "read-clusters", rbacv1.PolicyRule{
		APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"clusters"}, Verbs: []string{"get", "list", "watch"},
	})
	f := followAs(t, config, capi.Provider{Namespace: h.namespace})
	f.waitFor(t, "young", fleet.Pending, capi.ReasonNotInitialized)
	s := f.waitFor(t, "east", fleet.Pending, capi.ReasonSecretsUnreadable)
	if want := h.namespace + "/east-kubeconfig"; !strings.Contains(s.Message, want) {
		t.Errorf("the message %q does not name the Secret %s", s.Message, want)
	}

	h.grant(t, user, "read-secrets", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"},
	})
	f.waitFor(t, "east", fleet.Ready, "")
	f.waitFor(t, "bare", fleet.Pending, capi.ReasonNoKubeconfig)
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
