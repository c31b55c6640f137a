package membership

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NamespaceKind is the kind of namespaces, which are deleted only if they are empty.
func NamespaceKind() schema.GroupVersionKind {
	return corev1.SchemeGroupVersion.WithKind(kindNamespace)
}

// SecretKind is the kind of the minter's Secret.
func SecretKind() schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind("Secret") }

// HubKinds are the kinds of what is made in the hub beside the ClusterAccess.
func HubKinds() []schema.GroupVersionKind { return []schema.GroupVersionKind{SecretKind()} }

// MemberKinds are the kinds of what is made in a member, in the order in which they are deleted: accounts before what bounds them, and
// namespaces last.
func MemberKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind(kindServiceAccount),
		rbacv1.SchemeGroupVersion.WithKind(kindClusterRoleBinding),
		rbacv1.SchemeGroupVersion.WithKind(kindRoleBinding),
		rbacv1.SchemeGroupVersion.WithKind(kindClusterRole),
		rbacv1.SchemeGroupVersion.WithKind(kindRole),
		admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"),
		admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
		NamespaceKind(),
	}
}

// WebhooksLabel is on the configurations of webhooks that programs keep in members.
const WebhooksLabel = "webhooks.fleet-runtime.dev/name"

// WebhookKinds are the kinds of these. They go before all else: what is left of them may refuse each write.
func WebhookKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"),
		admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"),
	}
}

// ManualLook is what a person runs in a member to see which configurations of webhooks are for it, and of which program.
const ManualLook = `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations --selector ` + WebhooksLabel +
	` --output 'custom-columns=KIND:.kind,NAME:.metadata.name,PROGRAM:.metadata.annotations.webhooks\.fleet-runtime\.dev/program'`

// ManualCommands are what a person runs in a member to remove what matches the selector. Namespaces are named for a look, since others
// may have something in them.
func ManualCommands(selector string) []string {
	var kinds []string
	for _, kind := range MemberKinds() {
		if kind != NamespaceKind() {
			kinds = append(kinds, strings.ToLower(kind.Kind))
		}
	}
	return []string{
		"kubectl delete " + strings.Join(kinds, ",") + " --all-namespaces --selector '" + selector + "'",
		"kubectl get namespaces --selector '" + selector + "'",
	}
}
