package dependents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// apply makes one dependent as it is desired, and returns it as last seen.
func (p *placement) apply(ctx context.Context, w wanted) (client.Object, State, error) {
	config, err := p.configuration(w)
	if err != nil {
		return nil, "", fmt.Errorf("applying %s to %s: %w", w.kind.Describe(w.obj), p.at, err)
	}
	existing, err := p.existing(ctx, w.kind, config)
	var obj client.Object
	var state State
	switch {
	case apierrors.IsNotFound(err):
		obj, state, err = p.create(ctx, w, config)
	case err == nil:
		obj, state, err = p.change(ctx, w, existing, config)
	}
	if !isOutdated(err) {
		return obj, state, err
	}
	existing, missing := p.get(ctx, p.at.Cluster.GetAPIReader(), w.kind, config) // the cache is behind
	switch {
	case apierrors.IsNotFound(missing):
		return nil, "", err
	case missing != nil:
		return nil, "", missing
	}
	return p.change(ctx, w, existing, config)
}

// never is a resource version that no object has.
const never = "9223372036854775807"

// create creates a dependent. It applies, so that the fields count as applied from the start, and go when they are not desired
// any more. An object that somebody else creates this very moment has another resource version than the one that is asked for:
// the error is a conflict then, and nothing is changed.
func (p *placement) create(ctx context.Context, w wanted, config *unstructured.Unstructured) (client.Object, State, error) {
	desired, err := sealed(config)
	if err != nil {
		return nil, "", err
	}
	if w.Suspend {
		return nil, Suspended, nil
	}
	key, what := p.keyOf(w.kind, config), w.kind.Describe(config)
	before, known := p.o.was(key)
	deleted := known && before.desired == desired // by others
	if deleted {
		if err := p.holdOff(key, what); err != nil {
			return nil, "", fmt.Errorf("creating %s: %w", what, errDeleted)
		}
	}
	if !p.isRolledOut(key, desired) {
		if err := p.permit(); err != nil {
			return nil, "", err
		}
	}
	created, err := p.applyTo(ctx, config, "", never)
	if err != nil {
		return nil, "", fmt.Errorf("creating %s in %s: %w", what, p.at, err)
	}
	p.o.did(EventCreated, p.at.Name(), what)
	p.unseen = p.engine.cfg.paces.orDefaults().again
	obj, err := p.seen(w.kind, desired, created)
	if err == nil && deleted {
		p.o.corrected(key, time.Now())
		err = p.calm(key, what)
	}
	return obj, Applied, err
}

// change applies to an object if it is this owner's, unless it is as desired. Beside what an API server has answered it returns the
// object as it was, which that may quote.
func (p *placement) change(ctx context.Context, w wanted, existing client.Object, config *unstructured.Unstructured) (client.Object, State, error) {
	if err := p.mayChange(ctx, w, existing); err != nil {
		return nil, "", err
	}
	if err := p.keepIdentities(config, existing); err != nil {
		return nil, "", err
	}
	plain := config
	config, err := p.keepAdopted(w.kind, config, existing)
	if err != nil {
		return nil, "", err
	}
	desired, err := sealed(config)
	if err != nil {
		return nil, "", err
	}
	p.disinherit(config, existing)
	key := p.keyOf(w.kind, existing)
	before, known := p.o.was(key)
	live, err := liveHash(existing)
	if err != nil {
		return nil, "", err
	}
	now := fingerprint{existing.GetUID(), desired, live, existing.GetResourceVersion()}
	isOwn := p.isOwn(w.kind, existing)
	isWritten := isOwn && isSealedAs(existing, config) // by what ran before
	drifted := known && before.desired == desired || !known && isWritten
	switch {
	case known && before.isSame(now):
		p.o.remember(key, now)
		return existing, Unchanged, p.calm(key, w.kind.Describe(existing))
	case isOwn && w.Change == CreateOnly:
		return p.relabel(ctx, w, existing, config, desired)
	case (!known || w.Suspend) && isAsApplied(existing, config):
		p.o.remember(key, now)
		return existing, Unchanged, nil
	case w.Suspend && isOwn:
		return existing, Suspended, nil
	case w.Suspend:
		return nil, Suspended, nil
	}
	if !isSealedAs(existing, config) && !p.isRolledOut(key, desired) && !p.isMarkedAnew(w.kind, plain, existing) {
		if err := p.permit(); err != nil {
			return existing, "", err
		}
	}
	if drifted {
		if err := p.holdOff(key, w.kind.Describe(existing)); err != nil {
			return existing, "", err
		}
	}
	obj, changed, err := p.overwrite(ctx, w, existing, config, now)
	switch {
	case err != nil:
		return obj, "", err
	case !changed:
		return obj, Unchanged, p.calm(key, w.kind.Describe(obj))
	case !drifted:
		return obj, Applied, nil
	}
	p.o.corrected(key, time.Now())
	return obj, Drifted, p.calm(key, w.kind.Describe(obj))
}

