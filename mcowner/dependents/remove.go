package dependents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// errThere says that an owner is there that another one of the name takes for gone.
var errThere = errors.New("it is there")

// remove takes the owner from a dependent, which has the place of a desired one or is not desired. Whoever brings it back time and again is not
// fought without a pause.
func (p *placement) remove(ctx context.Context, k remote.Kind, obj client.Object, policy metav1.DeletionPropagation, isDesired bool) error {
	r := removal{p.keyOf(k, obj), obj.GetResourceVersion(), isDesired}
	if err := p.contention(k.Describe(obj), p.o.untilRemoval(r, time.Now()), errRestored); err != nil {
		return err
	}
	taken, err := p.takeAway(ctx, k, obj, policy)
	if taken {
		p.o.removed(r, time.Now())
	}
	return err
}

// takeAway takes the owner from a dependent, and tells of it. It changes nothing that is not this owner's.
func (p *placement) takeAway(ctx context.Context, k remote.Kind, obj client.Object, policy metav1.DeletionPropagation) (taken bool, err error) {
	references, err := k.References(obj, p.at.ID)
	mine := slices.DeleteFunc(references, func(r mcowner.Reference) bool { return !p.asked.ref.Succeeds(r) })
	if err != nil || len(mine) == 0 {
		return false, nil //nolint:nilerr // what cannot be read is nobody's
	}
	for _, r := range mine {
		if r.UID == p.asked.ref.UID {
			if p.asked.policy.Keep && obj.GetAnnotations()[DeletionPolicyAnnotation] == "" { // it was not written there yet
				policy = metav1.DeletePropagationOrphan
			}
			continue
		}
		why, err := p.engine.collector.WhyGone(ctx, r, p.at.Name())
		if err == nil && why == "" {
			err = errThere
		}
		if err != nil { // the name may lead to another cluster than it did, which was not noticed yet
			return false, fmt.Errorf("finding out whether the owner that %s had before is gone: %w", k.Describe(obj), err)
		}
		keep, err := p.engine.isToStay(ctx, r) // the owner of that name before
		if err != nil {
			return false, fmt.Errorf("finding out whether %s is to stay: %w", k.Describe(obj), err)
		}
		if keep {
			policy = metav1.DeletePropagationOrphan
		}
	}
	deleted, err := remote.TakeAway(ctx, p.engine.access, p.writer, p.at, k, obj, mine, policy)
	p.noteUnserved(k.Of(obj), err)
	if errors.Is(err, remote.ErrEmptying) {
		return false, fmt.Errorf("%w: %w", err, errGoing)
	}
	if err != nil {
		return false, err
	}
	p.o.forgetObject(p.keyOf(k, obj))
	reason := EventOrphaned
	if deleted {
		reason = EventDeleted
	}
	p.o.did(reason, p.at.Name(), k.Describe(obj))
	return true, nil
}

// dependent is an object of the cluster that has a reference to the owner.
type dependent struct {
	remote.Kind

	obj client.Object
}

// kindsHere returns the kinds of which the owner may have dependents: those that were noted, or, on an owner of a version
// before that, those of the controller; and those of which something was seen that came late. A kind is in the version in which it was
// desired last in the cluster: another cluster may have it in the one that was noted.
func (p *placement) kindsHere() []remote.Kind {
	kinds := p.kindsNoted()
	for i, k := range kinds {
		kinds[i] = p.served(k)
	}
	return kinds
}

// kindsToRead is kindsHere without the kinds of which it is known that the owner has nothing in the cluster: nothing is asked about them. Of
// those of which nothing is known, as many are left to the next run as exceed mostUnknown.
func (p *placement) kindsToRead() (kinds []remote.Kind) {
	unknown := 0
	for _, k := range p.kindsInTurn(p.kindsNoted()) {
		may, known := p.o.presence(p.at.Name(), p.at.Life(), k.GroupKind())
		switch {
		case may:
		case known:
			continue
		case unknown >= mostUnknown:
			p.unasked[k.GroupKind()] = true
			continue
		default:
			unknown++
		}
		kinds = append(kinds, p.served(k))
	}
	return kinds
}

// kindsNoted is kindsHere in whatever version.
func (p *placement) kindsNoted() []remote.Kind {
	present := p.o.presentKinds(p.at.Name())
	var kinds []remote.Kind
	for _, gvk := range p.asked.noted {
		kinds = append(kinds, p.engine.kindNoted(inVersionOf(present, gvk)))
	}
	if len(kinds) == 0 {
		kinds = slices.Clone(p.engine.kinds)
	}
	for _, gvk := range present {
		if !slices.ContainsFunc(kinds, func(k remote.Kind) bool { return k.GroupKind() == gvk.GroupKind() }) {
			kinds = append(kinds, p.engine.kindNoted(gvk))
		}
	}
	return kinds
}

