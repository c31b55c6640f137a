package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/metadata"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

// wanted is an object that a Replicator names.
type wanted struct {
	where    string                     // it names it
	obj      *unstructured.Unstructured // nil if there is none for the target, or an error
	isShared bool                       // all of it but its metadata is in the cache, and must not be changed
	size     int                        // of the object before overrides
	err      error
}

// fail has an error in its place. Such a one may quote what the object or an override has.
func (w *wanted) fail(err error) {
	w.obj, w.err = nil, fmt.Errorf("%s: %w", w.where, oneline.Error(err, mostSaid))
}

// checkMetadata fails an object whose annotations, or the like, clean would take for absent.
func (w *wanted) checkMetadata() {
	if w.obj == nil {
		return
	}
	if err := metadata.Check(w.obj); err != nil {
		w.fail(err)
	}
}

// desired returns the objects that a Replicator has for a target. One that is wrong is an error, and the others are returned.
func (c *controller) desired(ctx context.Context, r *v1alpha1.Replicator, target dependents.Target) (all []client.Object, _ error) {
	if err := errOfSpec(r); err != nil {
		return nil, err // nothing is known of what it is to have, so what it has stays
	}
	room := &room{left: mostOfAll}
	named := c.named(ctx, r, target, room)
	if err := c.override(ctx, r, named, target, room); err != nil {
		return nil, err
	}
	var errs []error
	for _, w := range named {
		w.checkMetadata()
		if w.obj != nil && w.obj.GetAnnotations()[dependents.ConflictAnnotation] == string(dependents.Adopt) {
			w.fail(fmt.Errorf("%s: the annotation %s must not be %s: no Replicator takes what another one has",
				identityOf(w.obj), dependents.ConflictAnnotation, dependents.Adopt))
		}
		switch {
		case w.err != nil:
			errs = append(errs, w.err)
		case w.obj != nil:
			if w.isShared {
				w.obj = w.obj.DeepCopy()
			}
			clean(w.obj)
			all = append(all, w.obj)
		}
	}
	return all, errors.Join(errs...)
}

// named returns what a Replicator names, before its overrides.
func (c *controller) named(ctx context.Context, r *v1alpha1.Replicator, target dependents.Target, room *room) []*wanted {
	all := make([]*wanted, 0, len(r.Spec.Manifests)+len(r.Spec.References))
	for i, m := range r.Spec.Manifests {
		w := &wanted{where: fmt.Sprintf("spec.manifests[%d]", i)}
		room.decode(w, m.Raw)
		all = append(all, w)
	}
	all = append(all, c.referred(ctx, r, target, room)...)
	for _, w := range all {
		if w.obj == nil {
			continue
		}
		place(r, w.obj, target.RESTMapper)
		if err := checkObject(w.obj); err != nil {
			w.fail(err)
		}
	}
	return all
}

// referred returns what the references of a Replicator lead to. Nothing of it is copied yet.
func (c *controller) referred(ctx context.Context, r *v1alpha1.Replicator, target dependents.Target, room *room) []*wanted {
	all := make([]*wanted, len(r.Spec.References))
	first := map[v1alpha1.Reference]int{} // by what they give
	for i, ref := range r.Spec.References {
		w := &wanted{where: fmt.Sprintf("spec.references[%d]", i)}
		all[i] = w
		gives := v1alpha1.Reference{Group: ref.Group, Kind: ref.Kind, Name: cmp.Or(ref.As, ref.Name)}
		if before, is := first[gives]; is {
			w.fail(fmt.Errorf("%s %s is desired twice: spec.references[%d] gives it too", ref.Kind, gives.Name, before))
			continue
		}
		first[gives] = i
		c.refer(ctx, w, r, ref, target, room)
	}
	return all
}

// refer takes what a reference leads to, if there is room, and nothing if that is in the target already.
func (c *controller) refer(ctx context.Context, w *wanted, r *v1alpha1.Replicator, ref v1alpha1.Reference, target dependents.Target, room *room) {
	source, err := c.source(ctx, r.Namespace, ref)
	if err != nil {
		w.fail(err)
		return
	}
	if isItsOwnCopy(r, ref, target) {
		return
	}
	size, none := c.sizes.of(source)
	if room.admit(w, size+len(ref.As), none) {
		w.obj, w.isShared = brought(source, ref.As), true
	}
}

