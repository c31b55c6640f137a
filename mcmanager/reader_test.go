package mcmanager_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestTheManifestForReadersGivesWhatTheyNeed: and the manager what it needs to ask whether they may.
func TestTheManifestForReadersGivesWhatTheyNeed(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	roles := map[string][]rbacv1.PolicyRule{}
	manifest, err := os.ReadFile("../docs/fleet-reader.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096); ; {
		role := &rbacv1.ClusterRole{}
		err := decoder.Decode(role)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := cp.Client().Create(t.Context(), role); err != nil {
			t.Fatal(err)
		}
		roles[role.Name] = role.Rules
	}
	cp.AddUser(t, "reader", roles["fleet-reader"]...)
	cp.AddUser(t, "stranger")
	manager, err := client.New(cp.AddUser(t, "manager", roles["fleet-reader-check"]...), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := manager.Create(t.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "none"}}); err != nil {
		t.Errorf("the manager cannot ask whose token it is: %v", err)
	}
	for _, c := range []struct {
		user, verb, path string
		want             bool
	}{
		{"reader", "get", "/debug/fleet", true},
		{"reader", "get", "/metrics", true},
		{"reader", "get", "/debug/pprof", false},
		{"reader", "post", "/debug/fleet", false},
		{"stranger", "get", "/debug/fleet", false},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: c.user, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: c.path, Verb: c.verb},
		}}
		if err := manager.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != c.want {
			t.Errorf("%s may %s %s: %v, want %v", c.user, c.verb, c.path, review.Status.Allowed, c.want)
		}
	}
}