// served returns a kind in another version if the cluster does not serve this one any more: the objects are the same. That holds for Kinds too:
// what is desired of them waits, and what is not desired any more goes in the other version.
func (p *placement) served(k remote.Kind) remote.Kind {
	other, _ := p.versionOf(k)
	return other
}

// versionOf is remote.Access.Served, and asks once at most. A kind of Kinds that hung is not asked for: it is read in its own version when it is
// its turn, after the others.
func (p *placement) versionOf(k remote.Kind) (served remote.Kind, is bool) {
	if known, asked := p.versions[k.GroupVersionKind]; asked {
		return known.Kind, known.is
	}
	if p.engine.isFixed(k) && (p.over != nil || p.o.hungBefore(p.keyOfKind(k))) {
		return k, true
	}
	served, is, err := p.engine.access.Served(p.at, k)
	if remote.IsHung(err) {
		p.o.noteHung(p.keyOfKind(k), true)
	}
	if p.isOver(err) {
		p.over = err
	}
	if p.versions == nil {
		p.versions = map[schema.GroupVersionKind]versionHere{}
	}
	p.versions[k.GroupVersionKind] = versionHere{served, is}
	return served, is
}

// versionHere is the version in which the cluster serves a kind, if it does.
type versionHere struct {
	remote.Kind

	is bool
}

// noteUnserved asks the cluster anew whether it serves a kind in its version, if an error may say that it does not. What was served once is
// taken for served until then, and the next attempt has the version that is.
func (p *placement) noteUnserved(k remote.Kind, err error) {
	if apierrors.IsNotFound(err) {
		k.IsUnserved(p.at)
		clear(p.versions)
	}
}

// kindNoted returns a kind that was noted. It may be none of the controller's any more.
func (c *engine) kindNoted(gvk schema.GroupVersionKind) remote.Kind {
	for _, k := range c.kinds {
		if k.GroupKind() == gvk.GroupKind() {
			return k
		}
	}
	return remote.Untyped(gvk)
}

// known returns the dependents of the owner in the cluster, as its cache has them, and why kinds cannot be read. Those of an
// owner of the same name that is gone are among them.
func (p *placement) known(ctx context.Context, kinds []remote.Kind) (found []dependent, unknown map[schema.GroupKind]error) {
	unknown = map[schema.GroupKind]error{}
	for _, k := range p.kindsInTurn(kinds) {
		var objs []client.Object
		err := p.over
		if err == nil {
			objs, err = p.listIfAny(ctx, k)
		}
		if err != nil {
			unknown[k.GroupKind()] = fmt.Errorf("reading %s of %s: %w", k.GroupKind(), p.at, err)
			if p.isOver(err) {
				p.over = err
			}
			if !isUnserved(err) {
				p.noteUnread(k)
			}
			continue
		}
		for _, obj := range objs {
			found = append(found, dependent{k, obj})
		}
	}
	return found, unknown
}

// kindsInTurn returns kinds in the order in which they are read: those that hung before are the last.
func (p *placement) kindsInTurn(kinds []remote.Kind) []remote.Kind {
	return slices.SortedStableFunc(slices.Values(kinds), func(a, b remote.Kind) int { return p.compareHung(p.keyOfKind(a), p.keyOfKind(b)) })
}

func (p *placement) keyOfKind(k remote.Kind) dependentKey {
	return dependentKey{cluster: p.at.Name(), kind: k.GroupKind()}
}

// listIfAny is listInTurn, but for a kind of which the owner has nothing in the cluster: it is not watched for that.
func (p *placement) listIfAny(ctx context.Context, k remote.Kind) ([]client.Object, error) {
	none, err := p.lacks(ctx, k)
	if none || err != nil {
		p.o.noteHung(p.keyOfKind(k), remote.IsHung(err))
		return nil, err
	}
	objs, err := p.listInTurn(ctx, k)
	if p.read == nil {
		p.read = map[schema.GroupVersionKind]bool{}
	}
	p.read[k.GroupVersionKind] = err == nil
	return objs, err
}

// listInTurn is list, and notes whether the kind hangs.
func (p *placement) listInTurn(ctx context.Context, k remote.Kind) ([]client.Object, error) {
	objs, err := p.list(ctx, k)
	p.o.noteHung(p.keyOfKind(k), remote.IsHung(err))
	if err == nil {
		p.engine.access.NoteServed(p.at, k)
	}
	return objs, err
}

