package remote

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// MayDelete reports whether the user of a writer has the right to delete a dependent. Where the API server does not say, it may.
func MayDelete(ctx context.Context, a *Access, writer client.Writer, at Session, k Kind, obj client.Object) bool {
	mapping, err := a.Mapper(at).RESTMapping(k.GroupKind(), k.Version)
	if err != nil {
		return true
	}
	namespace := obj.GetNamespace()
	if isNamespace(k) { // the right to one may be by a binding in it
		namespace = obj.GetName()
	}
	review := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"resourceAttributes": map[string]any{
		"verb": "delete", "group": mapping.Resource.Group, "version": mapping.Resource.Version, "resource": mapping.Resource.Resource,
		"namespace": namespace, "name": obj.GetName(),
	}}}}
	review.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview")) // whatever scheme the writer has
	ctx, cancel := a.Bound(ctx)
	defer cancel()
	if err := writer.Create(ctx, review); err != nil {
		return true
	}
	allowed, said, err := unstructured.NestedBool(review.Object, "status", "allowed")
	failed, _, _ := unstructured.NestedString(review.Object, "status", "evaluationError") // of an authorizer
	return allowed || !said || err != nil || failed != ""
}
