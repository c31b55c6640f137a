package dependents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// takeAway takes the owner from a dependent: it deletes the dependent, unless the policy is Orphan or there is another
// owner; then it removes the reference. It changes nothing that is not this owner's.
func (a *applier) takeAway(ctx context.Context, k kind, obj client.Object, policy metav1.DeletionPropagation) error {
	references, err := a.at.references(obj)
	mine := slices.DeleteFunc(references, func(r mcowner.Reference) bool { return !a.ref.Succeeds(r) })
	if err != nil || len(mine) == 0 {
		return nil //nolint:nilerr // what cannot be read is nobody's
	}
	deleted, err := takeAway(ctx, a.access, a.writer, a.at, k, obj, mine, policy)
	if err != nil {
		return err
	}
	a.memory.forget(a.keyOf(k, obj))
	reason := EventOrphaned
	if deleted {
		reason = EventDeleted
	}
	a.did(reason, a.at.name, k.describe(obj))
	return nil
}

// takeAway takes owners from a dependent, as the object was read: if it was changed since, nothing happens, and the error
// is a conflict. One that is gone already is no error.
func takeAway(
	ctx context.Context, p *access, writer client.Client, at session, k kind, obj client.Object,
	owners []mcowner.Reference, policy metav1.DeletionPropagation,
) (deleted bool, err error) {
	ctx, cancel := p.bound(ctx)
	defer cancel()
	meta := k.newMetadata()
	meta.ObjectMeta = metav1.ObjectMeta{
		Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
		Labels: obj.GetLabels(), Annotations: obj.GetAnnotations(), OwnerReferences: obj.GetOwnerReferences(),
	}
	released := meta.DeepCopy()
	for _, owner := range owners {
		mcowner.RemoveReference(owner, released)
	}
	others, err := mcowner.References(released, at.name)
	deleted = policy != metav1.DeletePropagationOrphan && len(others)+len(released.OwnerReferences) == 0 && err == nil
	if deleted {
		err = writer.Delete(ctx, meta, client.PropagationPolicy(policy), client.Preconditions{
			UID: new(meta.UID), ResourceVersion: new(meta.ResourceVersion),
		})
	} else {
		err = writer.Patch(ctx, released, client.MergeFromWithOptions(meta, client.MergeFromWithOptimisticLock{}))
	}
	if err = client.IgnoreNotFound(err); err != nil {
		return deleted, fmt.Errorf("removing %s from %s: %w", k.describe(obj), clusterText(at.name), err)
	}
	return deleted, nil
}

// dependent is an object of a cluster that has a reference to the owner.
type dependent struct {
	kind
	obj client.Object
}

// known returns the dependents of an owner in a cluster, as the caches have them. Those of an owner of the same name that
// is gone are among them.
func (c *controller) known(ctx context.Context, at session, owner mcowner.Reference) ([]dependent, error) {
	var found []dependent
	for _, k := range c.kinds {
		list, err := c.list(ctx, at, k, owner)
		if err != nil {
			return nil, fmt.Errorf("listing %s of %s: %w", k.gvk.GroupKind(), clusterText(at.name), err)
		}
		err = meta.EachListItem(list, func(item runtime.Object) error {
			obj := item.(client.Object) //nolint:forcetypeassert // so are all that caches have
			obj.GetObjectKind().SetGroupVersionKind(k.gvk)
			if isOf(obj, at, owner) {
				found = append(found, dependent{k, obj})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// list lists by an index of the cache, which it adds where it is not there yet.
func (c *controller) list(ctx context.Context, at session, k kind, owner mcowner.Reference) (client.ObjectList, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	list, err := k.newList(c.mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	index := "owner." + c.name + "." + c.fleet
	_, notIndexed := k.indexed.get(at.engagement, func() (struct{}, error) {
		return struct{}{}, at.cluster.GetFieldIndexer().IndexField(ctx, k.newObject(), index, ownerKeys)
	})
	err = at.cluster.GetCache().List(ctx, list, client.MatchingFields{index: owner.Key()})
	if err != nil {
		return nil, errors.Join(err, notIndexed) // members that share a cache share the index, which can be added once
	}
	return list, nil
}

// ownerKeys returns the keys of an object's owners.
func ownerKeys(obj client.Object) []string {
	var keys []string
	for key := range obj.GetAnnotations() {
		if strings.HasPrefix(key, mcowner.KeyPrefix) {
			keys = append(keys, key)
		}
	}
	return keys
}

// isOf reports whether an object has a reference to the owner, or to one that the owner succeeds.
func isOf(obj client.Object, at session, owner mcowner.Reference) bool {
	references, err := at.references(obj)
	return err == nil && slices.ContainsFunc(references, owner.Succeeds)
}

// contested returns an error for an object that says it is this very owner's, of another cluster: the clusters' identities
// may be of another kind than they were, and the owner must not go without a word.
func (a *applier) contested(k kind, obj client.Object) error {
	references, _ := a.at.references(obj) // what cannot be read is nobody's
	i := slices.IndexFunc(references, func(r mcowner.Reference) bool { return r.Key() == a.ref.Key() && r.UID == a.ref.UID })
	if i < 0 {
		return nil
	}
	return &ConflictError{Cluster: a.at.name, Object: k.describe(obj), Why: a.otherCluster(obj, &references[i])}
}

// otherCluster says that an object's reference is to an owner of the same name that is in another cluster.
func (a *applier) otherCluster(obj client.Object, owner *mcowner.Reference) error {
	return &mcowner.AlreadyOwnedError{Dependent: locate(a.at, obj), Owner: owner, Now: &a.ref}
}

// emptyCluster takes the owner from all its dependents in the cluster, and returns how many are being deleted then. It asks the
// API server: the cache may not know yet what was created last.
func (a *applier) emptyCluster(ctx context.Context, policy metav1.DeletionPropagation) (going int, err error) {
	selector, err := ofOwner(a.ref)
	if err != nil {
		return 0, err
	}
	a.memory.forgetCluster(a.at.name)
	var errs []error
	for _, k := range a.kinds {
		list := scan{namespaces: a.namespaces, pageSize: defaultPageSize}
		err := list.each(ctx, a.access, a.at, k, selector, func(obj *metav1.PartialObjectMetadata) error {
			if !isOf(obj, a.at, a.ref) {
				errs = append(errs, a.contested(k, obj))
				return nil
			}
			if policy != metav1.DeletePropagationOrphan {
				going++
			}
			if !obj.DeletionTimestamp.IsZero() && policy != metav1.DeletePropagationOrphan {
				return nil
			}
			errs = append(errs, a.takeAway(ctx, k, obj, policy))
			return nil
		})
		errs = append(errs, err)
	}
	return going, errors.Join(errs...)
}