// checkObject returns an error about what is no object.
func checkObject(obj *unstructured.Unstructured) error {
	if obj.IsList() {
		return errors.New("a list is no object: give its items")
	}
	if len(obj.GetName()) > 253 || len(obj.GetNamespace()) > 63 || len(obj.GetKind()) > 63 || len(obj.GetAPIVersion()) > 317 {
		return fmt.Errorf("its name, namespace, kind or apiVersion is longer than any can be: %s", identityOf(obj))
	}
	return nil
}

// override changes what a Replicator names for a target. The error says that nothing was changed, and nothing about the Replicator.
func (c *controller) override(ctx context.Context, r *v1alpha1.Replicator, named []*wanted, target dependents.Target, room *room) error {
	j := jobOf(r, named, target)
	var changed []*wanted
	var before []*unstructured.Unstructured
	for _, w := range named {
		if w.obj != nil && j.isFor(w.obj) {
			room.left += w.size
			changed, before = append(changed, w), append(before, w.obj)
			w.obj, w.isShared = nil, false
		}
	}
	if len(changed) == 0 {
		return nil
	}
	var last *veil // of the object that was shown last
	show := func(obj *unstructured.Unstructured) (seen *unstructured.Unstructured, err error) {
		seen, last, err = veiled(obj)
		return seen, err
	}
	return c.children.override(ctx, j, before, show, func(i int, text []byte, err error) {
		w := changed[i]
		if err != nil {
			w.fail(err)
			return
		}
		if room.decode(w, text); w.obj == nil {
			return
		}
		size, err := last.lift(w.obj, min(mostBytes, room.left))
		switch {
		case err != nil:
			w.fail(err)
		case identityOf(w.obj) != identityOf(before[i]):
			w.fail(errIdentity)
		case size > mostBytes:
			w.fail(errTooMuch)
		case size > room.left:
			w.fail(errTooMuchOfAll)
		default:
			room.left -= size
		}
	})
}

// jobOf returns the overrides of a Replicator that are for a target. What one is for that cannot tell whether it is fails.
func jobOf(r *v1alpha1.Replicator, named []*wanted, target dependents.Target) job {
	j := job{Namespace: r.Namespace, Cluster: string(target.Cluster), Labels: target.Labels}
	for i, o := range r.Spec.Overrides {
		selector, err := labels.Everything(), error(nil)
		if o.Selector != nil {
			selector, err = compiled(o.Selector)
		}
		if err == nil && selector.Matches(labels.Set(target.Labels)) {
			o.Selector = nil // what follows needs it no more
			j.Overrides = append(j.Overrides, numbered{i, o})
		}
		for _, w := range named {
			if err != nil && w.obj != nil && isFor(o, w.obj) {
				w.fail(fmt.Errorf("spec.overrides[%d].selector: %w", i, err))
			}
		}
	}
	return j
}

// isItsOwnCopy reports whether a target is the hub, and what a reference gives there would be the object that it names.
func isItsOwnCopy(r *v1alpha1.Replicator, ref v1alpha1.Reference, target dependents.Target) bool {
	return target.Home && cmp.Or(ref.As, ref.Name) == ref.Name && cmp.Or(r.Spec.Namespace, r.Namespace) == r.Namespace
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

// source returns an object of the hub. It is shared, and must not be changed.
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
	err := c.hub.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, obj, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s/%s is not there, or has not the label %s=true", ref.Kind, namespace, ref.Name, v1alpha1.SourceLabel)
	}
	return obj, nil
}

// brought returns an object of the hub as it is brought to members. It shares all but its metadata with that one. Its finalizers are for controllers
// of the hub: in a member, nobody might ever take them.
func brought(source *unstructured.Unstructured, as string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: maps.Clone(source.Object)}
	if metadata, is := source.Object["metadata"].(map[string]any); is {
		obj.Object["metadata"] = maps.Clone(metadata)
	}
	obj.SetNamespace("")
	obj.SetFinalizers(nil)
	clean(obj)
	if as != "" {
		obj.SetName(as)
	}
	return obj
}