// overwrite applies to an object that is not as desired, and returns whether that has changed it.
func (p *placement) overwrite(
	ctx context.Context, w wanted, existing client.Object, config *unstructured.Unstructured, now fingerprint,
) (obj client.Object, changed bool, err error) {
	taken, err := p.takeOver(ctx, w, existing, config)
	if err != nil {
		return existing, false, err
	}
	obj, err = p.applyOver(ctx, w, taken, config, now.desired)
	key := p.keyOf(w.kind, existing)
	after, _ := p.o.was(key)
	switch {
	case err == nil && after.isSame(now): // at most it says otherwise who manages which fields
		now.version = after.version
		p.o.remember(key, now)
		return obj, false, nil
	case err == nil:
		p.o.did(EventUpdated, p.at.Name(), w.kind.Describe(taken))
		return obj, true, nil
	case apierrors.IsInvalid(err) && w.Immutable == Recreate:
		return taken, false, p.recreate(ctx, w, taken, config, err)
	default:
		return taken, false, err
	}
}

// relabel gives a dependent back the labels by which it is found, and what says that it is to stay, completes its reference, takes a native
// one that it is not to have, and leaves the rest of it as it is. It remembers what was written as it is desired: that is created anew without a permit.
func (p *placement) relabel(
	ctx context.Context, w wanted, existing client.Object, config *unstructured.Unstructured, desired hash,
) (client.Object, State, error) {
	key, what := p.keyOf(w.kind, existing), w.kind.Describe(existing)
	if _, known := p.o.was(key); !known && isSealedAs(existing, config) {
		p.o.remember(key, fingerprint{desired: desired})
	}
	labelled := existing.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	all, annotations := map[string]string{}, map[string]string{}
	maps.Copy(all, existing.GetLabels())
	for _, key := range []string{p.asked.ref.Key(), mcowner.FleetLabel, mcowner.OwnerClusterLabel} {
		all[key] = config.GetLabels()[key]
	}
	labelled.SetLabels(all)
	maps.Copy(annotations, existing.GetAnnotations())
	annotations[p.asked.ref.Key()] = config.GetAnnotations()[p.asked.ref.Key()]
	if stays := config.GetAnnotations()[DeletionPolicyAnnotation]; stays != "" {
		annotations[DeletionPolicyAnnotation] = stays
	}
	labelled.SetAnnotations(annotations)
	if !slices.ContainsFunc(config.GetOwnerReferences(), p.isNativelyOwn) {
		labelled.SetOwnerReferences(p.withoutOwn(labelled.GetOwnerReferences()))
	}
	switch {
	case maps.Equal(all, existing.GetLabels()) && maps.Equal(annotations, existing.GetAnnotations()) &&
		len(labelled.GetOwnerReferences()) == len(existing.GetOwnerReferences()):
		return existing, Unchanged, p.calm(key, what)
	case w.Suspend:
		return existing, Suspended, nil
	}
	if err := p.holdOff(key, what); err != nil {
		return existing, "", err
	}
	if err := p.patch(ctx, existing, labelled); err != nil {
		return existing, "", fmt.Errorf("putting back the labels of %s in %s: %w", what, p.at, err)
	}
	p.o.did(EventUpdated, p.at.Name(), what)
	p.o.corrected(key, time.Now())
	return labelled, Drifted, p.calm(key, what)
}

