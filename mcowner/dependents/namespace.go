package dependents

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// withNamespaces adds the namespaces of what is wanted, where they are to be created.
func (p *placement) withNamespaces(wants []wanted, found []dependent) []wanted {
	if !p.engine.cfg.createNamespaces || p.asked.policy.ExistingNamespaces {
		return wants
	}
	k := p.engine.namespaces()
	stays := map[dependentKey]bool{}
	for _, d := range found {
		stays[p.keyOf(d.Kind, d.obj)] = d.obj.GetDeletionTimestamp().IsZero()
	}
	there, lacks, written := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, w := range wants {
		written[w.obj.GetNamespace()] = written[w.obj.GetNamespace()] || w.err == nil && !w.Suspend
		switch {
		case w.kind.GroupKind() == namespaceKind: // it is a dependent itself, and looked after as such
			there[w.obj.GetName()] = true
		case w.err == nil && !stays[p.keyOf(w.kind, w.obj)]:
			lacks[w.obj.GetNamespace()] = true
		}
	}
	var namespaces []wanted
	for _, w := range wants {
		name := w.obj.GetNamespace()
		if name == "" || there[name] || w.err != nil || p.isClusterScoped(w.kind) {
			continue
		}
		there[name] = true
		namespace := wanted{kind: k, obj: k.NewObject(), wave: firstWave, shared: true, inUse: !lacks[name]}
		namespace.obj.SetName(name)
		namespace.Policy, namespace.err = p.asked.policy.of(p.asked.owner, namespace.obj)
		namespace.Suspend = !written[name]
		namespaces = append(namespaces, namespace)
	}
	return append(namespaces, wants...)
}

// isClusterScoped reports whether it is known that objects of a kind are in no namespace. A cluster that gives no answer about it is not asked again
// before it is the kind's turn.
func (p *placement) isClusterScoped(k remote.Kind) bool {
	if _, is := p.versionOf(k); !is || p.over != nil || p.o.hungBefore(p.keyOfKind(k)) {
		return false
	}
	namespaced, err := apiutil.IsGVKNamespaced(k.GroupVersionKind, p.engine.access.Mapper(p.at))
	return err == nil && !namespaced
}

// namespaces returns the kind of namespaces.
func (c *engine) namespaces() remote.Kind {
	return c.kindNoted(corev1.SchemeGroupVersion.WithKind(namespaceKind.Kind))
}

// shared is what is desired of namespaces that are shared: to be there, in this cluster.
func (p *placement) shared() hash { return hashOf([]byte(p.at.ID.UID)) }

// ofOthers says of a namespace that others have created it.
var ofOthers = fingerprint{desired: hashOf([]byte("of others"))}

// share makes the owner one of those that a namespace was created for, and creates it if it is absent. One that others have
// created is left alone, and not returned.
func (p *placement) share(ctx context.Context, w wanted) (client.Object, State, error) {
	key := p.keyOf(w.kind, w.obj)
	before, _ := p.o.was(key)
	existing, err := p.get(ctx, p.cache(), w.kind, w.obj)
	if apierrors.IsNotFound(err) { // a cache may be limited to what is the fleet's
		if w.inUse && before == ofOthers {
			return nil, Unchanged, nil
		}
		existing, err = p.get(ctx, p.at.Cluster.GetAPIReader(), w.kind, w.obj)
	}
	switch {
	case apierrors.IsNotFound(err):
		return p.createNamespace(ctx, w)
	case err != nil:
		return nil, "", err
	case !existing.GetDeletionTimestamp().IsZero():
		return nil, "", fmt.Errorf("%s of %s: %w", w.kind.Describe(existing), p.at, errNamespaceGoing)
	case existing.GetAnnotations()[mcowner.CreatedByAnnotation] != p.engine.cfg.fleet:
		p.o.remember(key, ofOthers)
		return nil, Unchanged, nil
	}
	references, err := w.kind.References(existing, p.at.ID)
	isJoined := slices.ContainsFunc(references, p.asked.ref.Same)
	if err == nil && !w.Suspend && !isJoined && !p.isRolledOut(key, p.shared()) { // else somebody has taken the owner from it
		if err := p.permit(); err != nil {
			return nil, "", err
		}
	}
	isReplaced := !isJoined && before.uid != "" && before.uid != existing.GetUID() && p.isRolledOut(key, p.shared())
	if isJoined || err == nil && !w.Suspend { // what was never joined takes a permit later
		p.o.remember(key, fingerprint{uid: existing.GetUID(), desired: p.shared()})
	}
	switch {
	case err != nil:
		return nil, Unchanged, nil //nolint:nilerr // what cannot be read is nobody's, and it is there
	case w.Suspend:
		return existing, Unchanged, nil
	}
	joined, state, err := p.joinNamespace(ctx, w, existing, isJoined || before.uid == existing.GetUID())
	if err == nil && isReplaced { // others have deleted it, and another owner has created it since
		err = p.recreated(key, w.kind.Describe(existing))
	}
	return joined, state, err
}

