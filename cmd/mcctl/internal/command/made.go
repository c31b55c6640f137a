package command

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/internal/paths"
)

// made returns what mcctl has made of some kinds for a member, in the order of the kinds.
func (r *reached) made(ctx context.Context, of mark, kinds []schema.GroupVersionKind, options ...client.ListOption) ([]client.Object, error) {
	var all []client.Object
	for _, kind := range kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		err := r.List(ctx, list, append(options, client.MatchingLabelsSelector{Selector: of.selector()})...)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list each %s in the %s (%s): %w", kind.Kind, r.name, r.config.Host, err)
		}
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(kind)
			if err := r.misnamed(&list.Items[i]); err != nil {
				return nil, err
			}
			if list.Items[i].DeletionTimestamp == nil {
				all = append(all, &list.Items[i])
			}
		}
	}
	return all, nil
}

// misnamed returns an error for an object with a name that leads requests elsewhere. A cluster that lists such a one is not to be trusted, nor is
// whoever refers to it.
func (r *reached) misnamed(obj client.Object) error {
	if err := paths.CheckNames(obj.GetNamespace(), obj.GetName()); err != nil {
		return fmt.Errorf("the %s (%s) speaks of a %s that nobody can have made: %w", r.name, r.config.Host, obj.GetObjectKind().GroupVersionKind().Kind, err)
	}
	return nil
}

// remove deletes objects one after the other. A namespace in which others have something stays.
func (r *reached) remove(ctx context.Context, made []client.Object, progress progress) error {
	for _, obj := range made {
		err := progress.step(r.name+": "+describe(obj), func() (string, error) { return r.removeOne(ctx, obj) })
		if err != nil {
			return err
		}
	}
	return nil
}

// removeOne deletes one object. A namespace stays too where the caller may not do that: it was not asked for, or something of others was in
// the namespace when it was.
func (r *reached) removeOne(ctx context.Context, obj client.Object) (string, error) {
	isNamespace := obj.GetObjectKind().GroupVersionKind() == membership.NamespaceKind()
	if isNamespace {
		others, err := r.inhabited(ctx, obj.GetName(), nil)
		if errors.Is(err, errMayNotLook) {
			return "kept, since you may not look into it", nil
		}
		if err != nil || others != "" {
			return "kept, since " + others + " is in it", err
		}
	}
	uid := obj.GetUID()
	err := r.Delete(ctx, obj, client.Preconditions{UID: &uid})
	if isNamespace && apierrors.IsForbidden(err) {
		return "kept, since you may not delete it", nil
	}
	if notfound.Ignore(err, obj.GetName()) != nil {
		return "", r.failed("delete", obj, err)
	}
	return "deleted", nil
}

// mayRemove makes sure that the caller may delete what was made. A namespace in which others have something is not to be deleted.
func (r *reached) mayRemove(ctx context.Context, made []client.Object) error {
	goes := map[types.UID]bool{}
	for _, obj := range made {
		goes[obj.GetUID()] = true
	}
	var asked []client.Object
	for _, obj := range made {
		stays := false
		if obj.GetObjectKind().GroupVersionKind() == membership.NamespaceKind() && r.mayDelete(ctx, []client.Object{obj}) != nil {
			others, err := r.inhabited(ctx, obj.GetName(), goes)
			if err != nil && !errors.Is(err, errMayNotLook) { // it is asked for then, as if nothing were in it
				return err
			}
			stays = others != ""
		}
		if !stays {
			asked = append(asked, obj)
		}
	}
	return r.mayDelete(ctx, asked)
}

// errMayNotLook is in the error of a namespace that may have something which the caller may not list.
var errMayNotLook = errors.New("you may not look into the namespace")

// inhabited names something in a namespace that Kubernetes has not put there itself, and that is not among what goes. It is empty where there is
// no such thing.
func (r *reached) inhabited(ctx context.Context, namespace string, goes map[types.UID]bool) (string, error) {
	kinds, err := namespaced(r.config)
	if err != nil {
		return "", fmt.Errorf("ask the %s (%s) what may be in namespaces: %w", r.name, r.config.Host, err)
	}
	for _, kind := range kinds {
		name, err := r.first(ctx, kind, namespace, goes)
		if (apierrors.IsNotFound(err) || meta.IsNoMatchError(err)) && r.lacks(kind) {
			continue
		}
		if apierrors.IsForbidden(err) {
			err = fmt.Errorf("%w: %w", errMayNotLook, err)
		}
		if err != nil {
			return "", fmt.Errorf("list each %s in the namespace %s of the %s (%s): %w", kind.Kind, namespace, r.name, r.config.Host, err)
		}
		if name != "" {
			return kind.Kind + " " + name, nil
		}
	}
	return "", nil
}

// lacks reports whether a cluster says that it has no such kind, which it had a moment ago.
func (r *reached) lacks(kind schema.GroupVersionKind) bool {
	kinds, err := namespaced(r.config)
	return err == nil && !slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return k.GroupKind() == kind.GroupKind() })
}

// first returns the name of an object of a kind in a namespace that stays and that Kubernetes has not put there itself, or an empty one.
func (r *reached) first(ctx context.Context, kind schema.GroupVersionKind, namespace string, goes map[types.UID]bool) (name string, err error) {
	const page = 200
	if everywhere(kind) {
		return "", nil
	}
	for next := ""; ; {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		err := r.List(ctx, list, client.InNamespace(namespace), client.Limit(page), client.Continue(next))
		if apierrors.IsMethodNotSupported(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			if obj := &list.Items[i]; obj.DeletionTimestamp == nil && !goes[obj.UID] && !native(kind, obj.Name) {
				return obj.Name, nil
			}
		}
		if next = list.Continue; next == "" {
			return "", nil
		}
	}
}

// everywhere reports whether every namespace has objects of the kind that are worth nothing without others.
func everywhere(kind schema.GroupVersionKind) bool {
	switch kind.GroupKind().String() {
	case "Event", "Event.events.k8s.io", "Endpoints", "EndpointSlice.discovery.k8s.io", "Lease.coordination.k8s.io":
		return true
	default:
		return false
	}
}

// native reports whether every namespace has the object.
func native(kind schema.GroupVersionKind, name string) bool {
	switch kind.GroupKind().String() {
	case "ServiceAccount":
		return name == "default"
	case "ConfigMap":
		return name == "kube-root-ca.crt"
	default:
		return false
	}
}
