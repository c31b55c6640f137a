package rights_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
)

func TestRolesHoldWhereTheyAreBound(t *testing.T) {
	const clusterRole = "ClusterRole, metadata: {name: r}, rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}"
	binding := func(kind, namespace, name string) string {
		return fmt.Sprintf("%s, metadata: {name: b, namespace: '%s'}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}}", kind, namespace, name)
	}
	for name, tc := range map[string]struct {
		objects []string
		want    []string
	}{
		"a Role": {
			[]string{"Role, metadata: {name: r, namespace: a}, rules: [{apiGroups: [''], resources: [pods], verbs: [list, get]}]}"},
			[]string{"get pods in a", "list pods in a"},
		},
		"a ClusterRole that nothing binds":     {[]string{clusterRole}, []string{"get pods"}},
		"a ClusterRole bound in the cluster":   {[]string{clusterRole, binding("RoleBinding", "a", "r"), binding("ClusterRoleBinding", "", "r")}, []string{"get pods"}},
		"a ClusterRole bound in two places":    {[]string{binding("RoleBinding", "b", "r"), clusterRole, binding("RoleBinding", "a", "r")}, []string{"get pods in a", "get pods in b"}},
		"a binding of another role":            {[]string{clusterRole, binding("RoleBinding", "a", "other")}, []string{"get pods"}},
		"a path":                               {[]string{"ClusterRole, metadata: {name: r}, rules: [{nonResourceURLs: [/metrics], verbs: [get]}]}"}, []string{"get /metrics"}},
		"a role of another group, and nothing": {[]string{"ClusterRole, metadata: {name: r}}"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			grants, err := rights.Grants(objects(t, tc.objects))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, g := range grants {
				for _, r := range g.Rights() {
					got = append(got, r.String())
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("rights differ (-want, +got):\n%s", diff)
			}
		})
	}
}

func TestRolesThatDoNotTellWhatTheyGiveAreRefused(t *testing.T) {
	many := "['" + strings.Join(strings.Split(strings.Repeat("x", 2000), ""), "','") + "']"
	for name, tc := range map[string]struct{ object, want string }{
		"rules of other roles":   {"ClusterRole, metadata: {name: r}, aggregationRule: {clusterRoleSelectors: []}}", "aggregationRule"},
		"no namespace":           {"Role, metadata: {name: r}, rules: []}", "no namespace"},
		"rules that are no list": {"ClusterRole, metadata: {name: r}, rules: {a: b}}", "reading the ClusterRole r"},
		"verbs that are no list": {"ClusterRole, metadata: {name: r}, rules: [{verbs: get}]}", "reading the ClusterRole r"},
		"billions of rights":     {"ClusterRole, metadata: {name: r}, rules: [{apiGroups: " + many + ", resources: " + many + ", resourceNames: " + many + ", verbs: " + many + "}]}", "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := rights.Grants(objects(t, []string{tc.object})); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Grants() returned the error %v, want one that says %q", err, tc.want)
			}
		})
	}
}

// objects reads objects of RBAC, which begin with their kind.
func objects(t *testing.T, texts []string) []*unstructured.Unstructured {
	t.Helper()
	all := make([]*unstructured.Unstructured, 0, len(texts))
	for _, text := range texts {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte("{apiVersion: rbac.authorization.k8s.io/v1, kind: "+text), &obj.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, obj)
	}
	return all
}
