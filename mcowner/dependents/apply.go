package dependents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// applyAll makes all dependents of the owner in the cluster as they are desired. Once all are, it removes the others.
func (p *placement) applyAll(ctx context.Context, done *report) {
	p.expect(ctx)
	found, unknown := p.known(ctx, p.kindsToRead())
	owned := p.controlled(found)
	defer func() { done.Err = together(done.Err, p.hideFromGarbageCollector(ctx, owned, done)) }()
	target := p.target(owned)
	home := p.asked.home
	desired, unclear := p.engine.cfg.desired(mcreconcile.WithCluster(ctx, home.Name(), home.Cluster), p.asked.owner, target)
	p.awaits = errors.Is(unclear, ErrPending) || errors.Is(unclear, ErrWaiting)
	unclear = p.whyUnclear(unclear)
	if unclear != nil && len(desired) == 0 {
		done.Objects, done.Err, done.unknown = waiting(owned), unclear, p.awaits
		return
	}
	wants := p.wantedOf(ctx, desired)
	s := p.sequenceOf(wants, unclear == nil)
	wants = p.withNamespaces(wants, found)
	if done.kinds = p.kindsToNote(wants); len(done.kinds) > 0 {
		done.Objects, done.Err, done.again = waiting(owned), ErrPending, true
		return // nothing is created of a kind that was not noted
	}
	p.readWanted(ctx, wants, &found, unknown)
	wanted, errs := p.applyInWaves(ctx, s, wants, found, unknown, done)
	p.o.keep(p.at.Name(), wanted)
	p.engine.ledger.awaitOnly(p.work.owner, p.at.Name(), wanted)
	errs = slices.Concat(each(unclear), errs) // first, as what is missing may wait for that
	done.Err = together(errs...)
	switch awaited := first(errs, isPassing); {
	case unlessContended(done.Err) != nil:
	case awaited != nil: // it is told what others change back, and that holds up nothing
		done.Unready = cmp.Or(done.Unready, awaited)
	case !done.isSuspended():
		done.Err = together(done.Err, p.prune(ctx, found, wanted, done))
	}
	if unclear == nil && p.over == nil && first(each(done.Err), p.isOver) == nil {
		done.Err = together(done.Err, p.markNeeded(ctx, wants, found))
	}
	for _, why := range unknown {
		done.Err = together(done.Err, unlessUnserved(why)) // there may be some that are not desired
	}
	if len(p.unasked) > 0 {
		done.Err = together(done.Err, errUnlooked)
	}
	if unclear == nil {
		done.look = p.lookedFor(ctx, wants, found, unknown, done)
	}
}

// whyUnclear returns why it is not known all that is desired, nil if it is. What another Reconciler says of its own dependents says nothing about
// these.
func (p *placement) whyUnclear(err error) error {
	isOfOthers := errors.Is(err, errContended) || errors.Is(err, errDenied) || errors.Is(err, ErrLeaving) || errors.Is(err, errPolicy)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrPending) || isOfOthers && p.awaits: // nothing else brings the work back
		return fmt.Errorf("finding what is desired in %s: %w: %v", p.at, ErrWaiting, err) //nolint:errorlint // it waits
	case isOfOthers:
		return fmt.Errorf("finding what is desired in %s: %v", p.at, err) //nolint:errorlint // it is of others
	default:
		return fmt.Errorf("finding what is desired in %s: %w", p.at, err)
	}
}

// applyInWaves makes what is wanted so, wave by wave, and returns which that was, and what is wrong with each, or waited for.
func (p *placement) applyInWaves(
	ctx context.Context, s *sequence, wants []wanted, found []dependent, unknown map[schema.GroupKind]error, done *report,
) (wanted map[dependentKey]bool, errs []error) {
	wanted = make(map[dependentKey]bool, len(wants))
	var over error // why nothing else is asked for
	p.inWaves(wants)
	s.begin(wants)
	for _, w := range wants {
		key := p.keyOf(w.kind, w.obj)
		if wanted[key] {
			errs = append(errs, fmt.Errorf("%s is desired twice", w.kind.Describe(w.obj)))
			continue
		}
		wanted[key] = true
		var result ObjectResult
		held := cmp.Or(over, s.before(w.wave))
		if why := cmp.Or(over, s.awaits(w)); why != nil {
			result = p.later(w, found, why)
		} else {
			unread := p.comes(w, wants, unknown[w.kind.GroupKind()])
			result = p.object(ctx, w, unread)
			p.noteReady(w, result)
			hung := unread == nil && remote.IsHung(result.Err) // else nothing was asked about it
			p.o.noteHung(key, hung)
			if hung && p.isOver(result.Err) {
				over = fmt.Errorf("%w: %s gave no answer about %s", ErrWaiting, p.at, w.kind.Describe(w.obj))
			}
		}
		if held == nil {
			s.note(p.at, w, result)
			done.stopped = done.stopped || !w.shared && result.State == Suspended
		}
		if !w.shared || result.Err != nil || result.Object != nil { // a namespace of others is nothing to tell of
			done.Objects = append(done.Objects, result)
		}
		errs = append(errs, each(result.Err)...)
	}
	done.Unready = s.unready
	return wanted, errs
}

// later returns the result of an object that is not looked at yet.
func (p *placement) later(w wanted, found []dependent, why error) ObjectResult {
	result := ObjectResult{Kind: w.kind.GroupVersionKind, Key: client.ObjectKeyFromObject(w.obj), State: Waiting, Err: why}
	key := p.keyOf(w.kind, w.obj)
	for _, d := range found {
		if p.keyOf(d.Kind, d.obj) == key {
			result.Object, result.UID = d.obj, d.obj.GetUID()
		}
	}
	return result
}

// waiting returns the results of dependents that were not looked at.
func waiting(all []dependent) []ObjectResult {
	results := make([]ObjectResult, len(all))
	for i, d := range all {
		results[i] = ObjectResult{
			Kind: d.GroupVersionKind, Key: client.ObjectKeyFromObject(d.obj), UID: d.obj.GetUID(), State: Waiting, Err: ErrPending, Object: d.obj,
		}
	}
	return results
}

// onlyOfKinds takes from results the objects that are not of their type of Kinds, as [Result.Dependents] promises: those that were read in
// another version, as the cluster serves no other, or as metadata.
func (c *engine) onlyOfKinds(results []ObjectResult) {
	for i, r := range results {
		k := c.kindNoted(r.Kind)
		if r.Object != nil && r.State != Deleting && reflect.TypeOf(r.Object) != reflect.TypeOf(k.Proto) {
			results[i].Object = nil
		}
	}
}

// target describes the cluster to the user's function.
func (p *placement) target(owned []dependent) Target {
	home := p.asked.home.ID
	t := Target{
		Cluster: p.at.Name(), Labels: p.engine.access.LabelsOf(p.at.Name()), RESTMapper: p.engine.access.Mapper(p.at),
		Home: home.Name == p.at.Name() || home.UID != "" && home.UID == p.at.ID.UID,
	}
	for _, d := range owned {
		t.Dependents = append(t.Dependents, d.obj)
	}
	return t
}
