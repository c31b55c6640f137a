package dependents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// placement is the work on the dependents of one owner in one cluster.
type placement struct {
	engine *engine
	asked  view
	o      *ownerState
	work   work
	at     remote.Session
	writer client.Writer
	// leaving says that the cluster is about to leave the fleet.
	leaving bool
	// until is how long it goes on although requests get no answer.
	until time.Time
	// snapshot is what was read where there is no cache.
	snapshot snapshot
	// refused says that something was not written for want of a permit.
	refused bool
	// pause is how long it is before an object that others change back is looked at again, zero if there is none.
	pause time.Duration
	// read are the kinds whose dependents were read, each in a version, and over is why no others are.
	read map[schema.GroupVersionKind]bool
	over error
	// versions are those in which the cluster serves kinds, as far as it was asked.
	versions map[schema.GroupVersionKind]versionHere
	// unasked are kinds of which it is left to the next run to find out whether there is something in the cluster.
	unasked map[schema.GroupKind]bool
	// unread are kinds that could not be read, although there may be something of them.
	unread []schema.GroupKind
	// coming says that something waits for a kind to be served, and ready are the CustomResourceDefinitions that are.
	coming bool
	ready  []string
	// awaits says that what is desired is not known yet.
	awaits bool
	// outdated says that what is desired may hang on a kind that was remembered as not served, and is.
	outdated bool
	// unseen is when it is looked again at what could not be seen, zero if all was: what was left there, and what was created, and the cache does
	// not have yet. No event tells of what is deleted before it has it, where a watch was interrupted meanwhile.
	unseen time.Duration
	// held are clusters that had the name before, and hold up the owner.
	held []record.Site
}

// isOver reports whether an error says that a request got no answer, and others got none before: the rest is left to the next
// attempt, so that hanging requests hold a worker about as long as one may.
func (p *placement) isOver(err error) bool { return remote.IsHung(err) && !time.Now().Before(p.until) }

// lookAgain is when it is looked whether an object is gone, in case that no event tells of it.
const lookAgain = 15 * time.Second

// lookAtOwner is how often an owner is read that waits for something, in a cluster that is none of owners any more.
const lookAtOwner = time.Minute

// paces are how often it is looked at what no event tells of, and for how long a kind may be coming. Zero is the default of each.
type paces struct{ again, idle, owners, coming time.Duration }

func (p paces) orDefaults() paces {
	return paces{
		again: cmp.Or(p.again, lookAgain), idle: cmp.Or(p.idle, lookForIdle), owners: cmp.Or(p.owners, lookAtOwner),
		coming: cmp.Or(p.coming, mostComing),
	}
}

// errGoing says that an object must be gone first.
var errGoing = errors.New("being deleted")

// errNamespaceGoing says so of a namespace that owners share.
var errNamespaceGoing = fmt.Errorf("what is in it waits for the next one: %w", errGoing)

// place does one owner's part in one cluster.
func (c *engine) place(ctx context.Context, o *ownerState, w work, at remote.Session) (result reconcile.Result, err error) {
	leaving, begin := c.isAboutToLeave(at), o.begin
	if leaving {
		begin = o.in // nothing is put there
	}
	v, ok := begin(w.in)
	if !ok {
		return reconcile.Result{}, nil
	}
	p := &placement{engine: c, asked: v, o: o, work: w, at: at, leaving: leaving, until: time.Now().Add(c.access.Timeout), unasked: map[schema.GroupKind]bool{}}
	done := report{Result: Result{Cluster: w.in, Targeted: v.targeted}}
	defer func() {
		if panicked := brief(remote.PanicOf(ctx, recover())); panicked != nil {
			result, err, done.Err = reconcile.Result{}, panicked, panicked
		}
		c.onlyOfKinds(done.Objects)
		done.refused = p.refused
		o.end(v)
		if ctx.Err() == nil { // else its errors say that it was interrupted, which is no news
			c.report(o, w, v, done)
		}
	}()
	var nobody error
	if p.writer, nobody = c.writers.At(ctx, at, w.owner); nobody != nil && !leaving {
		done.Err = nobody
		return reconcile.Result{}, nobody
	}
	if leaving || v.mode != serving || !v.targeted || !c.access.Within(c.cfg.dependentsIn, w.in) {
		c.ledger.awaitOnly(w.owner, w.in, nil)
	}
	switch {
	case leaving:
		p.depart(ctx, nobody, &done)
	case v.mode == serving && v.targeted:
		p.serve(ctx, &done)
	case len(v.sites) > 0 && v.mode == serving && !p.wasUsable():
		o.wantTargets()
		done.Err, done.again = ErrPending, true
	case len(v.sites) > 0:
		p.leave(ctx, &done, v.propagation)
	default:
		if p.findStrays(ctx, &done); done.stray != nil && p.isGivenUp() && (v.mode != serving || p.wasUsable()) && p.isCleared(ctx, v.propagation) {
			done.stray, done.kinds, done.again = nil, nil, false
		}
		if done.stray == nil {
			done.drop = v.dropped // it may not be stored yet
		}
	}
	return p.conclude(&done)
}

