package membership

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	kindNamespace          = "Namespace"
	kindServiceAccount     = "ServiceAccount"
	kindRole               = "Role"
	kindRoleBinding        = "RoleBinding"
	kindClusterRole        = "ClusterRole"
	kindClusterRoleBinding = "ClusterRoleBinding"
)

const rankOfRoles = 2

// rank orders objects as they can be made: none needs one that comes after it.
func rank(obj client.Object) int {
	switch obj.(type) {
	case *corev1.Namespace:
		return 0
	case *corev1.ServiceAccount:
		return 1
	case *rbacv1.Role, *rbacv1.ClusterRole:
		return rankOfRoles
	case *rbacv1.RoleBinding, *rbacv1.ClusterRoleBinding:
		return 3
	default:
		return 4
	}
}

// IsBare reports whether of an object nothing is said but its name: where it is there, nothing of it is to be written.
func IsBare(obj client.Object) bool {
	switch obj := obj.(type) {
	case *corev1.Namespace:
		return equality.Semantic.DeepEqual(obj, newNamespace(obj.Name))
	case *corev1.ServiceAccount:
		return equality.Semantic.DeepEqual(obj, newAccount(client.ObjectKeyFromObject(obj)))
	default:
		return false
	}
}

func newNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: kindNamespace},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}

func newAccount(key types.NamespacedName) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: kindServiceAccount},
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
	}
}

func newRole(key types.NamespacedName, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kindRole},
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Rules:      rules,
	}
}

func newClusterRole(name string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kindClusterRole},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}

func newRoleBinding(key types.NamespacedName, role string, subject rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kindRoleBinding},
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kindRole, Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}
}

func newClusterRoleBinding(name, role string, subject rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kindClusterRoleBinding},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kindClusterRole, Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}
}
