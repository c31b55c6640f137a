package dependents

import (
	"encoding/base64"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// asStored changes a configuration where API servers never store what is written. Such a field would not be as it was applied, and
// would be applied again after each restart; one that nobody has set would be held against those that do set it.
func asStored(config *unstructured.Unstructured) {
	switch config.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "Service"}: // Go writes 0 for a targetPort that was left out
		ports, _, _ := unstructured.NestedFieldNoCopy(config.Object, "spec", "ports")
		for _, port := range itemsOf(ports) {
			leaveOut(port, "targetPort", int64(0))
		}
	case schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}, schema.GroupKind{Group: rbacv1.GroupName, Kind: "ClusterRoleBinding"}:
		role, _, _ := unstructured.NestedFieldNoCopy(config.Object, "roleRef")
		leaveOut(role, "apiGroup", "")
	case schema.GroupKind{Kind: "Secret"}:
		storeText(config)
	}
}

// itemsOf returns the items of a list, none if it is no list.
func itemsOf(list any) []any {
	items, _ := list.([]any)
	return items
}

// leaveOut removes a field of an object that has this value.
func leaveOut(object any, field string, value any) {
	if fields, ok := object.(map[string]any); ok && fields[field] == value {
		delete(fields, field)
	}
}

// storeText moves the text of a Secret into its data, as API servers do. What does not look like a Secret is for these to refuse.
func storeText(secret *unstructured.Unstructured) {
	texts, there, err := unstructured.NestedStringMap(secret.Object, "stringData")
	data, _, wrong := unstructured.NestedMap(secret.Object, "data")
	if !there || err != nil || wrong != nil {
		return
	}
	if data == nil {
		data = map[string]any{}
	}
	for key, text := range texts {
		data[key] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	secret.Object["data"] = data
	delete(secret.Object, "stringData")
}