// isAboutToLeave reports whether a cluster is about to leave. The context of a visit would say it of the owner's cluster.
func (c *engine) isAboutToLeave(at remote.Session) bool {
	switch {
	case at.Engagement != nil:
		return mcreconcile.Leaving(at.Engagement.Context())
	case at.Guest != nil:
		return c.isLeaving(at.Name())
	default:
		return false // it is the local cluster
	}
}

// wasUsable reports whether the cluster could be used when the targets were found, of which it is none.
func (p *placement) wasUsable() bool {
	e, was := p.asked.usable[p.at.Name()]
	return was && e == p.at.Engagement
}

// serve makes the cluster as it is desired. It creates nothing in a cluster that was not noted before.
func (p *placement) serve(ctx context.Context, done *report) {
	now := record.Site{Name: p.at.Name(), Identity: p.at.ID.UID}
	switch {
	case !p.engine.access.Within(p.engine.cfg.dependentsIn, p.at.Name()):
		done.Err = fmt.Errorf("%s is a target, and not one of the clusters of DependentsIn", p.at)
		return
	case !now.IsNoted(p.asked.sites):
		done.Err, done.again = ErrPending, true
		return
	}
	_, before := divide(p.at, p.asked.sites)
	before, done.drop = p.unreleased(before)
	done.givenUp = len(done.drop) > 0
	p.o.tellReplaced(p.at.Name(), p.at.ID.UID, p.engine.replaced(p.at, before))
	p.applyAll(ctx, done)
}

// leave takes the owner from its dependents in the cluster. The result has no error once that is done. If the name leads to
// another cluster than those in which the owner may have dependents, nothing is done there.
func (p *placement) leave(ctx context.Context, done *report, policy metav1.DeletionPropagation) {
	if policy == "" { // they are to stay as they are
		if p.asked.mode == finishing {
			done.Err = p.asked.unclear
		}
		return
	}
	here, before := divide(p.at, p.asked.sites)
	var denied error
	if len(here) > 0 {
		going, err := p.empty(ctx, policy, done)
		if isDenied(err) && p.isGivenUp() {
			denied, err = err, nil
		}
		if err == nil && going > 0 && policy == metav1.DeletePropagationForeground {
			err = fmt.Errorf("%d dependents in %s: %w", going, p.at, errGoing)
		}
		if err == nil && p.at.IsMember() {
			err = p.engine.access.IsStill(ctx, p.at) // where nothing was found, nothing was asked
		}
		if err != nil {
			done.Err = err
			return
		}
	}
	if denied != nil {
		p.o.tellReleased(here[0], fmt.Errorf("the annotation %s of the owner says so: %w", GiveUpAnnotation, denied))
	}
	before, released := p.unreleased(before)
	done.drop, done.givenUp = slices.Concat(here, released), denied != nil || len(released) > 0
	done.Err = p.engine.replaced(p.at, before)
}

// findStrays notes dependents that are not in the owner's record: they were left in a cluster that was away for too long, or
// created by a request that arrived late.
func (p *placement) findStrays(ctx context.Context, done *report) {
	if p.asked.mode == retiring || !p.engine.access.Within(p.engine.cfg.dependentsIn, p.at.Name()) {
		return
	}
	for _, k := range p.kindsInTurn(p.kindsHere()) {
		if _, is := p.versionOf(k); !is {
			continue // it would be watched until it is
		}
		some, err := p.hasLeft(ctx, k)
		if some {
			done.stray, done.again = &record.Site{Name: p.at.Name(), Identity: p.at.ID.UID}, true
		}
		p.looksAgain(err)
		if done.again || p.isOver(err) {
			return
		}
	}
	for _, k := range p.engine.kinds { // a kind that was noted once may be noted no more
		if p.isNoted(k) {
			continue
		}
		if some, err := p.hasSome(ctx, k); some {
			done.stray, done.again = &record.Site{Name: p.at.Name(), Identity: p.at.ID.UID}, true
			done.kinds = append(done.kinds, k.GroupVersionKind)
		} else if p.looksAgain(err); p.isOver(err) {
			return
		}
	}
}

