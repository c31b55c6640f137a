package remote

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/internal/paths"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// TakeAway takes owners from a dependent: it deletes the dependent, unless the policy is Orphan, the dependent itself says that
// it is to stay, or is one of these owners, or there is another owner; then it removes the references. It does so as the object was read: if it was
// changed since, nothing happens, and the error is a conflict. One that is gone already is no error. A namespace that was created
// for dependents is deleted only if it is empty of others; the error wraps ErrEmptying while that is not so yet. Any other
// namespace is deleted only with its controller, and nothing is that was there before its owners. What has a name that leads elsewhere is not
// touched.
func TakeAway(
	ctx context.Context, a *Access, into Look, writer client.Writer, at Session, k Kind, obj client.Object,
	owners []mcowner.Reference, policy metav1.DeletionPropagation,
) (deleted bool, err error) {
	if err := paths.CheckNames(obj.GetNamespace(), obj.GetName()); err != nil {
		return false, fmt.Errorf("removing a %s from %s, as its API server lists it: %w", k.Kind, at, err)
	}
	meta := k.Of(obj).NewMetadata()
	meta.ObjectMeta = metav1.ObjectMeta{
		Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
		Labels: obj.GetLabels(), Annotations: obj.GetAnnotations(), OwnerReferences: obj.GetOwnerReferences(),
	}
	released, goes := release(k, meta, at.ID, owners)
	deleted = goes && policy != metav1.DeletePropagationOrphan
	if deleted && IsCreated(k, obj) {
		if deleted, err = into.isEmpty(ctx, a, at, obj.GetName()); err != nil {
			return false, fmt.Errorf("removing %s from %s: %w", k.Describe(obj), at, err)
		}
	}
	ctx, cancel := a.Bound(ctx)
	defer cancel()
	if deleted {
		err = writer.Delete(ctx, meta, client.PropagationPolicy(policy), client.Preconditions{
			UID: new(meta.UID), ResourceVersion: new(meta.ResourceVersion),
		})
	} else {
		err = writer.Patch(ctx, released, client.MergeFromWithOptions(meta, client.MergeFromWithOptimisticLock{}))
	}
	if err != nil && !notfound.Is(err, obj.GetName()) { // nor is it gone where its version is not served any more
		return deleted, ErrorAbout(k, fmt.Sprintf("removing %s from %s", k.Describe(obj), at), err)
	}
	return deleted, nil
}

// release returns a dependent without owners, and whether it goes with them: it has no others, is in the place of none of these, and does
// not say that it is to stay.
func release(
	k Kind, obj *metav1.PartialObjectMetadata, in mcowner.ClusterID, owners []mcowner.Reference,
) (released *metav1.PartialObjectMetadata, goes bool) {
	released = obj.DeepCopy()
	for _, owner := range owners {
		mcowner.RemoveReference(owner, released)
	}
	others, err := mcowner.References(released, in)
	stays := obj.Annotations[mcowner.DeletionPolicyAnnotation] == string(metav1.DeletePropagationOrphan) || isUnmarked(k, obj, owners) ||
		slices.ContainsFunc(owners, func(owner mcowner.Reference) bool { return k.IsItself(obj, in, owner) })
	return released, err == nil && !stays && len(others)+len(released.OwnerReferences) == 0
}

// IsItself reports whether an object of this kind, in a cluster, is an owner, or what has come in its place, such as from a backup: it is nobody's
// dependent then.
func (k Kind) IsItself(obj client.Object, in mcowner.ClusterID, owner mcowner.Reference) bool {
	isHere := owner.ClusterUID != "" && owner.ClusterUID == in.UID || owner.Cluster == in.Name && !mcowner.Differ(owner.ClusterUID, in.UID)
	hasPlace := owner.GroupKind() == k.GroupKind() && owner.NamespacedName() == client.ObjectKeyFromObject(obj)
	return owner.UID == obj.GetUID() || isHere && hasPlace
}
