package dependents

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// applier works on the dependents of one owner in one cluster.
type applier struct {
	*pass
	at     session
	writer client.Client
}

// applyAll makes all dependents of the owner in the cluster as they are desired, and removes the others. It returns those
// that are there.
func (a *applier) applyAll(ctx context.Context) ([]client.Object, error) {
	found, err := a.known(ctx, a.at, a.ref)
	if err != nil {
		return nil, err
	}
	target := a.target(found)
	desired, err := a.desired(ctx, a.owner, target)
	if err != nil {
		return target.Dependents, fmt.Errorf("finding what is desired in %s: %w", clusterText(a.at.name), err)
	}
	var there []client.Object
	var errs []error
	wanted := map[dependentKey]bool{}
	for _, d := range desired {
		obj, err := a.applyOnce(ctx, d, wanted)
		if err == nil {
			there = append(there, obj)
		}
		errs = append(errs, err)
		if errors.Is(err, context.DeadlineExceeded) {
			return there, errors.Join(errs...) // the others would not be answered either
		}
	}
	a.memory.keep(a.at.name, wanted)
	for _, d := range found {
		if !wanted[a.keyOf(d.kind, d.obj)] && d.obj.GetDeletionTimestamp().IsZero() {
			err := a.takeAway(ctx, d.kind, d.obj, metav1.DeletePropagationBackground)
			errs = append(errs, err)
			if errors.Is(err, context.DeadlineExceeded) {
				break
			}
		}
	}
	return there, errors.Join(errs...)
}

// target describes the cluster to the user's function.
func (a *applier) target(found []dependent) Target {
	t := Target{Cluster: a.at.name, Labels: a.labelsOf(a.at.name)}
	for _, d := range found {
		if controller, ok := mcowner.ControllerOf(d.obj, a.at.name); ok && controller.Same(a.ref) {
			t.Dependents = append(t.Dependents, d.obj)
		}
	}
	return t
}

// applyOnce applies, unless that was done before, which wanted says.
func (a *applier) applyOnce(ctx context.Context, desired client.Object, wanted map[dependentKey]bool) (client.Object, error) {
	k, err := a.kindOf(desired)
	if err != nil {
		return nil, err
	}
	key := a.keyOf(k, desired)
	if wanted[key] {
		return nil, fmt.Errorf("%s is desired twice", k.describe(desired))
	}
	wanted[key] = true
	obj, err := a.apply(ctx, k, desired)
	if _, conflict := errors.AsType[*ConflictError](err); conflict {
		a.memories.await(a.req, key) // until what has its place is changed, or gone
	} else {
		a.memories.settled(a.req, key)
	}
	return obj, err
}

// kindOf returns which of the controller's kinds an object is of.
func (p *pass) kindOf(obj client.Object) (kind, error) {
	gvk, err := apiutil.GVKForObject(obj, p.mgr.GetScheme())
	if err != nil {
		return kind{}, err
	}
	for _, k := range p.kinds {
		if k.gvk == gvk {
			return k, nil
		}
	}
	return kind{}, fmt.Errorf("a dependent of kind %s is desired, which is not one of the controller's Kinds", gvk)
}
