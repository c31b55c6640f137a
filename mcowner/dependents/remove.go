package dependents

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// errThere says that an owner is there that another one of the name takes for gone.
var errThere = errors.New("it is there")

// prune removes what is not desired. What is there in two groups, as the API server serves its kind in both, is desired in either.
func (p *placement) prune(ctx context.Context, found []dependent, wanted map[dependentKey]bool, done *report) error {
	unwanted := slices.DeleteFunc(slices.Clone(found), func(d dependent) bool {
		isDesired := func(r ObjectResult) bool { return r.UID == d.obj.GetUID() }
		return wanted[p.keyOf(d.Kind, d.obj)] || slices.ContainsFunc(done.Objects, isDesired)
	})
	unwanted, itself := p.withoutItself(ctx, unwanted)
	return together(p.removeAll(ctx, unwanted, metav1.DeletePropagationBackground, p.permit, done), itself, p.calmBut(unwanted))
}

// empty takes the owner from all its dependents in the cluster, wave by wave, and returns how many are being deleted then, but for those that may
// not be removed. While what was found there is left to others, whatever they do brings the work back, and nothing is listed for that.
func (p *placement) empty(ctx context.Context, policy metav1.DeletionPropagation, done *report) (going int, err error) {
	if last, left := p.o.heldOff(p.at.Name(), p.asked.seq, time.Now()); left > 0 && !p.leaving {
		done.Objects, p.pause = last.Objects, left
		return 0, last.Err
	}
	all, unseen := p.there(ctx)
	all, itself := p.withoutItself(ctx, all)
	err = p.removeAll(ctx, all, policy, func() error { return nil }, done)
	switch {
	case policy == metav1.DeletePropagationOrphan:
	case isDenied(err):
		going = len(all) - len(each(err))
	default:
		going = len(all)
	}
	return going, together(err, itself, unseen)
}

// withoutItself returns dependents but for the owner, which is no longer one of them after that, though it is being deleted: an earlier version, or
// somebody by hand, has made it its own.
func (p *placement) withoutItself(ctx context.Context, all []dependent) (others []dependent, err error) {
	var itself []dependent
	for _, d := range all {
		if d.IsItself(d.obj, p.at.ID, p.asked.ref) {
			itself = append(itself, d)
		} else {
			others = append(others, d)
		}
	}
	_, errs := p.removeWave(ctx, itself, metav1.DeletePropagationOrphan)
	return others, together(errs...)
}

// removeAll takes the owner from dependents, wave by wave, the last first: the next one goes once that is gone, and its events come back here. A wave
// of which nothing may be removed is passed over. To remove what was not forbidden before takes a permit.
func (p *placement) removeAll(
	ctx context.Context, all []dependent, policy metav1.DeletionPropagation, permit func() error, done *report,
) error {
	if policy == metav1.DeletePropagationOrphan {
		_, errs := p.removeWave(ctx, all, policy)
		return together(errs...)
	}
	waves, unread := p.lastFirst(all)
	forbidden := p.o.forbidden(p.at.Name())
	takesPermit := func(d dependent) bool {
		return d.obj.GetDeletionTimestamp().IsZero() && !forbidden[d.obj.GetUID()]
	}
	later := func(i int) []dependent { return slices.Concat(slices.Concat(waves[i:]...), unread) }
	var errs []error
	for i, wave := range waves {
		if slices.ContainsFunc(wave, takesPermit) {
			if err := permit(); err != nil {
				return together(append(errs, wait(later(i), err, done))...)
			}
		}
		results, failed := p.removeWave(ctx, wave, policy)
		isAwaited := i < len(waves)-1 || len(unread) > 0 || policy == metav1.DeletePropagationForeground
		passes := isAwaited && p.passesOver(ctx, wave, results, failed)
		done.Objects, errs = append(done.Objects, results...), append(errs, failed...)
		if !passes {
			err := wait(later(i+1), fmt.Errorf("what is of later waves in %s goes first: %w", p.at, errGoing), done)
			if slices.ContainsFunc(failed, func(err error) bool { return !isDenied(err) }) { // else it is told what is in the way
				errs = append(errs, err)
			}
			return together(errs...)
		}
	}
	return together(append(errs, wait(unread, p.whyUnread(), done))...)
}

// wait notes that dependents wait for something before they are removed, and returns that, nil if there are none.
func wait(all []dependent, why error, done *report) error {
	for _, d := range all {
		result := deleting(d)
		result.State, result.Err = Waiting, why
		done.Objects = append(done.Objects, result)
	}
	if len(all) == 0 {
		return nil
	}
	return why
}

// removeWave takes the owner from dependents of one wave, and returns what is wrong with each.
func (p *placement) removeWave(ctx context.Context, wave []dependent, policy metav1.DeletionPropagation) (results []ObjectResult, errs []error) {
	results, errs = make([]ObjectResult, len(wave)), make([]error, len(wave))
	for i, d := range wave {
		results[i] = deleting(d)
	}
	for _, i := range rand.Perm(len(wave)) { //nolint:gosec // it hides nothing; else those that hang would hold up the same ones each time
		d := wave[i]
		if d.obj.GetDeletionTimestamp().IsZero() || policy == metav1.DeletePropagationOrphan {
			errs[i] = p.remove(ctx, d.Kind, d.obj, policy, false)
			if err := errs[i]; err != nil && !isOutdated(err) && !remote.IsHung(err) && !errors.Is(err, errGoing) {
				results[i].State, results[i].Err = stateOf(err), brief(err)
			}
			if p.isOver(errs[i]) {
				break
			}
		}
	}
	return results, errs
}

// remove takes the owner from a dependent, which has the place of a desired one or is not desired. Whoever brings it back time and again is not
// fought without a pause.
func (p *placement) remove(ctx context.Context, k remote.Kind, obj client.Object, policy metav1.DeletionPropagation, isDesired bool) error {
	r := removal{p.keyOf(k, obj), obj.GetResourceVersion(), isDesired}
	if err := p.contention(k.Describe(obj), p.o.untilRemoval(r, time.Now()), errRestored); err != nil {
		return err
	}
	taken, err := p.takeAway(ctx, k, obj, policy, isDesired)
	if taken {
		p.o.removed(r, time.Now())
	}
	return err
}

// takeAway takes the owner from a dependent, and tells of it. It changes nothing that is not this owner's.
func (p *placement) takeAway(
	ctx context.Context, k remote.Kind, obj client.Object, policy metav1.DeletionPropagation, isDesired bool,
) (taken bool, err error) {
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
	deleted, err := remote.TakeAway(ctx, p.engine.access, remote.Look{}, p.writer, p.at, k, obj, mine, policy)
	p.noteUnserved(k.Of(obj), err)
	switch {
	case errors.Is(err, remote.ErrEmptying):
		return false, fmt.Errorf("%w: %w", err, errGoing)
	case isForbidden(err) && !isDesired:
		return false, fmt.Errorf("%w: %w", errDenied, err)
	case err != nil:
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

func deleting(d dependent) ObjectResult {
	return ObjectResult{
		Kind: d.GroupVersionKind, Key: client.ObjectKeyFromObject(d.obj), UID: d.obj.GetUID(), State: Deleting, Object: d.obj,
	}
}
