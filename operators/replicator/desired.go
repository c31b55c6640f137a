package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

const (
	// mostBytes bounds an object after its overrides.
	mostBytes = 1 << 20
	// mostBytesOfAll bounds all objects of a Replicator for a target: each worker holds those of one.
	mostBytesOfAll = 4 << 20
)

var errTooMuchOfAll = fmt.Errorf("the objects have together more than %d bytes for one cluster: make several Replicators of it", mostBytesOfAll)

// desired returns the objects that a Replicator has for a target. One that is wrong is an error, and the others are returned.
func (c *controller) desired(ctx context.Context, r *v1alpha1.Replicator, target dependents.Target) (all []client.Object, _ error) {
	if len(r.Spec.Overrides) > 0 {
		end, err := c.turns.take(ctx, r.Namespace)
		if err != nil {
			return nil, err
		}
		defer end()
	}
	bounded, cancel := context.WithTimeoutCause(ctx, mostTimeOfAll, errTooLong)
	defer cancel()
	var errs []error
	left := mostBytesOfAll
	add := func(where string, obj *unstructured.Unstructured, err error) {
		if left < 0 {
			return
		}
		size := 0
		if err == nil {
			obj, size, err = c.forTarget(bounded, r, obj, target)
		}
		if left -= size; left < 0 {
			err = errTooMuchOfAll
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
			return
		}
		all = append(all, obj)
	}
	for i, m := range r.Spec.Manifests {
		obj := &unstructured.Unstructured{}
		err := obj.UnmarshalJSON(m.Raw)
		add(fmt.Sprintf("spec.manifests[%d]", i), obj, err)
	}
	for i, ref := range r.Spec.References {
		obj, err := c.source(ctx, r.Namespace, ref)
		if err == nil {
			var own bool
			if own, err = c.isItsOwnCopy(ctx, r, obj, ref, target); own {
				continue
			}
		}
		add(fmt.Sprintf("spec.references[%d]", i), obj, err)
	}
	return all, errors.Join(errs...)
}

// isItsOwnCopy reports whether a target is the hub, and the copy of an object of the hub would be that object. Where that cannot be told,
// nothing is copied: the object itself could be taken for a copy, and be pruned later.
func (c *controller) isItsOwnCopy(
	ctx context.Context, r *v1alpha1.Replicator, copied client.Object, ref v1alpha1.Reference, target dependents.Target,
) (bool, error) {
	if target.RESTMapper == nil || copied.GetName() != ref.Name || r.Spec.Namespace != "" && r.Spec.Namespace != r.Namespace {
		return false, nil
	}
	hub, err := c.identities.Of(ctx, mcreconcile.LocalCluster)
	if err != nil {
		return false, err
	}
	there, err := c.identities.Of(ctx, target.Cluster)
	return err == nil && there.UID == hub.UID, err
}

// forTarget returns an object as it is to be in a target, and its size.
func (c *controller) forTarget(
	ctx context.Context, r *v1alpha1.Replicator, obj *unstructured.Unstructured, target dependents.Target,
) (_ *unstructured.Unstructured, bytes int, _ error) {
	if obj.IsList() {
		return nil, 0, errors.New("a list is no object: give its items")
	}
	place(r, obj, target.RESTMapper)
	if len(obj.GetName()) > 253 || len(obj.GetNamespace()) > 63 || len(obj.GetKind()) > 63 || len(obj.GetAPIVersion()) > 317 {
		return nil, 0, fmt.Errorf("its name, namespace, kind or apiVersion is longer than any can be: %s", identityOf(obj))
	}
	before, secret := identityOf(obj), isSecret(obj)
	for i, o := range r.Spec.Overrides {
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		changed, err := c.override(ctx, o, obj, secret, target)
		if err != nil {
			return nil, 0, fmt.Errorf("spec.overrides[%d] of %s %s: %w", i, obj.GetKind(), obj.GetName(), err)
		}
		obj = changed
	}
	text, err := json.Marshal(obj)
	if err == nil && len(text) > mostBytes {
		err = fmt.Errorf("%s has more than %d bytes", before, mostBytes)
	}
	if obj.GetAnnotations()[dependents.ConflictAnnotation] == string(dependents.Adopt) {
		return nil, 0, fmt.Errorf("%s: the annotation %s must not be %s: no Replicator takes what another one has", before, dependents.ConflictAnnotation, dependents.Adopt)
	}
	clean(obj)
	return obj, len(text), err
}

// place gives an object its namespace. Without a mapper it is one that is not to be written.
func place(r *v1alpha1.Replicator, obj *unstructured.Unstructured, mapper meta.RESTMapper) {
	if obj.GetNamespace() != "" {
		return
	}
	gvk := obj.GroupVersionKind()
	if mapper != nil {
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err == nil && mapping.Scope.Name() == meta.RESTScopeNameRoot {
			return
		}
	}
	if obj.SetNamespace(r.Namespace); r.Spec.Namespace != "" {
		obj.SetNamespace(r.Spec.Namespace)
	}
}

// clean takes from an object what is not to be said, or is not for those to say who write Replicators.
func clean(obj *unstructured.Unstructured) {
	unstructured.RemoveNestedField(obj.Object, "status")
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "ownerReferences", "selfLink"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	obj.SetAnnotations(without(obj.GetAnnotations()))
	obj.SetLabels(without(obj.GetLabels()))
}

// without returns labels or annotations without those by which the library tells whose an object is.
func without(all map[string]string) map[string]string {
	all = maps.Clone(all)
	maps.DeleteFunc(all, func(key, _ string) bool {
		domain, name, _ := strings.Cut(key, "/")
		policy := strings.HasSuffix(name, "-policy") || name == "wave" || name == "suspend"
		return key == v1alpha1.SourceLabel || key == lastApplied ||
			strings.HasSuffix(domain, ".fleet-runtime.dev") || domain == "fleet-runtime.dev" && !policy
	})
	if len(all) == 0 {
		return nil
	}
	return all
}

// lastApplied has all of what kubectl has applied, in the clear.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// source returns an object of the hub.
func (c *controller) source(ctx context.Context, namespace string, ref v1alpha1.Reference) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	for _, s := range c.sources {
		if s.Group == ref.Group && s.Kind == ref.Kind {
			obj.SetGroupVersionKind(s)
		}
	}
	if obj.GetKind() == "" {
		return nil, fmt.Errorf("kind %.64s cannot be referred to: the operator's flag --sources does not name it", ref.Kind)
	}
	err := c.hub.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, obj)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s/%s is not there, or has not the label %s=true", ref.Kind, namespace, ref.Name, v1alpha1.SourceLabel)
	}
	copied := obj.DeepCopy()
	copied.SetNamespace("")
	clean(copied)
	if ref.As != "" {
		copied.SetName(ref.As)
	}
	return copied, nil
}

// selects reports whether a selector of labels of members matches. An empty one selects nothing.
func selects(selector *metav1.LabelSelector, of map[string]string) (bool, error) {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return false, nil
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(of)), err
}
