package rights

import (
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	kindRole               = "Role"
	kindClusterRole        = "ClusterRole"
	kindRoleBinding        = "RoleBinding"
	kindClusterRoleBinding = "ClusterRoleBinding"
)

// mostRights is how many rights the roles of a manifest may give, each counted by itself. Those of people give hundreds. A rule of a
// few thousand bytes could give billions.
const mostRights = 5000

// Grant is a role of a manifest, and where it holds.
type Grant struct {
	// Kind, Namespace and Name are those of the role. A ClusterRole has no namespace.
	Kind, Namespace, Name string
	// In are the namespaces in which it holds. The empty one stands for all.
	In    []string
	Rules []rbacv1.PolicyRule
}

// Rights returns what the grant gives.
func (g Grant) Rights() []Right {
	all := make([]Right, 0, len(g.Rules))
	for _, namespace := range g.In {
		all = append(all, Of(namespace, g.Rules...)...)
	}
	return sorted(all)
}

// Grants returns the roles among the objects of a manifest, in their order. A ClusterRole holds everywhere, unless the manifest
// binds it by RoleBindings alone: then it holds in their namespaces. What is no role or binding of RBAC is passed over. Roles
// that are put together of others by labels are an error, as nothing in the manifest says what they give.
func Grants(objects []*unstructured.Unstructured) ([]Grant, error) {
	bound, err := boundIn(objects)
	if err != nil {
		return nil, err
	}
	var grants []Grant
	count := 0
	for _, obj := range objects {
		if !isRBAC(obj, kindRole, kindClusterRole) {
			continue
		}
		var role rbacv1.ClusterRole // a Role lacks one of its fields
		if err := convert(obj, &role); err != nil {
			return nil, err
		}
		g := Grant{Kind: obj.GetKind(), Name: role.Name, Rules: role.Rules}
		switch {
		case role.AggregationRule != nil:
			return nil, fmt.Errorf("the %s %s is put together of others (aggregationRule), so it cannot be told what it gives: write its rules down", g.Kind, g.Name)
		case g.Kind == kindRole:
			g.Namespace, g.In = role.Namespace, []string{role.Namespace}
		case len(bound[g.Name]) > 0:
			g.In = bound[g.Name]
		default:
			g.In = []string{""}
		}
		if count += g.count(); count > mostRights {
			return nil, fmt.Errorf("the %s %s, with the roles before it, gives more than %d rights", g.Kind, g.Name, mostRights)
		}
		if g.Kind == kindRole && g.Namespace == "" {
			return nil, fmt.Errorf("the Role %s has no namespace: write it down", g.Name)
		}
		grants = append(grants, g)
	}
	return grants, nil
}

// count returns how many rights there are in the grant. It stops counting where there are far too many.
func (g Grant) count() int {
	count := 0
	for _, r := range g.Rules {
		one := len(r.Verbs)
		for _, n := range []int{len(r.APIGroups), len(r.Resources), max(1, len(r.ResourceNames))} {
			one = min(one*n, mostRights+1)
		}
		count += one + len(r.Verbs)*len(r.NonResourceURLs)
	}
	return count * len(g.In)
}

// boundIn returns, for each ClusterRole that is bound, the namespaces in which it is, or the empty one alone.
func boundIn(objects []*unstructured.Unstructured) (map[string][]string, error) {
	bound := map[string][]string{}
	for _, obj := range objects {
		if !isRBAC(obj, kindRoleBinding, kindClusterRoleBinding) {
			continue
		}
		var binding rbacv1.RoleBinding // a ClusterRoleBinding has the same fields, and no namespace
		if err := convert(obj, &binding); err != nil {
			return nil, err
		}
		role := binding.RoleRef
		if role.Kind != kindClusterRole {
			continue
		}
		if obj.GetKind() == kindClusterRoleBinding {
			bound[role.Name] = []string{""}
		}
		if !slices.Contains(bound[role.Name], "") && !slices.Contains(bound[role.Name], binding.Namespace) {
			bound[role.Name] = append(bound[role.Name], binding.Namespace)
		}
	}
	return bound, nil
}

func isRBAC(obj *unstructured.Unstructured, kinds ...string) bool {
	return obj.GroupVersionKind().Group == rbacv1.GroupName && slices.Contains(kinds, obj.GetKind())
}

func convert(obj *unstructured.Unstructured, to any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(obj.Object, to, false); err != nil {
		return fmt.Errorf("reading the %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	return nil
}