// recreate deletes an object that cannot be changed as it is desired. Its deletion brings the work back. It stays if it would not
// come back: what is desired may be wrong in itself. What was applied before, and others have changed, is created anew without a permit.
func (p *placement) recreate(ctx context.Context, w wanted, existing client.Object, config *unstructured.Unstructured, why error) error {
	ctx, cancel := p.engine.access.Bound(ctx)
	defer cancel()
	switch {
	case !p.isOwnAlone(w.kind, existing):
		return fmt.Errorf("%w; it is not created anew, as it is not this owner's alone", why)
	case holdsMore(w.kind.GroupKind()) && w.obj.GetAnnotations()[ImmutableAnnotation] == "":
		return fmt.Errorf("%w; it is not created anew, as what is in it would go with it: its own annotation %s may say so", why, ImmutableAnnotation)
	}
	err := p.writer.Create(ctx, config.DeepCopy(), client.FieldOwner(p.engine.cfg.name), client.DryRunAll)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%w; it is not created anew, as that would fail: %w", why, err)
	}
	err = p.writer.Delete(ctx, existing, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{
		UID: new(existing.GetUID()), ResourceVersion: new(existing.GetResourceVersion()),
	})
	if err = notfound.Ignore(err, existing.GetName()); err != nil {
		return fmt.Errorf("deleting %s of %s, to create it anew: %w", w.kind.Describe(existing), p.at, err)
	}
	desired, unsealed := sealed(config)
	key := p.keyOf(w.kind, existing)
	isWritten := isSealedAs(existing, config)
	if unsealed == nil && (isWritten || p.isRolledOut(key, desired)) {
		p.o.remember(key, fingerprint{desired: desired})
	} else {
		p.o.forgetObject(key)
	}
	p.o.did(EventDeleted, p.at.Name(), w.kind.Describe(existing))
	return fmt.Errorf("%s of %s is to be created anew: %w: %v", w.kind.Describe(existing), p.at, errGoing, why) //nolint:errorlint // it is no failure
}

// holdsMore reports whether more is deleted with an object of a kind than can be created anew: all that is in a namespace, all objects of a kind,
// the data of a volume.
func holdsMore(kind schema.GroupKind) bool {
	switch kind {
	case namespaceKind, crdKind, schema.GroupKind{Kind: "PersistentVolumeClaim"}, schema.GroupKind{Kind: "PersistentVolume"}:
		return true
	default:
		return false
	}
}

// applyOver applies to an object as it was read: if it was changed since, it may no longer be the owner's, and the error is a
// conflict.
func (p *placement) applyOver(ctx context.Context, w wanted, existing client.Object, config *unstructured.Unstructured, desired hash) (client.Object, error) {
	applied, err := p.applyTo(ctx, config, existing.GetUID(), existing.GetResourceVersion())
	if err != nil {
		return nil, fmt.Errorf("applying %s to %s: %w", w.kind.Describe(config), p.at, err)
	}
	return p.seen(w.kind, desired, applied)
}

// applyTo applies to the object that has this UID and resource version, and returns it as it is then.
func (p *placement) applyTo(
	ctx context.Context, config *unstructured.Unstructured, uid types.UID, version string, more ...client.ApplyOption,
) (*unstructured.Unstructured, error) {
	ctx, cancel := p.engine.access.Bound(ctx)
	defer cancel()
	applied := config.DeepCopy()
	applied.SetUID(uid)
	applied.SetResourceVersion(version)
	err := p.writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied),
		append(more, client.ForceOwnership, client.FieldOwner(p.engine.cfg.name))...)
	return applied, err
}

