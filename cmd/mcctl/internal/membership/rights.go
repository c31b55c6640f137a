// Package membership holds what makes a cluster a member of a fleet: the objects on both sides, and the order in which they are made
// and taken away.
package membership

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
)

// Rights are what the controllers of a fleet may do in a member, as manifests say it.
type Rights struct {
	// Account is the one that the controllers come by.
	Account types.NamespacedName
	// Objects are those of the manifests, and those that are missing: the namespace, the account, and a binding to the account for
	// each role without one. They are in the order in which they can be made.
	Objects []client.Object

	// manifests are the objects that were read.
	manifests []client.Object
}

// maxManifests bounds what is read of a file with manifests, in bytes.
const maxManifests = 4 << 20

// ReadRights reads manifests: roles, and if they are there, bindings, the account and its namespace. Anything else is an error.
// If there are several accounts, or another one is meant, account says which. fallback is the one that is made if neither says. If all
// three say none, that of the rights is empty, and they are of no use.
func ReadRights(manifests io.Reader, account, fallback types.NamespacedName) (Rights, error) {
	objects, err := decode(io.LimitReader(manifests, maxManifests+1))
	if err != nil {
		return Rights{}, err
	}
	if !slices.ContainsFunc(objects, isRole) {
		return Rights{}, errors.New("there is no role in them, so the controllers could do nothing")
	}
	if objects, err = sound(objects); err != nil {
		return Rights{}, err
	}
	r := Rights{manifests: objects}
	if r.Account, err = accountOf(objects, account, fallback); err != nil {
		return Rights{}, err
	}
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: r.Account.Namespace, Name: r.Account.Name}
	r.Objects = complete(objects, subject, newAccount(r.Account))
	return r, nil
}

func decode(manifests io.Reader) ([]client.Object, error) {
	text, err := io.ReadAll(manifests)
	if err != nil {
		return nil, err
	}
	if len(text) > maxManifests {
		return nil, fmt.Errorf("the manifests are longer than %d MiB", maxManifests>>20)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []client.Object
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if blank(document) {
			continue
		}
		obj, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", len(objects)+1, err)
		}
		switch typed := obj.(type) {
		case *corev1.Namespace, *corev1.ServiceAccount, *rbacv1.Role, *rbacv1.ClusterRole, *rbacv1.RoleBinding, *rbacv1.ClusterRoleBinding:
			typed.GetObjectKind().SetGroupVersionKind(*kind)
			objects = append(objects, typed.(client.Object)) //nolint:forcetypeassert // each of these is one
		default:
			return nil, fmt.Errorf("document %d: a %s is no right: only roles, bindings, service accounts and namespaces are applied", len(objects)+1, kind.Kind)
		}
	}
}

func isRole(obj client.Object) bool { return rank(obj) == rankOfRoles }

// blank reports whether a document has nothing but space and comments.
func blank(document []byte) bool {
	for line := range bytes.Lines(document) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

// accountOf returns the account that the controllers come by.
func accountOf(objects []client.Object, wanted, fallback types.NamespacedName) (types.NamespacedName, error) {
	if wanted.Name != "" {
		return wanted, nil
	}
	var found []types.NamespacedName
	for _, obj := range objects {
		if _, is := obj.(*corev1.ServiceAccount); is {
			found = append(found, client.ObjectKeyFromObject(obj))
		}
	}
	switch len(found) {
	case 0:
		return fallback, nil
	case 1:
		return found[0], nil
	default:
		return types.NamespacedName{}, fmt.Errorf("the manifests have %d service accounts (%s, ...): say which one the controllers come by", len(found), found[0])
	}
}

// complete adds what manifests leave out: more, the namespaces, and a binding to the subject for each role without one. The result is in
// the order in which it can be made.
func complete(manifests []client.Object, subject rbacv1.Subject, more ...client.Object) []client.Object {
	all := slices.Clone(manifests)
	has, bound := map[string]bool{}, map[string]bool{}
	for _, obj := range manifests {
		has[id(obj)] = true
		if namespace, ref := reference(obj); ref.Name != "" {
			bound[ref.Kind+" "+namespace+"/"+ref.Name] = true
			if ref.Kind == "ClusterRole" {
				bound[ref.Kind+" /"+ref.Name] = true
			}
		}
	}
	add := func(obj client.Object) {
		if !has[id(obj)] {
			has[id(obj)] = true
			all = append(all, obj)
		}
	}
	for _, obj := range more {
		add(obj)
	}
	for _, obj := range slices.Clone(all) {
		if obj.GetNamespace() != "" {
			add(newNamespace(obj.GetNamespace()))
		}
		switch role := obj.(type) {
		case *rbacv1.ClusterRole:
			if !bound["ClusterRole /"+role.Name] {
				add(newClusterRoleBinding(role.Name, role.Name, subject))
			}
		case *rbacv1.Role:
			if !bound["Role "+role.Namespace+"/"+role.Name] {
				add(newRoleBinding(client.ObjectKeyFromObject(role), role.Name, subject))
			}
		}
	}
	slices.SortStableFunc(all, func(a, b client.Object) int { return cmp.Compare(rank(a), rank(b)) })
	return all
}

// reference returns the role that a binding is about.
func reference(obj client.Object) (namespace string, ref rbacv1.RoleRef) {
	switch binding := obj.(type) {
	case *rbacv1.RoleBinding:
		return binding.Namespace, binding.RoleRef
	case *rbacv1.ClusterRoleBinding:
		return "", binding.RoleRef
	default:
		return "", ref
	}
}

func id(obj client.Object) string {
	return obj.GetObjectKind().GroupVersionKind().Kind + " " + client.ObjectKeyFromObject(obj).String()
}

// For returns what gives the rights to another subject than the account, such as a user by whose name the hub's tokens are accepted.
// The account itself is left out.
func (r Rights) For(subject rbacv1.Subject) []client.Object {
	replace := func(subjects []rbacv1.Subject) {
		for i, s := range subjects {
			if s.Kind == rbacv1.ServiceAccountKind && s.Namespace == r.Account.Namespace && s.Name == r.Account.Name {
				subjects[i] = subject
			}
		}
	}
	var objects []client.Object
	for _, obj := range r.manifests {
		if account, is := obj.(*corev1.ServiceAccount); is && client.ObjectKeyFromObject(account) == r.Account {
			continue
		}
		obj = obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // it was one
		switch binding := obj.(type) {
		case *rbacv1.RoleBinding:
			replace(binding.Subjects)
		case *rbacv1.ClusterRoleBinding:
			replace(binding.Subjects)
		}
		objects = append(objects, obj)
	}
	return complete(objects, subject)
}

// GivenBy returns what the roles among objects give, one by one.
func GivenBy(all []client.Object) ([]rights.Right, error) {
	grants, err := grantsOf(all)
	var given []rights.Right
	for _, grant := range grants {
		given = append(given, grant.Rights()...)
	}
	return given, err
}

// WrittenBy returns what API servers want those to have that write the roles among objects: the rules of a ClusterRole everywhere, also where
// it is bound in some namespaces alone.
func WrittenBy(all []client.Object) ([]rights.Right, error) {
	grants, err := grantsOf(all)
	written := make([]rights.Right, 0, len(grants))
	for _, grant := range grants {
		written = append(written, rights.Of(grant.Namespace, grant.Rules...)...)
	}
	return written, err
}

func grantsOf(all []client.Object) ([]rights.Grant, error) {
	objects := make([]*unstructured.Unstructured, len(all))
	for i, obj := range all {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, err
		}
		objects[i] = &unstructured.Unstructured{Object: content}
	}
	return rights.Grants(objects)
}
