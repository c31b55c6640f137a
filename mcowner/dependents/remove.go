package dependents

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	if slices.ContainsFunc(unwanted, func(d dependent) bool { return d.obj.GetDeletionTimestamp().IsZero() }) {
		if err := p.permit(); err != nil {
			for _, d := range unwanted {
				result := deleting(d)
				result.State, result.Err = Waiting, err
				done.Objects = append(done.Objects, result)
			}
			return err
		}
	}
	return together(p.removeWave(ctx, unwanted, metav1.DeletePropagationBackground, done), p.calmBut(unwanted))
}

// empty takes the owner from all its dependents in the cluster, wave by wave, and returns how many are being deleted then, but for those that may
// not be removed. While what was found there is left to others, whatever they do brings the work back, and nothing is listed for that.
func (p *placement) empty(ctx context.Context, policy metav1.DeletionPropagation, done *report) (going int, err error) {
	if last, left := p.o.heldOff(p.at.Name(), p.asked.seq, time.Now()); left > 0 && !p.leaving {
		done.Objects, p.pause = last.Objects, left
		return 0, last.Err
	}
	all, unseen := p.there(ctx)
	err = p.removeWave(ctx, all, policy, done)
	switch {
	case policy == metav1.DeletePropagationOrphan:
	case isDenied(err):
		going = len(all) - len(each(err))
	default:
		going = len(all)
	}
	return going, together(err, unseen)
}

// removeWave takes the owner from dependents, from those of the last wave alone if there are several. Where none of that may be removed, which may
// not be the owner's in truth, those of the wave before go.
func (p *placement) removeWave(ctx context.Context, all []dependent, policy metav1.DeletionPropagation, done *report) error {
	now, later := p.toGo(all)
	if policy == metav1.DeletePropagationOrphan {
		now, later = all, nil
	}
	errs := p.removeAll(ctx, now, policy, len(later) > 0 || policy == metav1.DeletePropagationForeground, done)
	switch denied := len(now) > 0 && !slices.ContainsFunc(errs, func(err error) bool { return !isDenied(err) }); {
	case len(later) == 0, denied && !p.passesOver(ctx):
	case denied:
		return together(append(errs, p.removeWave(ctx, later, policy, done))...)
	default: // the events of those that go now come back here
		errs = append(errs, fmt.Errorf("%d dependents in %s go once those of later waves are gone: %w", len(later), p.at, p.whyLater(now)))
	}
	for _, d := range later {
		result := deleting(d)
		result.State, result.Err = Waiting, p.whyLater(now)
		done.Objects = append(done.Objects, result)
	}
	return together(errs...)
}

// passesOver reports whether what may not be removed holds up nothing else: whoever writes it into a namespace of others says of which wave it is.
func (p *placement) passesOver(ctx context.Context) bool {
	user, err := p.engine.writers.UserOf(ctx, p.work.owner)
	return err == nil && user != "" || p.isGivenUp()
}

// removeAll takes the owner from dependents, and returns what is wrong with each.
func (p *placement) removeAll(ctx context.Context, now []dependent, policy metav1.DeletionPropagation, isAwaited bool, done *report) []error {
	results := make([]ObjectResult, len(now))
	for i, d := range now {
		results[i] = deleting(d)
	}
	errs := make([]error, len(now))
	for _, i := range rand.Perm(len(now)) { //nolint:gosec // it hides nothing; else those that hang would hold up the same ones each time
		d := now[i]
		if d.obj.GetDeletionTimestamp().IsZero() || policy == metav1.DeletePropagationOrphan {
			errs[i] = p.remove(ctx, d.Kind, d.obj, policy, false)
		} else if isAwaited {
			errs[i] = p.mayGo(ctx, d)
		}
		if err := errs[i]; err != nil && !isOutdated(err) && !remote.IsHung(err) && !errors.Is(err, errGoing) {
			results[i].State, results[i].Err = stateOf(err), brief(err)
		}
		if p.isOver(errs[i]) {
			break
		}
	}
	if policy != metav1.DeletePropagationOrphan {
		done.Objects = append(done.Objects, results...)
	}
	return errs
}

// mayGo returns an error for an object that has been going for a while, and that may not be removed: it may never be gone.
func (p *placement) mayGo(ctx context.Context, d dependent) error {
	if time.Since(d.obj.GetDeletionTimestamp().Time) < p.engine.cfg.paces.orDefaults().again || !p.passesOver(ctx) {
		return nil
	}
	if err := remote.Forbids(ctx, p.engine.access, p.writer, p.at, d.Kind, d.obj); err != nil {
		return fmt.Errorf("%w: %w", errDenied, err)
	}
	return nil
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
	deleted, err := remote.TakeAway(ctx, p.engine.access, p.writer, p.at, k, obj, mine, policy)
	p.noteUnserved(k.Of(obj), err)
	switch {
	case errors.Is(err, remote.ErrEmptying):
		return false, fmt.Errorf("%w: %w", err, errGoing)
	case apierrors.IsForbidden(err) && !isDesired:
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