// patch changes an object from what it was read as. If it was changed since, the error is a conflict.
func (p *placement) patch(ctx context.Context, before, after client.Object) error {
	ctx, cancel := p.engine.access.Bound(ctx)
	defer cancel()
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return p.writer.Patch(ctx, after, patch, client.FieldOwner(p.engine.cfg.name))
}

// seen returns what came of writing in the object's type, and remembers it.
func (p *placement) seen(k remote.Kind, desired hash, result *unstructured.Unstructured) (client.Object, error) {
	obj := k.NewObject()
	if u, ok := obj.(*unstructured.Unstructured); ok {
		u.Object = result.Object
	} else if err := runtime.DefaultUnstructuredConverter.FromUnstructured(result.Object, obj); err != nil {
		return nil, fmt.Errorf("reading %s of %s: %w", k.Describe(result), p.at, err)
	}
	live, err := liveHash(obj)
	if err != nil {
		return nil, err
	}
	p.o.remember(p.keyOf(k, obj), fingerprint{obj.GetUID(), desired, live, obj.GetResourceVersion()})
	return obj, nil
}

// existing reads an object from the cache, and from the API server if the cache does not have yet what was written last: writing to what it has
// would be in vain.
func (p *placement) existing(ctx context.Context, k remote.Kind, wanted client.Object) (client.Object, error) {
	existing, err := p.get(ctx, p.cache(), k, wanted)
	before, _ := p.o.was(p.keyOf(k, wanted))
	missing := apierrors.IsNotFound(err) && before.uid != ""
	if missing {
		p.unseen = cmp.Or(p.unseen, mostPause)
	}
	if err == nil && before.isAfter(existing) || missing {
		return p.get(ctx, p.at.Cluster.GetAPIReader(), k, wanted)
	}
	return existing, err
}

func (p *placement) get(ctx context.Context, from client.Reader, k remote.Kind, wanted client.Object) (client.Object, error) {
	ctx, cancel := p.engine.access.Bound(ctx)
	defer cancel()
	existing := k.NewObject()
	if err := from.Get(ctx, client.ObjectKeyFromObject(wanted), existing); err != nil {
		return nil, fmt.Errorf("reading %s of %s: %w", k.Describe(wanted), p.at, err)
	}
	existing.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return existing, nil
}

// object makes one dependent as it is desired. unknown is why its kind cannot be read, if that is so.
func (p *placement) object(ctx context.Context, w wanted, unknown error) ObjectResult {
	result := ObjectResult{Kind: w.kind.GroupVersionKind, Key: client.ObjectKeyFromObject(w.obj)}
	var obj client.Object
	switch result.Err = cmp.Or(w.err, unknown); {
	case result.Err == nil:
		obj, result.State, result.Err = p.make(ctx, w)
	case w.err == nil && w.Suspend && isUnserved(unknown) && errors.Is(unknown, ErrWaiting): // it is not written once its kind is there
		result.State, result.Err = Suspended, nil
	}
	result.Err = brief(unquoted(w.kind, p.at, result.Err, w.obj, obj))
	if obj != nil {
		result.Object, result.UID = obj, obj.GetUID()
	}
	if result.Err != nil {
		result.State = stateOf(result.Err)
	}
	key := p.keyOf(w.kind, w.obj)
	if result.State == Conflict || errors.Is(result.Err, errGoing) {
		p.engine.ledger.await(p.work.owner, key) // until what has its place is changed, or gone
	} else {
		p.engine.ledger.settled(p.work.owner, key)
	}
	return result
}

// make applies one dependent, or shares one. A panic of what its type does is its error.
func (p *placement) make(ctx context.Context, w wanted) (obj client.Object, state State, err error) {
	defer remote.Recovered(ctx, &err)
	if w.shared {
		return p.share(ctx, w)
	}
	return p.apply(ctx, w)
}
