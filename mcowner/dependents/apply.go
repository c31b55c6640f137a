package dependents

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// apply makes one dependent as it is desired, and returns it as last seen.
func (a *applier) apply(ctx context.Context, k kind, desired client.Object) (client.Object, error) {
	wanted, err := a.configuration(k, desired)
	if err != nil {
		return nil, fmt.Errorf("applying %s to %s: %w", k.describe(desired), clusterText(a.at.name), err)
	}
	existing, err := a.get(ctx, a.at.cluster.GetCache(), k, wanted)
	var result client.Object
	switch {
	case apierrors.IsNotFound(err):
		result, err = a.create(ctx, k, wanted)
	case err == nil:
		result, err = a.change(ctx, k, existing, wanted)
	}
	if !isOutdated(err) {
		return result, err
	}
	existing, missing := a.get(ctx, a.at.cluster.GetAPIReader(), k, wanted) // the cache is behind
	switch {
	case apierrors.IsNotFound(missing):
		return nil, err
	case missing != nil:
		return nil, missing
	}
	return a.change(ctx, k, existing, wanted)
}

// isOutdated reports whether an error says that an object is not what it was thought to be.
func isOutdated(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// configuration returns the fields that a dependent is to have, with the reference to the owner.
func (a *applier) configuration(k kind, desired client.Object) (*unstructured.Unstructured, error) {
	namespaced, err := a.at.cluster.GetClient().IsObjectNamespaced(desired)
	switch {
	case err != nil:
		return nil, err
	case desired.GetName() == "":
		return nil, errors.New("it has no name")
	case !namespaced && desired.GetNamespace() != "":
		return nil, fmt.Errorf("it has the namespace %q, and its kind has none", desired.GetNamespace())
	case len(a.namespaces) > 0 && !slices.Contains(a.namespaces, desired.GetNamespace()):
		return nil, fmt.Errorf("it is in the namespace %q, which is not one of the controller's Namespaces", desired.GetNamespace())
	}
	obj := desired.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	if err := mcowner.SetControllerReference(a.refHere(), obj, a.at.name); err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: withoutNulls(content)}
	u.SetGroupVersionKind(k.gvk)
	// The rest is the API server's.
	unstructured.RemoveNestedField(u.Object, "status")
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	return u, nil
}

// refHere returns the reference that dependents in the cluster have.
func (a *applier) refHere() mcowner.Reference {
	ref := a.ref
	ref.Dependent.ClusterUID = a.at.identity
	return ref
}

// keepIdentities returns what is wanted. Where it is not known now which clusters these are, that is taken from the existing
// reference: the right to know it may be back later.
func (a *applier) keepIdentities(wanted *unstructured.Unstructured, existing client.Object) (*unstructured.Unstructured, error) {
	before, ok := existing.GetAnnotations()[a.ref.Key()]
	if !ok || a.ref.ClusterUID != "" && a.at.identity != "" {
		return wanted, nil
	}
	kept := wanted.DeepCopy()
	kept.SetAnnotations(withKey(kept.GetAnnotations(), a.ref.Key(), before))
	return kept, mcowner.SetControllerReference(a.refHere(), kept, a.at.name)
}

// withoutNulls removes the nulls that Go types without a value become.
func withoutNulls(content map[string]any) map[string]any {
	for key, value := range content {
		switch value := value.(type) {
		case nil:
			delete(content, key)
		case map[string]any:
			withoutNulls(value)
		case []any:
			for _, item := range value {
				if m, ok := item.(map[string]any); ok {
					withoutNulls(m)
				}
			}
		}
	}
	return content
}

// create creates a dependent, and then applies, so that the fields are those of one who applies. Applying at once could
// change an object that somebody else creates this very moment.
func (a *applier) create(ctx context.Context, k kind, wanted *unstructured.Unstructured) (client.Object, error) {
	created := wanted.DeepCopy()
	requesting, cancel := a.bound(ctx)
	defer cancel()
	if err := a.writer.Create(requesting, created, client.FieldOwner(a.name)); err != nil {
		return nil, fmt.Errorf("creating %s in %s: %w", k.describe(wanted), clusterText(a.at.name), err)
	}
	a.did(EventCreated, a.at.name, k.describe(wanted))
	if _, err := a.adoptFields(ctx, created); err != nil {
		return nil, err
	}
	result, err := a.applyOver(ctx, k, created, wanted)
	if err != nil {
		return nil, err
	}
	return a.seen(k, wanted, result)
}

// mayChange returns nil for an object that is this owner's, and otherwise why it must not be changed. What is left of an
// owner of the same name that is gone is deleted.
func (a *applier) mayChange(ctx context.Context, k kind, existing client.Object) error {
	references, err := a.at.references(existing)
	conflict := &ConflictError{Cluster: a.at.name, Object: k.describe(existing), Why: err}
	if err != nil {
		return conflict
	}
	i := slices.IndexFunc(references, func(r mcowner.Reference) bool { return r.Controller })
	switch {
	case i >= 0 && references[i].Same(a.ref):
		if !existing.GetDeletionTimestamp().IsZero() {
			return fmt.Errorf("%s of %s: %w", k.describe(existing), clusterText(a.at.name), errGoing)
		}
		return nil
	case i >= 0 && a.ref.Succeeds(references[i]):
		if err := a.takeAway(ctx, k, existing, metav1.DeletePropagationBackground); err != nil {
			return err
		}
		return fmt.Errorf("%s of %s is of an owner of the same name that is gone: %w", k.describe(existing), clusterText(a.at.name), errGoing)
	case i >= 0 && references[i].Key() == a.ref.Key():
		conflict.Why = a.otherCluster(existing, &references[i])
	case i >= 0:
		conflict.Why = &mcowner.AlreadyOwnedError{Dependent: locate(a.at, existing), Owner: &references[i]}
	case metav1.GetControllerOfNoCopy(existing) != nil:
		conflict.Why = &mcowner.AlreadyOwnedError{Dependent: locate(a.at, existing), Native: metav1.GetControllerOf(existing)}
	case a.isFromAnother(existing):
		conflict.Why = errCopy
	default:
		conflict.Why = errNoReference
	}
	return conflict
}

