package namespaces

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// confinedClient reads what a member may see, and writes to its namespace.
type confinedClient struct {
	client client.Client
	member member
}

var _ client.Client = confinedClient{}

// Get implements client.Reader.
func (c confinedClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return confinedReader{c.client, c.member}.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (c confinedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return confinedReader{c.client, c.member}.List(ctx, list, opts...)
}

// Create implements client.Writer.
func (c confinedClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	if err := c.admit(obj); err != nil {
		return err
	}
	return c.client.Create(ctx, obj, opts...)
}

// Update implements client.Writer.
func (c confinedClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	if err := c.admit(obj); err != nil {
		return err
	}
	return c.client.Update(ctx, obj, opts...)
}

// Patch implements client.Writer.
func (c confinedClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if err := c.admit(obj); err != nil {
		return err
	}
	return c.client.Patch(ctx, obj, patch, opts...)
}

// Apply implements client.Writer.
func (c confinedClient) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if err := c.admitApply(obj); err != nil {
		return err
	}
	return client.NewNamespacedClient(c.client, c.member.namespace).Apply(ctx, obj, opts...)
}

// Delete implements client.Writer.
func (c confinedClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	if err := c.admit(obj); err != nil {
		return err
	}
	return c.client.Delete(ctx, obj, opts...)
}

// DeleteAllOf implements client.Writer.
func (c confinedClient) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	where, gvk, err := c.member.shared.scopeOf(obj)
	if err != nil {
		return err
	}
	var o client.DeleteAllOfOptions
	o.ApplyOptions(opts)
	if err := c.writable(where, gvk, o.Namespace, ""); err != nil {
		return err
	}
	return c.client.DeleteAllOf(ctx, obj, append(slices.Clip(opts), client.InNamespace(c.member.namespace))...)
}

// Status implements client.StatusClient.
func (c confinedClient) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource implements client.SubResourceClientConstructor.
func (c confinedClient) SubResource(name string) client.SubResourceClient {
	return confinedSubResource{client: c.client.SubResource(name), name: name, parent: c}
}

// Scheme implements client.Client.
func (c confinedClient) Scheme() *runtime.Scheme { return c.client.Scheme() }

// RESTMapper implements client.Client.
func (c confinedClient) RESTMapper() meta.RESTMapper { return c.client.RESTMapper() }

// GroupVersionKindFor implements client.Client.
func (c confinedClient) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return c.client.GroupVersionKindFor(obj)
}

// IsObjectNamespaced implements client.Client.
func (c confinedClient) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	return c.client.IsObjectNamespaced(obj)
}

// admit checks that the member may write the object. An object without namespace is put into the member's.
func (c confinedClient) admit(obj client.Object) error {
	where, gvk, err := c.member.shared.scopeOf(obj)
	if err != nil {
		return err
	}
	if err := c.writable(where, gvk, obj.GetNamespace(), obj.GetName()); err != nil {
		return err
	}
	obj.SetNamespace(c.member.namespace)
	return nil
}

// admitApply is admit for apply configurations, which controller-runtime puts into the namespace.
func (c confinedClient) admitApply(obj runtime.ApplyConfiguration) error {
	gvk, namespace, name := identify(obj)
	where, err := c.member.shared.scopeOfKind(gvk)
	if err != nil {
		return err
	}
	return c.writable(where, gvk, namespace, name)
}

// writable returns an error that wraps ErrOutside unless the member may write what is named.
func (c confinedClient) writable(where scope, gvk schema.GroupVersionKind, namespace, name string) error {
	if where != namespaced {
		return fmt.Errorf("%s %s: %w %q: objects without namespace can only be read through a member",
			gvk.GroupKind(), name, ErrOutside, c.member.namespace)
	}
	return c.member.confine(gvk, namespace, name)
}

// identify returns what an apply configuration is about. There are two kinds of them: generated types, and unstructured
// ones.
func identify(obj runtime.ApplyConfiguration) (gvk schema.GroupVersionKind, namespace, name string) {
	switch obj := obj.(type) {
	case interface {
		GetAPIVersion() *string
		GetKind() *string
		GetNamespace() *string
		GetName() *string
	}:
		gvk = schema.FromAPIVersionAndKind(ptr.Deref(obj.GetAPIVersion(), ""), ptr.Deref(obj.GetKind(), ""))
		return gvk, ptr.Deref(obj.GetNamespace(), ""), ptr.Deref(obj.GetName(), "")
	case client.Object:
		return obj.GetObjectKind().GroupVersionKind(), obj.GetNamespace(), obj.GetName()
	}
	return gvk, "", ""
}

// confinedSubResource reads and writes a subresource of objects in the member's namespace.
type confinedSubResource struct {
	client client.SubResourceClient
	name   string
	parent confinedClient
}

// Get implements client.SubResourceReader.
func (s confinedSubResource) Get(
	ctx context.Context, obj, subResource client.Object, opts ...client.SubResourceGetOption,
) error {
	if err := s.parent.admit(obj); err != nil {
		return err
	}
	return s.client.Get(ctx, obj, subResource, opts...)
}

// Create implements client.SubResourceWriter.
func (s confinedSubResource) Create(
	ctx context.Context, obj, subResource client.Object, opts ...client.SubResourceCreateOption,
) error {
	if err := s.parent.admit(obj); err != nil {
		return err
	}
	return s.client.Create(ctx, obj, subResource, opts...)
}

// Update implements client.SubResourceWriter.
func (s confinedSubResource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	if err := s.parent.admit(obj); err != nil {
		return err
	}
	return s.client.Update(ctx, obj, opts...)
}

// Patch implements client.SubResourceWriter.
func (s confinedSubResource) Patch(
	ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
) error {
	if err := s.parent.admit(obj); err != nil {
		return err
	}
	return s.client.Patch(ctx, obj, patch, opts...)
}

// Apply implements client.SubResourceWriter.
func (s confinedSubResource) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	if err := s.parent.admitApply(obj); err != nil {
		return err
	}
	return client.NewNamespacedClient(s.parent.client, s.parent.member.namespace).SubResource(s.name).Apply(ctx, obj, opts...)
}
