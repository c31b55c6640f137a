package fleet

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/internal/gate"
)

// gatedCluster returns a cluster that a provider made, whose client changes nothing once the gate is closed. Its requests do not
// travel by a wire. What is made of its config passes no gate.
func gatedCluster(made cluster.Cluster, g *gate.Gate) cluster.Cluster {
	if g == nil {
		return made
	}
	return gated{made, g}
}

type gated struct {
	cluster.Cluster

	gate *gate.Gate
}

// GetClient implements cluster.Cluster.
func (g gated) GetClient() client.Client { return gatedClient{g.Cluster.GetClient(), g.gate} }

// gatedClient must override all of client.Writer: a test says so if that has more.
type gatedClient struct {
	client.Client

	gate *gate.Gate
}

// pass calls send, which must end before the gate can be closed.
func (c gatedClient) pass(ctx context.Context, send func(context.Context) error) error {
	return pass(ctx, c.gate, send)
}

// pass waits for what was sent although its caller may not: given up under way, it could be carried out after the next owner has begun.
func pass(ctx context.Context, own *gate.Gate, send func(context.Context) error) error {
	theirs := gate.From(ctx)
	if own == nil && theirs == nil {
		return send(ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	limited, done, err := gate.Limit(context.WithoutCancel(ctx), own, theirs)
	if err != nil {
		return err
	}
	defer done()
	return send(limited)
}

// Create implements client.Writer.
func (c gatedClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return c.pass(ctx, func(ctx context.Context) error { return c.Client.Create(ctx, obj, opts...) })
}

// Delete implements client.Writer.
func (c gatedClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return c.pass(ctx, func(ctx context.Context) error { return c.Client.Delete(ctx, obj, opts...) })
}

// Update implements client.Writer.
func (c gatedClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return c.pass(ctx, func(ctx context.Context) error { return c.Client.Update(ctx, obj, opts...) })
}

// Patch implements client.Writer.
func (c gatedClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.pass(ctx, func(ctx context.Context) error { return c.Client.Patch(ctx, obj, patch, opts...) })
}

// Apply implements client.Writer.
func (c gatedClient) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return c.pass(ctx, func(ctx context.Context) error { return c.Client.Apply(ctx, obj, opts...) })
}

// DeleteAllOf implements client.Writer.
func (c gatedClient) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	return c.pass(ctx, func(ctx context.Context) error { return c.Client.DeleteAllOf(ctx, obj, opts...) })
}

// Status implements client.StatusClient.
func (c gatedClient) Status() client.SubResourceWriter { return gatedWriter{c.Client.Status(), c.gate} }

// SubResource implements client.SubResourceClientConstructor.
func (c gatedClient) SubResource(subResource string) client.SubResourceClient {
	inner := c.Client.SubResource(subResource)
	return gatedSubResource{gatedWriter{inner, c.gate}, inner}
}

// gatedSubResource reads as it is, and writes through the gate.
type gatedSubResource struct {
	gatedWriter
	client.SubResourceReader
}

// gatedWriter must override all of client.SubResourceWriter: a test says so if that has more.
type gatedWriter struct {
	client.SubResourceWriter

	gate *gate.Gate
}

// Create implements client.SubResourceWriter.
func (w gatedWriter) Create(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
	return pass(ctx, w.gate, func(ctx context.Context) error { return w.SubResourceWriter.Create(ctx, obj, sub, opts...) })
}

// Update implements client.SubResourceWriter.
func (w gatedWriter) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	return pass(ctx, w.gate, func(ctx context.Context) error { return w.SubResourceWriter.Update(ctx, obj, opts...) })
}

// Patch implements client.SubResourceWriter.
func (w gatedWriter) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return pass(ctx, w.gate, func(ctx context.Context) error { return w.SubResourceWriter.Patch(ctx, obj, patch, opts...) })
}

// Apply implements client.SubResourceWriter.
func (w gatedWriter) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	return pass(ctx, w.gate, func(ctx context.Context) error { return w.SubResourceWriter.Apply(ctx, obj, opts...) })
}
