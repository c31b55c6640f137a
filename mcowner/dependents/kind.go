package dependents

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// kind is one of those that a controller works on.
type kind struct {
	gvk     schema.GroupVersionKind
	proto   client.Object // as the user gave it: its type says which cache is read
	indexed *perEngagement[struct{}]
}

func kindsOf(protos []client.Object, scheme *runtime.Scheme) ([]kind, error) {
	kinds := make([]kind, len(protos))
	for i, proto := range protos {
		gvk, err := apiutil.GVKForObject(proto, scheme)
		if err != nil {
			return nil, err
		}
		kinds[i] = kind{gvk, proto, &perEngagement[struct{}]{}}
	}
	return kinds, nil
}

func (k kind) newObject() client.Object {
	obj := k.proto.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	obj.GetObjectKind().SetGroupVersionKind(k.gvk)
	return obj
}

func (k kind) newList(scheme *runtime.Scheme) (client.ObjectList, error) {
	gvk := k.gvk
	gvk.Kind += "List"
	if _, ok := k.proto.(runtime.Unstructured); ok {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		return list, nil
	}
	list, err := scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return list.(client.ObjectList), nil //nolint:forcetypeassert // the list of an object is one
}

func (k kind) newMetadata() *metav1.PartialObjectMetadata {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(k.gvk)
	return obj
}

// describe names an object, for messages.
func (k kind) describe(obj client.Object) string {
	return k.gvk.Kind + " " + strings.TrimPrefix(client.ObjectKeyFromObject(obj).String(), "/")
}

// scan is how the metadata of dependents is read from an API server.
type scan struct {
	namespaces []string // none for all
	pageSize   int64
	before     func(context.Context) error // each request, if it is not nil
}

const defaultPageSize = 500

// each calls do with the metadata of every object of a kind that the selector matches. The cache is not asked. A kind that
// the cluster does not serve has no objects.
func (s scan) each(ctx context.Context, p *access, at session, k kind, selector labels.Selector, do func(*metav1.PartialObjectMetadata) error) error {
	namespaces := s.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		for token, more := "", true; more; {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(k.gvk.GroupVersion().WithKind(k.gvk.Kind + "List"))
			err := s.page(ctx, p, at, list, &client.ListOptions{
				Namespace: namespace, LabelSelector: selector, Limit: s.pageSize, Continue: token,
			})
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && k.isUnserved(at) {
				return nil
			}
			if next := continueAfter(err); next != "" && next != token {
				token = next
				continue
			}
			if err != nil {
				return fmt.Errorf("listing %s in cluster %q: %w", k.gvk.GroupKind(), at.name, err)
			}
			for i := range list.Items {
				item := &list.Items[i]
				item.SetGroupVersionKind(k.gvk)
				if err := do(item); err != nil {
					return err
				}
			}
			token = list.Continue
			more = token != ""
		}
	}
	return nil
}

// isUnserved reports whether the cluster says that it does not serve the kind. What was known of its kinds may be of a time
// when it did.
func (k kind) isUnserved(at session) bool {
	mapper := at.cluster.GetRESTMapper()
	meta.MaybeResetRESTMapper(mapper)
	_, err := mapper.RESTMapping(k.gvk.GroupKind(), k.gvk.Version)
	return meta.IsNoMatchError(err)
}

// continueAfter returns where to go on if listing took so long that the API server has forgotten the state of its
// beginning: what was changed meanwhile may be missed then.
func continueAfter(err error) string {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && apierrors.IsResourceExpired(err) {
		return status.ErrStatus.Continue
	}
	return ""
}

func (s scan) page(ctx context.Context, p *access, at session, list *metav1.PartialObjectMetadataList, opts *client.ListOptions) error {
	if s.before != nil {
		if err := s.before(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := p.bound(ctx)
	defer cancel()
	return at.cluster.GetAPIReader().List(ctx, list, opts)
}

// ofFleet selects the dependents of an installation.
func ofFleet(fleet string) labels.Selector {
	return labels.SelectorFromSet(labels.Set{mcowner.FleetLabel: fleet})
}

// ofOwner selects the dependents of one owner.
func ofOwner(owner mcowner.Reference) (labels.Selector, error) {
	has, err := labels.NewRequirement(owner.Key(), selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	return ofFleet(owner.Fleet).Add(*has), nil
}
