package namespaces

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// confinedReader reads what a member may see. As all that is confined, it names every method of what it stands before: a new one
// does not go round it, but does not compile.
type confinedReader struct {
	reader client.Reader
	member member
}

var _ client.Reader = confinedReader{}

// Get implements client.Reader.
func (r confinedReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	where, gvk, err := r.member.shared.scopeOf(obj)
	if err != nil {
		return err
	}
	switch where {
	case namespaced:
		if err := r.member.confine(gvk, key.Namespace, key.Name); err != nil {
			return err
		}
		key.Namespace = r.member.namespace
	case itself:
		if key.Name != r.member.namespace {
			return fmt.Errorf("%s %s: %w %q", gvk.GroupKind(), key.Name, ErrOutside, r.member.namespace)
		}
	case clusterWide:
		if err := r.member.confineName(gvk, key.Name); err != nil {
			return err
		}
	}
	return r.reader.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (r confinedReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	where, gvk, err := r.member.shared.scopeOf(list)
	if err != nil {
		return err
	}
	switch where {
	case namespaced:
		var o client.ListOptions
		o.ApplyOptions(opts)
		if err := r.member.confine(gvk, o.Namespace, ""); err != nil {
			return err
		}
		opts = append(slices.Clip(opts), client.InNamespace(r.member.namespace))
	case itself:
		return r.listItself(ctx, list, opts)
	case clusterWide:
	}
	return r.reader.List(ctx, list, opts...)
}

// listItself lists Namespaces: the one that the member is, if it matches.
func (r confinedReader) listItself(ctx context.Context, list client.ObjectList, opts []client.ListOption) error {
	// A limit could end the list before it.
	opts = append(slices.Clip(opts), client.Limit(0), client.UnsafeDisableDeepCopy)
	if err := r.reader.List(ctx, list, opts...); err != nil {
		return err
	}
	var own []runtime.Object
	err := meta.EachListItem(list, func(obj runtime.Object) error {
		ns, err := meta.Accessor(obj)
		if err == nil && ns.GetName() == r.member.namespace {
			own = append(own, obj.DeepCopyObject())
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("finding namespace %q among all: %w", r.member.namespace, err)
	}
	return meta.SetList(list, own)
}
