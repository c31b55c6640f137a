package remote

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errAnother says that a name leads to another cluster than the one that is worked on, or may, and that this was not noticed yet.
var errAnother = errors.New("another cluster answers there, or it does not say any more which it is; nothing is done until that is mended or noticed")

// IsStill returns an error if another cluster answers than the one that is worked on, or may. It asks where nobody else notices that
// at once: in a cluster that a provider made and does not name.
func (a *Access) IsStill(ctx context.Context, at Session) error {
	if at.ID.UID == "" {
		return nil
	}
	now, err := a.UIDNow(ctx, at)
	if err != nil || now == at.ID.UID || now == "" && at.ID.ByName {
		return err
	}
	return fmt.Errorf("%s: %w: its identity is %.64q, not %.64q", at, errAnother, string(now), string(at.ID.UID))
}

// watchful writes to a cluster after it was asked whether it is still the same, for as long as one piece of work lasts. It is not safe
// for concurrent use.
type watchful struct {
	client.Writer

	is      func(context.Context) error
	isStill bool
}

func (w *watchful) after(ctx context.Context, do func() error) error {
	if !w.isStill {
		if err := w.is(ctx); err != nil {
			return err
		}
		w.isStill = true
	}
	return do()
}

// Create implements client.Writer.
func (w *watchful) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return w.after(ctx, func() error { return w.Writer.Create(ctx, obj, opts...) })
}

// Delete implements client.Writer.
func (w *watchful) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return w.after(ctx, func() error { return w.Writer.Delete(ctx, obj, opts...) })
}

// Update implements client.Writer.
func (w *watchful) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return w.after(ctx, func() error { return w.Writer.Update(ctx, obj, opts...) })
}

// Patch implements client.Writer.
func (w *watchful) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return w.after(ctx, func() error { return w.Writer.Patch(ctx, obj, patch, opts...) })
}

// Apply implements client.Writer.
func (w *watchful) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return w.after(ctx, func() error { return w.Writer.Apply(ctx, obj, opts...) })
}

// DeleteAllOf implements client.Writer.
func (w *watchful) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	return w.after(ctx, func() error { return w.Writer.DeleteAllOf(ctx, obj, opts...) })
}