// isFromAnother reports whether the object has a reference to the owner that was written in another cluster of the name.
func (a *applier) isFromAnother(existing client.Object) bool {
	references, err := mcowner.References(existing, a.at.name)
	return err == nil && slices.ContainsFunc(references, a.ref.Succeeds)
}

var (
	errNoReference = errors.New("it has no reference to an owner")
	errCopy        = errors.New("it is a copy, such as from a backup, of one in another cluster that had the name; delete it, and a new one takes its place")
)

func locate(at session, obj client.Object) mcowner.Location {
	return mcowner.Location{Cluster: at.name, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// change applies to an object if it is this owner's, unless nothing has changed since that was done last.
func (a *applier) change(ctx context.Context, k kind, existing client.Object, wanted *unstructured.Unstructured) (client.Object, error) {
	if err := a.mayChange(ctx, k, existing); err != nil {
		return nil, err
	}
	wanted, err := a.keepIdentities(wanted, existing)
	if err != nil {
		return nil, err
	}
	now, err := hashes(wanted, existing)
	if err != nil {
		return nil, err
	}
	if a.memory.is(a.keyOf(k, existing), now) {
		return existing, nil
	}
	result, err := a.applyOver(ctx, k, existing, wanted)
	if err != nil {
		return nil, err
	}
	adopted, err := a.adoptFields(ctx, result)
	if err == nil && adopted { // now fields that are no longer desired can go
		result, err = a.applyOver(ctx, k, result, wanted)
	}
	if err != nil {
		return nil, err
	}
	if result.GetResourceVersion() != existing.GetResourceVersion() {
		a.did(EventUpdated, a.at.name, k.describe(existing))
	}
	return a.seen(k, wanted, result)
}

// applyOver applies to an object as it was read: if it was changed since, it may no longer be the owner's, and the error is a
// conflict.
func (a *applier) applyOver(ctx context.Context, k kind, existing client.Object, wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	result := wanted.DeepCopy()
	result.SetUID(existing.GetUID())
	result.SetResourceVersion(existing.GetResourceVersion())
	err := a.writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(result), client.ForceOwnership, client.FieldOwner(a.name))
	if err != nil {
		return nil, fmt.Errorf("applying %s to %s: %w", k.describe(wanted), clusterText(a.at.name), err)
	}
	return result, nil
}

// adoptFields makes the fields with which the object was created those that were applied. Else the API server would keep
// them once they are no longer desired, as they would stay somebody's without applying.
func (a *applier) adoptFields(ctx context.Context, obj *unstructured.Unstructured) (changed bool, err error) {
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(obj, sets.New(a.name), a.name)
	if err != nil || patch == nil {
		return false, err
	}
	ctx, cancel := a.bound(ctx)
	defer cancel()
	if err := a.writer.Patch(ctx, obj, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return false, fmt.Errorf("taking over the fields of %s %s in %s: %w", obj.GetKind(), client.ObjectKeyFromObject(obj), clusterText(a.at.name), err)
	}
	return true, nil
}

// seen returns what came of applying in the object's type, and remembers it.
func (a *applier) seen(k kind, wanted, result *unstructured.Unstructured) (client.Object, error) {
	obj := k.newObject()
	if u, ok := obj.(*unstructured.Unstructured); ok {
		u.Object = result.Object
	} else if err := runtime.DefaultUnstructuredConverter.FromUnstructured(result.Object, obj); err != nil {
		return nil, fmt.Errorf("reading %s of %s: %w", k.describe(result), clusterText(a.at.name), err)
	}
	now, err := hashes(wanted, obj)
	if err != nil {
		return nil, err
	}
	a.memory.remember(a.keyOf(k, obj), now)
	return obj, nil
}

func (a *applier) keyOf(k kind, obj client.Object) dependentKey {
	return dependentKey{cluster: a.at.name, kind: k.gvk.GroupKind(), name: client.ObjectKeyFromObject(obj)}
}

func (a *applier) get(ctx context.Context, from client.Reader, k kind, wanted client.Object) (client.Object, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	existing := k.newObject()
	if err := from.Get(ctx, client.ObjectKeyFromObject(wanted), existing); err != nil {
		return nil, fmt.Errorf("reading %s of %s: %w", k.describe(wanted), clusterText(a.at.name), err)
	}
	return existing, nil
}

// hashes returns what is desired and what is there. The status is not part of it, nor is what the API server counts.
func hashes(wanted *unstructured.Unstructured, existing client.Object) (applied, error) {
	desired, err := json.Marshal(wanted.Object)
	if err != nil {
		return applied{}, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(existing.DeepCopyObject())
	if err != nil {
		return applied{}, err
	}
	unstructured.RemoveNestedField(content, "status")
	for _, field := range []string{"resourceVersion", "generation", "managedFields"} {
		unstructured.RemoveNestedField(content, "metadata", field)
	}
	there, err := json.Marshal(content)
	if err != nil {
		return applied{}, err
	}
	return applied{uid: existing.GetUID(), desired: sha256.Sum256(desired), content: sha256.Sum256(there)}, nil
}
