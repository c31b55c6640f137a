package membership

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
		writeGroups(obj)
		switch before := known[id(obj)]; {
		case obj.GetName() == "":
			return nil, fmt.Errorf("there is a %s without a name", kind)
		case namespaced(obj) && obj.GetNamespace() == "":
			return nil, fmt.Errorf("the %s %s has no namespace: write it down", kind, obj.GetName())
		case wrongName(obj) != "":
			return nil, fmt.Errorf("the %s %.64q cannot be called so: %s", kind, obj.GetName(), wrongName(obj))
		case wrongMeta(obj) != nil:
			return nil, fmt.Errorf("the %s %s cannot be applied: %w", kind, obj.GetName(), wrongMeta(obj))
		case wrongReference(obj) != "":
			return nil, fmt.Errorf("the %s %s cannot be applied, since %s", kind, obj.GetName(), wrongReference(obj))
		case before == nil:
			known[id(obj)] = obj
			each = append(each, obj)
		case !equality.Semantic.DeepEqual(before, obj):
			return nil, fmt.Errorf("the %s %s is there twice, and differs", kind, obj.GetName())
		}
		for _, subject := range subjectsOf(obj) {
			if err := soundSubject(subject); err != nil {
				return nil, fmt.Errorf("the %s %s is for a %w", kind, obj.GetName(), err)
			}
		}
		if role, is := obj.(*rbacv1.Role); is && slices.ContainsFunc(role.Rules, wrongRule) {
			return nil, fmt.Errorf("the Role %s/%s has a rule without verbs, apiGroups or resources, or one about URLs", role.Namespace, role.Name)
		}
	}
	return each, nil
}

// writeGroups writes down what a binding may leave out, as API servers do. They compare it with what others have applied before they do so.
func writeGroups(obj client.Object) {
	var role *rbacv1.RoleRef
	switch b := obj.(type) {
	case *rbacv1.RoleBinding:
		role = &b.RoleRef
	case *rbacv1.ClusterRoleBinding:
		role = &b.RoleRef
	default:
		return
	}
	role.APIGroup = cmp.Or(role.APIGroup, rbacv1.GroupName)
	for i, subject := range subjectsOf(obj) {
		if subject.Kind == rbacv1.UserKind || subject.Kind == rbacv1.GroupKind {
			subjectsOf(obj)[i].APIGroup = cmp.Or(subject.APIGroup, rbacv1.GroupName)
		}
	}
}

// wrongName says what API servers do not take of an object's name and namespace. A dry run does not tell where the namespace is not made
// yet.
func wrongName(obj client.Object) string {
	var wrong []string
	switch obj.(type) {
	case *corev1.Namespace:
		wrong = validation.IsDNS1123Label(obj.GetName())
	case *corev1.ServiceAccount:
		wrong = validation.IsDNS1123Subdomain(obj.GetName())
	default:
		wrong = content.IsPathSegmentName(obj.GetName())
	}
	if namespaced(obj) && len(wrong) == 0 && len(validation.IsDNS1123Label(obj.GetNamespace())) > 0 {
		wrong = []string{fmt.Sprintf("no namespace has the name %.64q", obj.GetNamespace())}
	}
	return strings.Join(wrong, "; ")
}

// wrongMeta says what API servers do not take of an object's labels, annotations and the like.
func wrongMeta(obj client.Object) error {
	named := func(string, bool) []string { return nil } // wrongName tells
	return apivalidation.ValidateObjectMetaAccessor(obj, namespaced(obj), named, field.NewPath("metadata")).ToAggregate()
}

// wrongReference says what API servers do not take of the role that a binding refers to.
func wrongReference(obj client.Object) string {
	kinds := []string{kindClusterRole, kindRole}
	switch obj.(type) {
	case *rbacv1.RoleBinding:
	case *rbacv1.ClusterRoleBinding:
		kinds = kinds[:1]
	default:
		return ""
	}
	_, ref := reference(obj)
	switch wrong := content.IsPathSegmentName(ref.Name); {
	case !slices.Contains(kinds, ref.Kind):
		return fmt.Sprintf("the kind in its roleRef is %.64q, not %s", ref.Kind, strings.Join(kinds, " or "))
	case ref.APIGroup != "" && ref.APIGroup != rbacv1.GroupName:
		return fmt.Sprintf("the apiGroup in its roleRef is %.64q, not %s", ref.APIGroup, rbacv1.GroupName)
	case ref.Name == "":
		return "its roleRef has no name"
	case len(wrong) > 0:
		return fmt.Sprintf("no role has the name %.64q in its roleRef: %s", ref.Name, strings.Join(wrong, "; "))
	default:
		return ""
	}
}

// soundSubject returns an error if API servers do not take a subject, which it names.
func soundSubject(s rbacv1.Subject) error {
	switch account := s.Kind == rbacv1.ServiceAccountKind; {
	case account && s.Namespace == "":
		return fmt.Errorf("service account %s without a namespace: write it down", s.Name)
	case account && wrongName(AccountOf(s)) != "":
		return fmt.Errorf("ServiceAccount %.64q, which cannot be called so: %s", s.Name, wrongName(AccountOf(s)))
	case account && s.APIGroup != "":
		return fmt.Errorf("ServiceAccount %.64q of the apiGroup %.64q: it has none", s.Name, s.APIGroup)
	case account:
		return nil
	case s.Kind != rbacv1.UserKind && s.Kind != rbacv1.GroupKind:
		return fmt.Errorf("subject %.64q whose kind is %.64q, not ServiceAccount, User or Group", s.Name, s.Kind)
	case s.Name == "":
		return fmt.Errorf("%s without a name", s.Kind)
	case s.APIGroup != "" && s.APIGroup != rbacv1.GroupName:
		return fmt.Errorf("%s %.64q of the apiGroup %.64q: it is %s", s.Kind, s.Name, s.APIGroup, rbacv1.GroupName)
	default:
		return nil
	}
}

// wrongRule reports whether API servers refuse a rule in a Role, which a dry run does not tell either.
func wrongRule(r rbacv1.PolicyRule) bool {
	return len(r.Verbs) == 0 || len(r.APIGroups) == 0 || len(r.Resources) == 0 || len(r.NonResourceURLs) > 0
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

// Needs returns what must be there before an object can be made: its namespace, and the role that it binds.
func Needs(obj client.Object) []client.Object {
	var all []client.Object
	if obj.GetNamespace() != "" {
		all = append(all, newNamespace(obj.GetNamespace()))
	}
	if role := RoleOf(obj); role != nil {
		all = append(all, role)
	}
	return all
}

// RoleOf returns the role that a binding is about, or nil.
func RoleOf(obj client.Object) client.Object {
	switch in, ref := reference(obj); {
	case ref.Name == "":
		return nil
	case ref.Kind == kindRole:
		return newRole(types.NamespacedName{Namespace: in, Name: ref.Name})
	default:
		return newClusterRole(ref.Name)
	}
}

// References returns the roles that bindings among objects give, and that are not among these.
func References(objects []client.Object) []Reference {
	has := map[string]bool{}
	for _, obj := range objects {
		has[id(obj)] = true
	}
	var all []Reference
	for _, obj := range objects {
		if role := RoleOf(obj); role != nil && !has[id(role)] {
			all = append(all, Reference{obj, role, obj.GetNamespace()})
		}
	}
	return all
}
