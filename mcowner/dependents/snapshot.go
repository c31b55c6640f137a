package dependents

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// snapshot has the dependents of one owner in a cluster in which this replica has no cache, as they were when the work began: one
// list for each kind.
type snapshot map[dependentKey]client.Object

// siteOf returns the cluster of a session as it is noted in records.
func siteOf(at remote.Session) record.Site {
	return record.Site{Name: at.Name(), Identity: at.ID.UID}
}

// listThere lists the dependents of a kind by the API server. The kind is watched from then on.
func (p *placement) listThere(ctx context.Context, k remote.Kind) (objs []client.Object, err error) {
	if err := p.engine.watches.ensure(ctx, p.at, k); err != nil {
		return nil, err
	}
	namespaces := p.engine.cfg.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	if p.snapshot == nil {
		p.snapshot = snapshot{}
	}
	for _, namespace := range namespaces {
		there, err := p.listIn(ctx, k, namespace)
		if err != nil {
			return nil, err
		}
		objs = append(objs, there...)
	}
	return objs, nil
}

func (p *placement) listIn(ctx context.Context, k remote.Kind, namespace string) (objs []client.Object, err error) {
	selector, err := remote.OfOwner(p.asked.ref)
	if err != nil {
		return nil, err
	}
	list, err := k.NewList(p.engine.access.Manager.GetScheme())
	if err != nil {
		return nil, err
	}
	ctx, cancel := p.engine.access.Bound(ctx)
	defer cancel()
	err = p.at.Cluster.GetAPIReader().List(ctx, list, &client.ListOptions{Namespace: namespace, LabelSelector: selector})
	if err != nil {
		p.noteUnserved(k, err)
		return nil, fmt.Errorf("listing %s: %w", k.GroupKind(), err)
	}
	return objs, meta.EachListItem(list, func(item runtime.Object) error {
		obj, ok := item.(client.Object)
		if !ok {
			return nil
		}
		obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
		obj.SetManagedFields(nil) // as caches have them
		p.snapshot[p.keyOf(k, obj)] = obj
		if p.at.Has(k, obj, p.asked.ref) {
			objs = append(objs, obj)
		}
		return nil
	})
}

// cache returns the cluster's cache, or, where this replica has none, what was listed, and the API server for all else.
func (p *placement) cache() client.Reader {
	if p.at.Guest == nil {
		return p.at.Cluster.GetCache()
	}
	return seenReader{p.at.Cluster.GetAPIReader(), p}
}

type seenReader struct {
	client.Reader

	p *placement
}

// Get implements client.Reader.
func (r seenReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	gvk := obj.GetObjectKind().GroupVersionKind()
	if seen, ok := r.p.snapshot[dependentKey{r.p.at.Name(), gvk.GroupKind(), key}]; ok {
		into, err := conversion.EnforcePtr(obj)
		if err != nil {
			return err
		}
		from, err := conversion.EnforcePtr(seen.DeepCopyObject())
		if err != nil {
			return err
		}
		if into.Type() == from.Type() {
			into.Set(from)
			return nil
		}
	}
	return r.Reader.Get(ctx, key, obj, opts...)
}
