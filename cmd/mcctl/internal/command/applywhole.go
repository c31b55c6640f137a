package command

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
)

// applyWhole applies objects to a side that takes them, as far as dry runs have told. In a namespace that is not there yet these tell nothing, so
// the rest is tried once more when the namespaces are, and if it is refused then those that this run has made go again.
func (a applier) applyWhole(ctx context.Context, to *reached, objects []client.Object) error {
	var namespaces []*corev1.Namespace
	var rest []client.Object
	for _, obj := range objects {
		if namespace, is := obj.(*corev1.Namespace); is {
			namespaces = append(namespaces, namespace)
		} else {
			rest = append(rest, obj)
		}
	}
	made, err := a.namespaces(ctx, to, namespaces)
	if err == nil && len(made) > 0 {
		err = to.tries(ctx, rest, a.mark)
	}
	if err != nil {
		return a.takeBack(ctx, to, made, err)
	}
	return a.apply(ctx, to, rest...)
}

// namespaces applies namespaces, and returns those that it has created, also if it fails. A dry run has made none.
func (a applier) namespaces(ctx context.Context, to *reached, namespaces []*corev1.Namespace) (made []client.Object, err error) {
	for _, namespace := range namespaces {
		result := ""
		err := a.progress.step(to.name+": "+describe(namespace), func() (_ string, err error) {
			result, err = a.one(ctx, to, namespace)
			return a.told(result), err
		})
		if err != nil {
			return made, err
		}
		if a.dryRun || result != created {
			continue
		}
		found := namespace.DeepCopy()
		if _, err := to.have(ctx, found); err != nil {
			return made, err
		}
		made = append(made, found)
	}
	return made, nil
}

// takeBack deletes the namespaces that this run has made, since the rest cannot be made.
func (a applier) takeBack(ctx context.Context, to *reached, made []client.Object, failed error) error {
	if len(made) == 0 {
		return failed
	}
	var stay []error
	for _, obj := range made {
		err := a.progress.step(to.name+": "+describe(obj), func() (string, error) { return "deleted again", to.removeUnused(ctx, obj) })
		if err != nil {
			stay = append(stay, err)
		}
	}
	if len(stay) > 0 {
		return fmt.Errorf("nothing else was written, since %s: %w. %w", to.notTaken(failed), failed, errors.Join(stay...))
	}
	return fmt.Errorf("nothing of it was left written, since %s: %w", to.notTaken(failed), failed)
}

// removeUnused deletes a namespace, unless others have begun to use it.
func (r *reached) removeUnused(ctx context.Context, namespace client.Object) error {
	others, err := r.inhabited(ctx, namespace.GetName(), nil)
	if err != nil {
		return fmt.Errorf("%s stays, since others may be in it: %w", describe(namespace), err)
	}
	if others != "" {
		return fmt.Errorf("%s stays, since %s is in it", describe(namespace), others)
	}
	uid := namespace.GetUID()
	if err := r.Delete(ctx, namespace, client.Preconditions{UID: &uid}); notfound.Ignore(err, namespace.GetName()) != nil {
		return fmt.Errorf("%s stays: %w", describe(namespace), r.failed("delete", namespace, err))
	}
	return nil
}
