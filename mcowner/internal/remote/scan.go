package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// Scan is how the metadata of dependents is read from an API server.
type Scan struct {
	Namespaces []string                    // none for all
	PageSize   int64                       // zero for the default
	Before     func(context.Context) error // each page, if it is not nil
	Unserved   func(context.Context) error // after a kind that is not served, if it is not nil: its cluster may have been asked for it
}

// DefaultPageSize is how many objects are listed at once.
const DefaultPageSize = 500

// mostListed is about how many objects of a kind are listed. An API server may say without end that there are more.
const mostListed = 1_000_000

// mostEmpty is how many pages without objects are asked for in a row. API servers fill a page if there are objects left.
const mostEmpty = 10

// ErrEndless says that a list was given up, as there were still more pages after a million objects, or after ten without any.
var ErrEndless = errors.New("the list has no end")

// Each calls do with the metadata of every object of a kind that the selector matches, until that returns an error. The cache is not
// asked. A kind that the cluster serves in another version alone is listed in that, which the objects say. One that it does not serve, or did
// not ten seconds ago, has no objects. A namespace that cannot be listed holds up no other, unless there is no answer in time. The error is one
// that IsRefused knows if nothing else is wrong. It wraps ErrEndless if there are more than a million in a namespace, pages for as many, or ten pages
// in a row without any.
func (s Scan) Each(ctx context.Context, a *Access, at Session, k Kind, selector labels.Selector, do func(*metav1.PartialObjectMetadata) error) error {
	served, is, err := a.Served(at, k)
	switch {
	case IsHung(err): // each page would wait for it as well
		return fmt.Errorf("finding out in which version %s serves %s: %w", at, k.GroupKind(), err)
	case !is && s.Unserved != nil:
		return s.Unserved(ctx)
	case !is:
		return nil
	}
	err = s.eachOf(ctx, a, at, served, selector, do)
	if !errors.Is(err, errUnserved) {
		return err
	}
	if k, is, _ = a.Served(at, k); is && k.Version == served.Version {
		return fmt.Errorf("listing %s in %s, which has just said that it serves %s: %w", k.GroupKind(), at, k.Version, err)
	}
	if !is {
		return nil
	}
	return s.eachOf(ctx, a, at, k, selector, do)
}

// eachOf is Each for a kind in a version. The error wraps errUnserved if the cluster does not serve that any more.
func (s Scan) eachOf(ctx context.Context, a *Access, at Session, k Kind, selector labels.Selector, do func(*metav1.PartialObjectMetadata) error) error {
	namespaces := s.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	var errs, refused []error
	stopped := false
	for _, namespace := range namespaces {
		options := client.ListOptions{Namespace: namespace, LabelSelector: selector, Limit: s.pageSize()}
		err := s.eachIn(ctx, a, at, k, options, func(obj *metav1.PartialObjectMetadata) error {
			err := do(obj)
			stopped = err != nil
			return err
		})
		if errors.Is(err, errUnserved) {
			return err
		}
		if IsRefused(err) {
			refused = append(refused, err)
		} else {
			errs = append(errs, err)
		}
		if stopped || IsHung(err) || ctx.Err() != nil {
			break
		}
	}
	err, why := errors.Join(errs...), errors.Join(refused...)
	if err == nil || why == nil {
		return cmp.Or(err, why)
	}
	return errors.Join(err, errors.New(why.Error())) // as text: not all of it is refused
}

// IsRefused reports whether an API server does not list a kind, or not for us. If it is asked again soon, it says the same.
func IsRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err)
}

// errUnserved says that the cluster does not serve a kind in the version in which it was listed.
var errUnserved = errors.New("the cluster does not serve that version")

// eachIn is Each for what options select.
func (s Scan) eachIn(
	ctx context.Context, a *Access, at Session, k Kind, options client.ListOptions, do func(*metav1.PartialObjectMetadata) error,
) error {
	empty := 0
	for range (mostListed-1)/options.Limit + 1 {
		if empty++; empty > mostEmpty {
			break
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
		err := s.page(ctx, a, at, list, &options)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && k.IsUnserved(at) {
			return errUnserved
		}
		if next := continueAfter(err); next != "" && next != options.Continue {
			options.Continue = next
			continue
		}
		if err != nil {
			return fmt.Errorf("listing %s in %s: %w", k.GroupKind(), at, err)
		}
		for i := range list.Items {
			item := &list.Items[i]
			item.SetGroupVersionKind(k.GroupVersionKind)
			empty = 0
			if err := do(item); err != nil {
				return err
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
	return fmt.Errorf("listing %s in %s: %w", k.GroupKind(), at, ErrEndless)
}

func (s Scan) pageSize() int64 {
	if s.PageSize <= 0 {
		return DefaultPageSize
	}
	return s.PageSize
}

// continueAfter returns where to go on if listing took so long that the API server has forgotten the state of its
// beginning: what was changed meanwhile may be missed then.
func continueAfter(err error) string {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && apierrors.IsResourceExpired(err) {
		return status.ErrStatus.Continue
	}
	return ""
}

func (s Scan) page(ctx context.Context, a *Access, at Session, list *metav1.PartialObjectMetadataList, opts *client.ListOptions) error {
	if s.Before != nil {
		if err := s.Before(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := a.Bound(ctx)
	defer cancel()
	return at.Cluster.GetAPIReader().List(ctx, list, opts)
}

// OfFleet selects the dependents of an installation.
func OfFleet(fleet string) labels.Selector {
	return labels.SelectorFromSet(labels.Set{mcowner.FleetLabel: fleet})
}

// OfOwner selects the dependents of one owner.
func OfOwner(owner mcowner.Reference) (labels.Selector, error) {
	has, err := labels.NewRequirement(owner.Key(), selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	return OfFleet(owner.Fleet).Add(*has), nil
}
