package dependents

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// dependent is an object of the cluster that has a reference to the owner.
type dependent struct {
	remote.Kind

	obj client.Object
}

func (p *placement) keyOf(k remote.Kind, obj client.Object) dependentKey {
	return dependentKey{cluster: p.at.Name(), kind: k.GroupKind(), name: client.ObjectKeyFromObject(obj)}
}

// known returns the dependents of the owner in the cluster, as its cache has them, and why kinds cannot be read. Those of an
// owner of the same name that is gone are among them.
func (p *placement) known(ctx context.Context, kinds []remote.Kind) (found []dependent, unknown map[schema.GroupKind]error) {
	unknown = map[schema.GroupKind]error{}
	for _, k := range p.kindsInTurn(kinds) {
		var objs []client.Object
		err := p.over
		if err == nil {
			objs, err = p.listIfAny(ctx, k)
		}
		if err != nil {
			unknown[k.GroupKind()] = fmt.Errorf("reading %s of %s: %w", k.GroupKind(), p.at, err)
			if p.isOver(err) {
				p.over = err
			}
			if !isUnserved(err) {
				p.noteUnread(k)
			}
			continue
		}
		p.o.noteRead(p.at, k.GroupKind(), len(objs) > 0)
		for _, obj := range objs {
			found = append(found, dependent{k, obj})
		}
	}
	return found, unknown
}

// listIfAny is listInTurn, but for a kind of which the owner has nothing in the cluster: it is not watched for that.
func (p *placement) listIfAny(ctx context.Context, k remote.Kind) ([]client.Object, error) {
	none, err := p.lacks(ctx, k)
	if none || err != nil {
		p.o.noteHung(p.keyOfKind(k), remote.IsHung(err))
		return nil, err
	}
	objs, err := p.listInTurn(ctx, k)
	if p.read == nil {
		p.read = map[schema.GroupVersionKind]bool{}
	}
	p.read[k.GroupVersionKind] = err == nil
	return objs, err
}

// listInTurn is list, and notes whether the kind hangs.
func (p *placement) listInTurn(ctx context.Context, k remote.Kind) ([]client.Object, error) {
	objs, err := p.list(ctx, k)
	p.o.noteHung(p.keyOfKind(k), remote.IsHung(err))
	if err == nil {
		p.engine.access.NoteServed(p.at, k)
	}
	return objs, err
}

// list lists the dependents of a kind by an index of the cache. The kind is watched from then on. They are ordered: the cache returns
// them in another order each time, which would be news.
func (p *placement) list(ctx context.Context, k remote.Kind) ([]client.Object, error) {
	if p.at.Guest != nil {
		return p.listThere(ctx, k)
	}
	if err := p.engine.watches.ensure(ctx, p.at, k); err != nil {
		return nil, err
	}
	ctx, cancel := p.engine.access.Bound(ctx)
	defer cancel()
	list, err := k.NewList(p.engine.access.Manager.GetScheme())
	if err != nil {
		return nil, err
	}
	if err := p.engine.watches.list(ctx, p.at, k, list, p.asked.ref.Key()); err != nil {
		return nil, err
	}
	var objs []client.Object
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if obj, ok := item.(client.Object); ok && p.at.Has(k, obj, p.asked.ref) {
			objs = append(objs, obj)
		}
		return nil
	})
	slices.SortFunc(objs, byName)
	return objs, err
}

// there returns the metadata of all dependents of the owner in the cluster, as the API server has them, and those without labels that
// the cache knows.
func (p *placement) there(ctx context.Context) (all []dependent, err error) {
	selector, err := remote.OfOwner(p.asked.ref)
	if err != nil {
		return nil, err
	}
	var errs []error
	kinds := p.kindsInTurn(p.kindsHere())
	for i, k := range kinds {
		before := len(all)
		err := remote.Scan{Namespaces: p.engine.cfg.namespaces}.Each(ctx, p.engine.access, p.at, k, selector, func(obj *metav1.PartialObjectMetadata) error {
			k = k.Of(obj)
			if p.at.Has(k, obj, p.asked.ref) {
				all = append(all, dependent{k, obj})
			} else {
				errs = append(errs, p.contested(k, obj))
			}
			return nil
		})
		if apierrors.IsForbidden(err) && !p.isNoted(k) {
			continue // whoever has taken it out of the annotation knows that nothing is left
		}
		if err != nil {
			p.noteUnread(k)
		}
		if err == nil && !p.isKnownToLack(k) && !p.engine.access.IsUnserved(p.at, k) {
			var more []dependent
			more, err = p.unlabelled(ctx, k, selector)
			all = append(all, more...)
		}
		if err == nil {
			p.o.noteRead(p.at, k.GroupKind(), len(all) > before)
		}
		p.o.noteHung(p.keyOfKind(k), remote.IsHung(err))
		if len(all) > before {
			err = together(err, p.watchGoing(ctx, k))
		}
		if apierrors.IsForbidden(err) && p.isKnownToLack(k) {
			err = nil
		}
		errs = append(errs, err)
		if p.isOver(err) {
			p.noteUnread(kinds[i+1:]...)
			break
		}
	}
	return all, together(errs...)
}

// unlabelled returns those dependents of a kind that the selector does not find, since somebody took their labels away. The cache has
// them by their annotations. Where this replica has no cache, they are not found.
func (p *placement) unlabelled(ctx context.Context, k remote.Kind, selector labels.Selector) (all []dependent, err error) {
	if p.at.Guest != nil {
		return nil, nil
	}
	objs, err := p.list(ctx, k)
	for _, obj := range objs {
		if !selector.Matches(labels.Set(obj.GetLabels())) {
			all = append(all, dependent{k, obj})
		}
	}
	return all, unlessUnserved(err)
}

// watchGoing watches a kind of which there is something, so that it is told when that is gone.
func (p *placement) watchGoing(ctx context.Context, k remote.Kind) error {
	p.o.sees(p.at.Name(), k.GroupVersionKind)
	return p.engine.watches.ensure(ctx, p.at, k)
}

// controlled returns those of which the owner is the controller.
func (p *placement) controlled(found []dependent) (owned []dependent) {
	for _, d := range found {
		if controller, ok := d.ControllerOf(d.obj, p.at.ID); ok && controller.Same(p.asked.ref) {
			owned = append(owned, d)
		}
	}
	return owned
}

func byName(a, b client.Object) int {
	return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}
