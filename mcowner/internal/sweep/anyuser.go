package sweep

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// anyUser writes in the name of the first of the owners' users who may do that: others may have no rights any more.
type anyUser struct {
	client.Writer // nil, as dependents are deleted and patched, and nothing else is done

	sweeper *Sweeper
	at      remote.Session
	owners  []mcowner.Reference // one of each user
}

func (s *Sweeper) writerOf(gone []mcowner.Reference, at remote.Session) *anyUser {
	one := slices.CompactFunc(slices.Clone(gone), func(a, b mcowner.Reference) bool { return s.writers.IsOfOneUser(a.Request(), b.Request()) })
	return &anyUser{sweeper: s, at: at, owners: one}
}

// Delete implements client.Writer.
func (a *anyUser) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return a.try(ctx, func(w client.Writer) error { return w.Delete(ctx, obj, opts...) })
}

// Patch implements client.Writer.
func (a *anyUser) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return a.try(ctx, func(w client.Writer) error { return w.Patch(ctx, obj, patch, opts...) })
}

// try writes in the name of one user after the other. Each but the first waits for the limit.
func (a *anyUser) try(ctx context.Context, write func(client.Writer) error) error {
	var errs []error
	for i, owner := range a.owners {
		if i > 0 {
			if err := a.sweeper.limit.Wait(ctx); err != nil {
				return errors.Join(append(errs, err)...)
			}
		}
		if err := a.sweeper.access.WhyHeld(a.at.Name()); err != nil {
			return err // since it was found out whether there is something left
		}
		writer, err := a.sweeper.writers.At(ctx, a.at, owner.Request())
		if err == nil {
			if err = write(writer); !apierrors.IsForbidden(err) {
				return err
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
