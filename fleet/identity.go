package fleet

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReadIdentity reads which cluster it is that a reader reads from: the UID of its namespace kube-system. It is empty,
// without an error, where there is no such namespace, or no right to get it. The reader must ask the server, as
// cluster.Cluster.GetAPIReader does. Engaged members have theirs in [Engagement.Identity]; this is for the local cluster.
func ReadIdentity(ctx context.Context, reader client.Reader) (string, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	err := reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading which cluster it is, by its namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(namespace.GetUID()), nil
}
