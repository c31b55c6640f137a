package dependents

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// isNativelyOwn reports whether a native reference is to the owner.
func (p *placement) isNativelyOwn(native metav1.OwnerReference) bool {
	return native.UID == p.asked.ref.UID
}

// withoutOwn returns native references but for those to the owner. None is nil: an empty list would be a field that is desired.
func (p *placement) withoutOwn(natives []metav1.OwnerReference) []metav1.OwnerReference {
	others := slices.DeleteFunc(slices.Clone(natives), p.isNativelyOwn)
	if len(others) == 0 {
		return nil
	}
	return others
}

// disinherit takes the native reference from a configuration that is sealed if somebody has written to the object that it is to stay, and what is
// desired does not say. Where something else was desired before, that may have said so.
func (p *placement) disinherit(config, existing client.Object) {
	said := existing.GetAnnotations()[DeletionPolicyAnnotation]
	if said == string(metav1.DeletePropagationOrphan) && config.GetAnnotations()[DeletionPolicyAnnotation] == "" && isSealedAs(existing, config) {
		config.SetOwnerReferences(p.withoutOwn(config.GetOwnerReferences()))
	}
}

// hideFromGarbageCollector takes the native reference from dependents that are to stay, whatever kept them from being written: Kubernetes' garbage
// collector would delete them before the owner is looked at.
func (p *placement) hideFromGarbageCollector(ctx context.Context, owned []dependent, done *report) error {
	var errs []error
	for _, d := range owned {
		if first(slices.Concat(each(done.Err), errs), p.isOver) != nil {
			break
		}
		var result ObjectResult
		if i := slices.IndexFunc(done.Objects, func(r ObjectResult) bool { return r.UID == d.obj.GetUID() }); i >= 0 {
			result = done.Objects[i]
		}
		if result.State == Deleting {
			continue
		}
		if result.Object != nil {
			d.obj = result.Object
		}
		if slices.ContainsFunc(d.obj.GetOwnerReferences(), p.isNativelyOwn) && p.isToStay(d.obj) {
			errs = append(errs, p.hide(ctx, d, result.State == Applied))
		}
	}
	return together(errs...)
}

// isToStay reports whether a dependent is to stay when its owner goes, or that is not clear.
func (p *placement) isToStay(obj client.Object) bool {
	said, unclear := saidPolicy(p.asked.owner)
	own := obj.GetAnnotations()[DeletionPolicyAnnotation]
	return unclear != nil || said == metav1.DeletePropagationOrphan || own == string(metav1.DeletePropagationOrphan) || p.asked.policy.Keep && own == ""
}

// hide takes the native reference from a dependent. What was not applied just now, others may have given it.
func (p *placement) hide(ctx context.Context, d dependent, isApplied bool) error {
	key, what := p.keyOf(d.Kind, d.obj), d.Describe(d.obj)
	if err := p.holdOff(key, what); err != nil && !isApplied {
		return err
	}
	hidden := d.obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	hidden.SetOwnerReferences(p.withoutOwn(hidden.GetOwnerReferences()))
	if err := notfound.Ignore(p.patch(ctx, d.obj, hidden), d.obj.GetName()); err != nil {
		return remote.ErrorAbout(d.Kind, fmt.Sprintf("taking the native reference of %s in %s", what, p.at), err)
	}
	p.o.did(EventUpdated, p.at.Name(), what)
	if !isApplied {
		p.o.corrected(key, time.Now())
	}
	return nil
}