// hasLeft reports whether the owner has something of a kind in a cluster in which it is to have nothing: the kind is not watched for that.
func (p *placement) hasLeft(ctx context.Context, k remote.Kind) (bool, error) {
	if p.engine.watches.isWatched(p.at.Name(), k.GroupVersionKind) {
		found, err := p.listInTurn(ctx, k)
		return err == nil && len(found) > 0, err
	}
	some, err := p.hasSome(ctx, k)
	p.o.noteHung(p.keyOfKind(k), remote.IsHung(err))
	return some, err
}

// looksAgain has the work come back after a failure to find out what was left: it is nobody's error, as nothing is desired there.
func (p *placement) looksAgain(err error) {
	if err != nil && !apierrors.IsForbidden(err) && !isUnserved(err) {
		p.unseen = cmp.Or(p.unseen, p.engine.cfg.paces.orDefaults().owners)
	}
}

// conclude says when to try again, and what is an error of the work: what is waited for is none, nor is a place that is taken. A member
// that leaves waits for errors alone, so there it is one. Whoever writes against the controller time and again shows in the result.
func (p *placement) conclude(done *report) (reconcile.Result, error) {
	done.Err, done.Unready = brief(done.Err), brief(done.Unready)
	outdated := isOutdated(done.Err)
	attempts, awaited := p.o.retried(p.at.Name(), outdated), p.o.awaited(p.at.Name(), p.awaits)
	if outdated && attempts >= contended {
		done.Err = fmt.Errorf("%w: %w", errContended, done.Err)
	}
	isMore := func(err error) bool { return !isConflict(err) }
	_, replaced := errors.AsType[*ReplacedError](done.Err)
	switch err := done.Err; {
	case errors.Is(err, errUnnoted), errors.Is(err, errUnsettled): // the member that leaves waits for what is an error
		return reconcile.Result{}, err
	case p.leaving && (outdated || isPassing(err) || isContended(err)):
		done.Err = fmt.Errorf("%w: %w", err, errUnsettled)
		return reconcile.Result{}, done.Err
	case err == nil, errors.Is(err, ErrPending), errors.Is(err, ErrLeaving), errors.Is(err, errPolicy):
		return reconcile.Result{RequeueAfter: sooner(p.untilFresh(), p.untilRelease())}, nil
	case outdated:
		return reconcile.Result{RequeueAfter: pauseAfter(attempts)}, nil
	case isContended(err):
		return reconcile.Result{RequeueAfter: p.pause}, nil
	case replaced:
		return reconcile.Result{RequeueAfter: p.untilRelease()}, nil
	case remote.IsAway(err): // which brings the work back once that can be used
		if before := sooner(p.untilFresh(), p.untilRelease()); before > 0 {
			p.engine.works.addAfter(p.work, before)
		}
		return reconcile.Result{}, err
	case errors.Is(err, ErrWaiting) && (p.coming || p.outdated || done.look != nil && done.look.more):
		return reconcile.Result{RequeueAfter: comingPause}, nil
	case errors.Is(err, ErrWaiting) && p.awaits:
		after := pauseAfter(awaited)
		return reconcile.Result{RequeueAfter: after + rand.N(after/3)}, nil //nolint:gosec // it hides nothing
	case errors.Is(err, ErrWaiting): // whoever changes that tells of it
		return reconcile.Result{RequeueAfter: mostPause + rand.N(mostPause/3)}, nil //nolint:gosec // it hides nothing
	case first(each(err), isMore) == nil, errors.Is(err, errGoing), isTerminating(err):
		again := p.engine.cfg.paces.orDefaults().again
		return reconcile.Result{RequeueAfter: again + rand.N(again/3)}, nil //nolint:gosec // it hides nothing
	default:
		return reconcile.Result{}, err
	}
}

// untilFresh returns when to look again although all is as desired, zero for never: what is desired is served by now, or what is there was not
// seen yet.
func (p *placement) untilFresh() time.Duration {
	switch {
	case p.outdated:
		return comingPause
	case p.unseen > 0:
		return p.unseen + rand.N(p.unseen/3+1) //nolint:gosec // it hides nothing
	default:
		return 0
	}
}

// untilRelease returns when the next of those clusters may be released that had the name before, and held up the owner now, zero for never.
func (p *placement) untilRelease() time.Duration {
	if p.engine.cfg.releaseAfter <= 0 {
		return 0
	}
	var until time.Duration
	for _, s := range p.held {
		until = sooner(until, max(comingPause, p.engine.cfg.releaseAfter-p.engine.ledger.missingFor(s)))
	}
	return until
}

// isOutdated reports whether an error says that an object is not what it was thought to be.
func isOutdated(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
