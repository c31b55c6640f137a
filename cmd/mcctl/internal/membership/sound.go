package membership

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sound returns the objects of manifests, each once, or an error if one of them could not be applied: others would be by then.
func sound(objects []client.Object) ([]client.Object, error) {
	known := map[string]client.Object{}
	var each []client.Object
	for _, obj := range objects {
		kind := obj.GetObjectKind().GroupVersionKind().Kind
		if !namespaced(obj) {
			obj.SetNamespace("") // as API servers do
		}
		switch before := known[id(obj)]; {
		case obj.GetName() == "":
			return nil, fmt.Errorf("there is a %s without a name", kind)
		case namespaced(obj) && obj.GetNamespace() == "":
			return nil, fmt.Errorf("the %s %s has no namespace: write it down", kind, obj.GetName())
		case before == nil:
			known[id(obj)] = obj
			each = append(each, obj)
		case !equality.Semantic.DeepEqual(before, obj):
			return nil, fmt.Errorf("the %s %s is there twice, and differs", kind, obj.GetName())
		}
		for _, subject := range subjectsOf(obj) {
			if subject.Kind == rbacv1.ServiceAccountKind && subject.Namespace == "" {
				return nil, fmt.Errorf("the %s %s is for a service account %s without a namespace: write it down", kind, obj.GetName(), subject.Name)
			}
		}
	}
	return each, nil
}

func namespaced(obj client.Object) bool {
	switch obj.(type) {
	case *corev1.ServiceAccount, *rbacv1.Role, *rbacv1.RoleBinding:
		return true
	default:
		return false
	}
}

// subjectsOf returns those to whom a binding gives a role.
func subjectsOf(obj client.Object) []rbacv1.Subject {
	switch binding := obj.(type) {
	case *rbacv1.RoleBinding:
		return binding.Subjects
	case *rbacv1.ClusterRoleBinding:
		return binding.Subjects
	default:
		return nil
	}
}

// GiveNothing returns an error if all bindings of the manifests are for service accounts other than the one that the controllers come by.
func (r Rights) GiveNothing() error {
	if slices.ContainsFunc(r.Objects, func(obj client.Object) bool {
		return slices.ContainsFunc(subjectsOf(obj), func(s rbacv1.Subject) bool {
			return s.Kind != rbacv1.ServiceAccountKind || s.Namespace == r.Account.Namespace && s.Name == r.Account.Name
		})
	}) {
		return nil
	}
	return fmt.Errorf("the bindings in the files are for other accounts than %s, by which the controllers come: they could do nothing", r.Account)
}

// Reference is a role that a binding is about, and where the binding gives it: in all namespaces, or in one.
type Reference struct {
	Binding client.Object
	Role    client.Object
	In      string
}

// References returns the roles that bindings among objects give, and that are not among these.
func References(objects []client.Object) []Reference {
	has := map[string]bool{}
	for _, obj := range objects {
		has[id(obj)] = true
	}
	var all []Reference
	for _, obj := range objects {
		in, ref := reference(obj)
		var role client.Object = newClusterRole(ref.Name)
		if ref.Kind == kindRole {
			role = newRole(types.NamespacedName{Namespace: in, Name: ref.Name})
		}
		if ref.Name != "" && !has[id(role)] {
			all = append(all, Reference{obj, role, in})
		}
	}
	return all
}