// recreated counts that something is there again which others had deleted. The error says so if they do that time and again.
func (p *placement) recreated(key dependentKey, what string) error {
	now := time.Now()
	p.o.untilCorrection(key, now) // which forgets what was long ago
	p.o.corrected(key, now)
	return p.calm(key, what)
}

// refer adds the owner to a namespace, and no native reference: Kubernetes' garbage collector does not look whether it is empty. A reference that
// does not say the kind, as those of before did not, stays so: there may be no room for more.
func (p *placement) refer(k remote.Kind, namespace client.Object) error {
	native, kind := namespace.GetOwnerReferences(), namespace.GetObjectKind()
	if references, err := k.References(namespace, p.at.ID); err == nil && slices.ContainsFunc(references, p.asked.ref.Same) {
		defer kind.SetGroupVersionKind(kind.GroupVersionKind())
		kind.SetGroupVersionKind(schema.GroupVersionKind{})
	}
	err := mcowner.SetOwnerReference(p.asked.ref, namespace, p.at.ID)
	namespace.SetOwnerReferences(native)
	return err
}

// joinNamespace adds the owner to a namespace, and the labels by which its dependents are found, unless both are there. Whoever changes them
// time and again, after the owner has joined, is not fought without a pause.
func (p *placement) joinNamespace(ctx context.Context, w wanted, existing client.Object, hasJoined bool) (client.Object, State, error) {
	key, what := p.keyOf(w.kind, existing), w.kind.Describe(existing)
	joined := existing.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	if hasJoined {                                      // another value there is somebody's mistake
		labels := map[string]string{}
		maps.Copy(labels, joined.GetLabels())
		labels[mcowner.FleetLabel] = p.engine.cfg.fleet
		joined.SetLabels(labels)
	}
	if w.Keep {
		keep(joined)
	}
	if err := p.refer(w.kind, joined); err != nil {
		return nil, "", err
	}
	if hasJoined {
		if maps.Equal(joined.GetLabels(), existing.GetLabels()) && maps.Equal(joined.GetAnnotations(), existing.GetAnnotations()) {
			return existing, Unchanged, p.calm(key, what)
		}
		if err := p.holdOff(key, what); err != nil {
			return existing, "", err
		}
	}
	if err := p.patch(ctx, existing, joined); err != nil {
		return nil, "", fmt.Errorf("sharing %s of %s: %w", what, p.at, unlessFull(err))
	}
	if !hasJoined {
		return joined, Applied, nil
	}
	p.o.did(EventUpdated, p.at.Name(), what)
	p.o.corrected(key, time.Now())
	return joined, Drifted, p.calm(key, what)
}

