package command

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// namespaces applies namespaces, and returns those that were not there, also if it fails. A dry run has made none.
func (a applier) namespaces(ctx context.Context, to *reached, namespaces []*corev1.Namespace) (made []client.Object, err error) {
	for _, namespace := range namespaces {
		found := namespace.DeepCopy()
		before, err := to.have(ctx, found)
		if err == nil {
			err = a.apply(ctx, to, namespace)
		}
		if err != nil {
			return made, err
		}
		if before || a.dryRun {
			continue
		}
		if _, err := to.have(ctx, found); err != nil {
			return made, err
		}
		if a.mark.isOn(found) { // else somebody else was faster
			made = append(made, found)
		}
	}
	return made, nil
}

// takeBack deletes the namespaces that this run has made, since the rest is refused.
func (a applier) takeBack(ctx context.Context, to *reached, made []client.Object, refused error) error {
	for _, obj := range made {
		uid := obj.GetUID()
		err := a.progress.step(to.name+": "+describe(obj), func() (string, error) {
			return "deleted again", client.IgnoreNotFound(to.Delete(ctx, obj, client.Preconditions{UID: &uid}))
		})
		if err != nil {
			return fmt.Errorf("the %s refuses a part of it, so nothing else was written: %w. %s stays: %w",
				to.name, refused, describe(obj), to.failed("delete", obj, err))
		}
	}
	if len(made) == 0 {
		return refused
	}
	return fmt.Errorf("nothing of it was left written, since the %s refuses a part of it: %w", to.name, refused)
}