// list lists the dependents of a kind by an index of the cache, which it adds where it is not there yet. The kind is watched
// from then on. They are ordered: the cache returns them in another order each time, which would be news.
func (p *placement) list(ctx context.Context, k remote.Kind) ([]client.Object, error) {
	if p.at.Guest != nil {
		return p.listThere(ctx, k)
	}
	if err := p.engine.watches.ensure(ctx, p.at, k); err != nil {
		return nil, err
	}
	ctx, cancel := p.engine.access.Bound(ctx)
	defer cancel()
	list, err := k.NewList(p.engine.access.Manager.GetScheme())
	if err != nil {
		return nil, err
	}
	notIndexed := p.engine.watches.index(ctx, p.at, k)
	err = p.at.Cluster.GetCache().List(ctx, list, client.MatchingFields{p.engine.watches.indexName: p.asked.ref.Key()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, errors.Join(err, notIndexed) // members that share a cache share the index, which can be added once
	}
	var objs []client.Object
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if obj, ok := item.(client.Object); ok && p.at.Has(k, obj, p.asked.ref) {
			objs = append(objs, obj)
		}
		return nil
	})
	slices.SortFunc(objs, byName)
	return objs, err
}

func byName(a, b client.Object) int {
	return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}

// ownerKeys returns the keys of an object's owners.
func ownerKeys(obj client.Object) []string {
	var keys []string
	for key := range obj.GetAnnotations() {
		if strings.HasPrefix(key, mcowner.KeyPrefix) {
			keys = append(keys, key)
		}
	}
	return keys
}

// empty takes the owner from all its dependents in the cluster, wave by wave, and returns how many are being deleted then. While what was found
// there is left to others, whatever they do brings the work back, and nothing is listed for that.
func (p *placement) empty(ctx context.Context, policy metav1.DeletionPropagation, done *report) (going int, err error) {
	if last, left := p.o.heldOff(p.at.Name(), p.asked.seq, time.Now()); left > 0 && !p.leaving {
		done.Objects, p.pause = last.Objects, left
		return 0, last.Err
	}
	all, err := p.there(ctx)
	if policy != metav1.DeletePropagationOrphan {
		going = len(all)
	}
	return going, together(p.removeWave(ctx, all, policy, done), err)
}

// there returns the metadata of all dependents of the owner in the cluster, as the API server has them, and those without labels that
// the cache knows.
func (p *placement) there(ctx context.Context) (all []dependent, err error) {
	selector, err := remote.OfOwner(p.asked.ref)
	if err != nil {
		return nil, err
	}
	var errs []error
	kinds := p.kindsHere()
	for i, k := range kinds {
		before := len(all)
		err := remote.Scan{Namespaces: p.engine.cfg.namespaces}.Each(ctx, p.engine.access, p.at, k, selector, func(obj *metav1.PartialObjectMetadata) error {
			k = k.Of(obj)
			if p.at.Has(k, obj, p.asked.ref) {
				all = append(all, dependent{k, obj})
			} else {
				errs = append(errs, p.contested(k, obj))
			}
			return nil
		})
		if err != nil {
			p.noteUnread(k)
		}
		if err == nil && !p.isKnownToLack(k) && !p.engine.access.IsUnserved(p.at, k) {
			var more []dependent
			more, err = p.unlabelled(ctx, k, selector)
			all = append(all, more...)
		}
		if len(all) > before {
			err = together(err, p.watchGoing(ctx, k))
		}
		if apierrors.IsForbidden(err) && p.isKnownToLack(k) {
			err = nil
		}
		errs = append(errs, err)
		if p.isOver(err) {
			p.noteUnread(kinds[i+1:]...)
			break
		}
	}
	return all, together(errs...)
}

// unlabelled returns those dependents of a kind that the selector does not find, since somebody took their labels away. The cache has
// them by their annotations. Where this replica has no cache, they are not found.
func (p *placement) unlabelled(ctx context.Context, k remote.Kind, selector labels.Selector) (all []dependent, err error) {
	if p.at.Guest != nil {
		return nil, nil
	}
	objs, err := p.list(ctx, k)
	for _, obj := range objs {
		if !selector.Matches(labels.Set(obj.GetLabels())) {
			all = append(all, dependent{k, obj})
		}
	}
	return all, unlessUnserved(err)
}

// watchGoing watches a kind of which there is something, so that it is told when that is gone.
func (p *placement) watchGoing(ctx context.Context, k remote.Kind) error {
	p.o.sees(p.at.Name(), k.GroupVersionKind)
	return p.engine.watches.ensure(ctx, p.at, k)
}