// unlessFull returns an error of joining a namespace, and says what to do if that has no room for one more owner.
func unlessFull(err error) error {
	if !apierrors.HasStatusCause(err, metav1.CauseType(field.ErrorTypeTooLong)) {
		return err
	}
	return fmt.Errorf("it has no room for one more owner: to have it for all that come, and to keep it when they go, take the annotation %s "+
		"from it: %w", mcowner.CreatedByAnnotation, err)
}

func (p *placement) createNamespace(ctx context.Context, w wanted) (client.Object, State, error) {
	if w.Suspend {
		return nil, Suspended, nil
	}
	obj := w.obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	key, what := p.keyOf(w.kind, obj), w.kind.Describe(obj)
	deleted := p.isRolledOut(key, p.shared()) // by others
	if deleted {
		if err := p.holdOff(key, what); err != nil {
			return nil, "", fmt.Errorf("creating %s: %w", what, errDeleted)
		}
	} else if err := p.permit(); err != nil {
		return nil, "", err
	}
	obj.SetAnnotations(map[string]string{mcowner.CreatedByAnnotation: p.engine.cfg.fleet})
	if w.Keep {
		keep(obj)
	}
	if err := p.refer(w.kind, obj); err != nil {
		return nil, "", err
	}
	ctx, cancel := p.engine.access.Bound(ctx)
	defer cancel()
	if err := p.writer.Create(ctx, obj, client.FieldOwner(p.engine.cfg.name)); err != nil {
		return nil, "", fmt.Errorf("creating %s in %s: %w", what, p.at, err)
	}
	p.o.remember(key, fingerprint{uid: obj.GetUID(), desired: p.shared()})
	p.o.did(EventCreated, p.at.Name(), what)
	p.unseen = p.engine.cfg.paces.orDefaults().again
	if deleted {
		return obj, Applied, p.recreated(key, what)
	}
	return obj, Applied, nil
}

// markNeeded marks the namespaces that the owner has created as what it desired itself, and only needs now: they go with it if they are empty of
// others. They are no shared ones: whoever else has something there needs nothing of them.
func (p *placement) markNeeded(ctx context.Context, wants []wanted, found []dependent) error {
	needed := map[string]bool{}
	for _, w := range wants {
		if w.shared && !w.Suspend {
			needed[w.obj.GetName()] = true
		}
	}
	var errs []error
	for _, d := range found {
		said := d.obj.GetAnnotations()[mcowner.CreatedByAnnotation]
		if d.GroupKind() != namespaceKind || !needed[d.obj.GetName()] || said != "" || remote.WasAdopted(d.obj) || !p.isOwn(d.Kind, d.obj) {
			continue
		}
		what := d.Describe(d.obj)
		err := notfound.Ignore(p.patch(ctx, d.obj, p.markedNeeded(d.obj)), d.obj.GetName())
		if err != nil && !isPassing(err) && !remote.IsAway(err) {
			err = denied{err} // what is desired is there
		}
		if err == nil {
			p.o.did(EventUpdated, p.at.Name(), what)
			continue
		}
		errs = append(errs, fmt.Errorf("noting on %s of %s that it goes only if it is empty: %w", what, p.at, err))
		if p.isOver(err) {
			break
		}
	}
	return together(errs...)
}

// markedNeeded returns a namespace with the marks of one that the owner only needs. If somebody takes the first, it stays for the second, and is not
// marked again. It has no native reference to the owner: Kubernetes' garbage collector does not look what is in it.
func (p *placement) markedNeeded(namespace client.Object) client.Object {
	marked := namespace.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	annotations := maps.Clone(marked.GetAnnotations())
	annotations[mcowner.CreatedByAnnotation] = p.engine.cfg.fleet + "/" + p.engine.cfg.name
	annotations[mcowner.AdoptedAnnotation] = p.engine.cfg.fleet
	marked.SetAnnotations(annotations)
	marked.SetOwnerReferences(p.withoutOwn(marked.GetOwnerReferences()))
	return marked
}
