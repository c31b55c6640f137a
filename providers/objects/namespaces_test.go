package objects_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// label sets the labels of the namespace itself.
func (n namespace) label(labels map[string]string) {
	n.t.Helper()
	ns := &corev1.Namespace{}
	if err := n.cl.Get(n.t.Context(), client.ObjectKey{Name: n.string}, ns); err != nil {
		n.t.Fatal(err)
	}
	update(n, ns, func(ns *corev1.Namespace) { ns.Labels = labels })
}

func TestNoObjectForgesTheNamespaceOfItsMembers(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := newNamespace(t, cp)
	forged := ns.secret("forged", map[string]string{"a": "1"}, ours)
	update(ns, forged, func(s *corev1.Secret) { s.Labels[objects.NamespaceLabel] = "kube-system" })
	ns.secret("plain", map[string]string{"b": "1"}, ours)
	r := start(t, cp.Config(), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1", "b": "1"})
	r.read(func() {
		for name, m := range r.members {
			if diff := cmp.Diff(map[string]string{ours: "true", objects.NamespaceLabel: ns.string}, m.Labels); diff != "" {
				t.Errorf("labels of %q (-want +got):\n%s", name, diff)
			}
		}
	})
}

func TestMembersOfObjectsWithoutANamespaceHaveNoNamespaceLabel(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := newNamespace(t, cp)
	ns.label(map[string]string{ours: "true", objects.NamespaceLabel: "kube-system"})
	r := start(t, cp.Config(), objects.Provider[*corev1.Namespace]{
		Object: &corev1.Namespace{}, Selectors: provider("").Selectors,
		Members: func(_ context.Context, ns *corev1.Namespace, _ objects.Reader) ([]fleet.Member, error) {
			return []fleet.Member{{Name: fleet.ClusterName(ns.Name), Config: &rest.Config{Host: "1"}, Labels: ns.Labels}}, nil
		},
	})
	r.waitForHosts(t, hosts{fleet.ClusterName(ns.string): "1"})
	r.read(func() {
		for _, m := range r.members {
			if namespace, ok := m.Labels[objects.NamespaceLabel]; ok || m.Labels[ours] != "true" {
				t.Errorf("it comes from namespace %q, its labels are %v", namespace, m.Labels)
			}
		}
	})
}

// inTenants returns a provider of the members in Secrets of labelled namespaces.
func inTenants() objects.Provider[*corev1.Secret] {
	p := provider("")
	p.Namespaces, p.NamespaceSelector = nil, labelled("tenants")
	return p
}

func TestObjectsCountWhileTheLabelsOfTheirNamespaceMatch(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	one, two := newNamespace(t, cp), newNamespace(t, cp)
	tenants := map[string]string{"tenants": "true"}
	one.label(tenants)
	one.secret("secret", map[string]string{"a": "1"}, ours)
	two.secret("secret", map[string]string{"b": "1"}, ours)
	gone := two.secret("gone", map[string]string{"c": "1"}, ours)
	r := start(t, cp.Config(), inTenants())
	r.waitForHosts(t, hosts{"a": "1"})
	two.delete(gone)
	two.label(tenants)
	r.waitForHosts(t, hosts{"a": "1", "b": "1"})
	two.secret("later", map[string]string{"d": "1"}, ours)
	r.waitForHosts(t, hosts{"a": "1", "b": "1", "d": "1"})
	two.label(nil)
	r.waitForHosts(t, hosts{"a": "1"})
	one.label(map[string]string{"tenants": "false"})
	r.waitForHosts(t, hosts{})
	one.label(tenants)
	r.waitForHosts(t, hosts{"a": "1"})
	r.waitUntil(t, "no problem", func() bool { return len(r.problems) == 0 })
}

func TestWithoutRightsOnNamespacesNoneMatches(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := newNamespace(t, cp)
	ns.label(map[string]string{"tenants": "true"})
	ns.secret("secret", map[string]string{"a": "1"}, ours)
	secrets := mayReadSecrets("get", "list", "watch")
	r := start(t, cp.AddUser(t, "manager", secrets), inTenants())
	r.waitForProblem(t, "Namespace objects with tenants=true", "Forbidden: ", "grant the manager get, list and watch")
	r.read(func() {
		if len(r.members) > 0 || len(r.problems) != 1 {
			t.Errorf("there are members %v and problems %q", r.hosts(), r.problems)
		}
	})
	cp.AddUser(t, "manager", secrets, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list", "watch"},
	})
	r.waitForHosts(t, hosts{"a": "1"})
	r.waitForProblem(t, "Namespace objects with tenants=true")
}
