package dependents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// accounting keeps the record, the status and the events of one owner. It alone writes to the owner, and there is one at a time.
type accounting struct {
	engine *engine
	o      *ownerState
	home   remote.Session
	plan   *plan
	// record is as it is to be stored.
	record record.Record
	// unread is why the record cannot be read, and since when.
	unread Result
	// settled are the parts whose news are in the record, by how often they had any.
	settled map[mcreconcile.ClusterName]uint64
	// lost is how much of what the owner's record has lost is in the record.
	lost int
	// unknown is why it is not known where the owner is to have dependents, nil if it is: the targets are those before.
	unknown error
	// again are the clusters to be worked on once the record is stored, and asked those that have asked for that. Without the targets,
	// those that are none wait until they are known.
	again, asked map[mcreconcile.ClusterName]bool
	// later is when slices are to be written that were not, zero for never. lingers says that they have clusters that the record
	// does not have any more.
	later   time.Duration
	lingers bool
	// stuckIn is when a cluster is to be told to be stuck, zero for never.
	stuckIn time.Duration
}

// accountDelay is how long news of an owner with so many clusters are gathered before they are written down.
func accountDelay(clusters int) time.Duration {
	switch {
	case clusters <= remote.AtOnce:
		return 0
	case clusters <= 100:
		return 100 * time.Millisecond
	default:
		return time.Second
	}
}

// accountDelay is how long news of the owner are gathered: by how many clusters it has, or is to have, something in.
func (o *ownerState) accountDelay() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	clusters := len(o.named)
	if o.plan != nil {
		clusters = max(clusters, len(o.plan.targets))
	}
	return accountDelay(clusters)
}

// account keeps an owner's account. Where the targets cannot be found anew, those before go on, and the account with them. It waits for no other
// cluster that is away: what it was to look at again may come first, and one that was removed may never be back.
func (c *engine) account(ctx context.Context, o *ownerState, home remote.Session) (reconcile.Result, error) {
	if o.isOfAnother(home.ID) {
		return reconcile.Result{}, nil // and is about to be forgotten
	}
	unknown := c.retargeted(ctx, o)
	result, err := c.keepAccount(ctx, o, home, unknown)
	pause := c.cfg.paces.orDefaults().owners
	c.readAgain(o, pause+rand.N(pause/3)) //nolint:gosec // it hides nothing
	if err = cmp.Or(err, unknown); remote.IsAway(err) && !remote.IsAwayItself(err, home.Name()) && !mcreconcile.Leaving(ctx) {
		log.FromContext(ctx).V(1).Info("Waiting", "why", oneline.Text(err.Error(), longestMessage))
		return reconcile.Result{RequeueAfter: sooner(result.RequeueAfter, mostPause)}, nil
	}
	return result, err
}

// readAgain asks for an owner to be read after a while, unless it is watched: where its cluster is none of owners any more, no event tells what
// others change. It ends once the owner is let go, or gone.
func (c *engine) readAgain(o *ownerState, after time.Duration) {
	if c.ledger.get(o.req) == o && !c.access.Within(c.cfg.ownersIn, o.req.ClusterName) {
		c.owners.addAfter(o.req, after)
	}
}

func (c *engine) keepAccount(ctx context.Context, o *ownerState, home remote.Session, unknown error) (reconcile.Result, error) {
	a := &accounting{engine: c, o: o, home: home, unknown: unknown}
	if err := a.reopenBook(ctx); err != nil {
		if o.isUnstored() { // else it may be over with the next attempt
			a.goOnUnkept(ctx, true, err)
		}
		return reconcile.Result{}, a.unnoted(err)
	}
	late := c.takeBack(o) // permits, which may count as failures
	if !a.open() {
		return reconcile.Result{}, nil
	}
	until := a.release()
	a.addTargets(ctx)
	a.noteAsked()
	a.noteFailures()
	held, unnoted := a.hold(ctx)
	if unnoted != nil && a.plan.mode == retiring { // what the record has of clusters is known until it is noted what becomes of them
		return reconcile.Result{}, a.unnoted(unnoted)
	}
	if err := a.keep(ctx, held); err != nil {
		a.goOnUnkept(ctx, held, err)
		return a.unkept(ctx, err)
	}
	if a.plan.mode != serving && !held {
		a.kept()
		a.tellAll(nil)
		c.ledger.finished(o, a.plan)
		c.endVisits(o)
		return reconcile.Result{}, nil
	}
	if c.ledger.get(o.req) != o { // it was let go meanwhile, and has the finalizer now
		c.owners.add(o.req)
		return reconcile.Result{}, nil
	}
	a.distribute()
	if unknown != nil || !o.hasOldTargets() { // else the account of what has changed meanwhile finds them first
		c.advance(o)
	}
	results := a.results()
	err := a.report(ctx, results)
	if !apierrors.IsConflict(err) {
		a.kept()
	}
	o.tellUnnoted(unnoted)
	o.tellUnclear(a.plan.unclear)
	o.stopTelling(results)
	a.tellAll(results)
	switch {
	case unnoted != nil:
		return reconcile.Result{}, unnoted
	case apierrors.IsConflict(err):
		return a.unkept(ctx, err)
	case err == nil && a.plan.mode != serving && mcreconcile.Leaving(ctx):
		return reconcile.Result{}, errHeld
	}
	return reconcile.Result{RequeueAfter: sooner(sooner(sooner(until, late), a.later), a.stuckIn)}, err
}

// goOnUnkept does what can be done although the record cannot be stored: the status would go on to say what was so before, and an owner that is being
// deleted waits for removals alone, which need not be noted first. Of one that waits for nothing any more there is nothing to say. Where the record cannot
// be read, the status is all: of which clusters it would tell may not be known.
func (a *accounting) goOnUnkept(ctx context.Context, held bool, why error) {
	if a.plan.mode != serving && !held || isOutdated(why) || errors.Is(why, record.ErrOutdated) || remote.IsAway(why) {
		return
	}
	isRead, results := a.unread.Err == nil, a.results()
	if isRead || len(results) > 0 {
		_ = a.report(ctx, results) // it is told, and comes again with the record
	}
	if isRead && a.plan.mode == finishing {
		clear(a.asked) // that waits for the record
		a.distribute()
	}
}

// report writes the status, and tells why it cannot be written. Where the kind has none, no attempt would help, and the rest goes on. Where it has, a
// gateway may have answered that there is nothing.
func (a *accounting) report(ctx context.Context, results []Result) error {
	err := a.writeStatus(ctx, results)
	isOfGateway := apierrors.IsNotFound(err) && !errors.Is(err, errNoStatus)
	if !isOutdated(err) && !remote.IsAway(err) && !isOfGateway {
		a.o.tellStatus(err)
	}
	return ignore(err, errNoStatus)
}

// kept notes that nothing of the owner was outdated.
func (a *accounting) kept() {
	a.o.outdated(false)
	a.o.tellRecord(nil)
}

// unkept ends an account whose record, or status, is not stored. After a conflict there is another version soon: the watch tells of it, or it is read. Many in
// a row are told.
func (a *accounting) unkept(ctx context.Context, err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || errors.Is(err, record.ErrOutdated) {
		attempts := a.o.outdated(true)
		pause := pauseAfter(attempts)
		a.engine.readAgain(a.o, pause)
		if attempts > 1 { // its cluster may have been restored from a backup: no event tells of an owner that is as the cache has it
			a.engine.owners.addAfter(a.o.req, pause)
		}
		if !mcreconcile.Leaving(ctx) {
			if attempts >= contended {
				a.o.tellRecord(fmt.Errorf("%w: %v", errContended, err)) //nolint:errorlint // slices that are outdated once are not told
				a.tellAll(nil)
			}
			return reconcile.Result{RequeueAfter: pause}, nil
		}
	}
	return reconcile.Result{}, a.unnoted(notfound.Ignore(err, a.o.req.Name))
}

// unnoted tells of an error that keeps the record from being read or stored.
func (a *accounting) unnoted(err error) error {
	if err != nil && a.plan != nil && !remote.IsAway(err) && !apierrors.IsConflict(err) {
		a.o.tellRecord(err)
		a.tellAll(nil)
	}
	return err
}

// errHeld says that a member that leaves has an owner with the finalizer. The member waits until that is taken.
var errHeld = errors.New("the owner still waits for dependents in other clusters, and its own cluster is about to leave the fleet")

// hold reports whether the owner keeps the finalizer: it waits for clusters, or, where something was left in one that was given
// up, it is to be seen how it is deleted. Of one that is let go, it is noted first if its dependents are to stay. The error says why it waits,
// although no cluster is in the way.
func (a *accounting) hold(ctx context.Context) (bool, error) {
	switch {
	case len(a.record.Sites)+len(a.plan.targets) > 0:
		return true, nil
	case !a.record.GivenUp:
		err := a.remember(ctx)
		return err != nil, err
	case a.plan.mode == retiring: // nobody may see how it is deleted
		err := a.engine.bury(ctx, a.o.req, "")
		return err != nil, err
	case a.plan.mode == serving, a.plan.isUnclear():
		return true, nil
	case a.plan.propagation != metav1.DeletePropagationOrphan && !a.plan.policy.Keep:
		return false, nil
	}
	err := a.engine.tombs.put(ctx, a.plan.ref)
	return err != nil, err
}

// remember notes of an owner that was orphaned that its dependents are to stay, although all have lost the reference: a member that is restored
// from a backup has the references again, as has what is applied anew from what was exported. Where that cannot be noted, the owner goes
// nevertheless.
func (a *accounting) remember(ctx context.Context) error {
	if a.plan.mode != finishing || a.plan.propagation != metav1.DeletePropagationOrphan || !a.engine.keys.Holds(a.plan.owner) {
		return nil
	}
	err := a.engine.tombs.putWithin(ctx, a.plan.ref, spareRoom)
	if errors.Is(err, errNoRoom) || errors.Is(err, errNoNamespace) || isRefused(err) {
		return nil
	}
	return err
}

// retargeted finds the targets anew if members have changed.
func (c *engine) retargeted(ctx context.Context, o *ownerState) error {
	o.mu.Lock()
	p, due, planned := o.plan, o.hasOldTargetsLocked(), o.unplanned == nil
	o.mu.Unlock()
	if !due {
		return nil
	}
	now := *p
	o.retargeting(&now)
	err := c.aim(ctx, o, &now)
	if err != nil || planned { // else its planner tells what is wrong
		o.tellPlan(err)
	}
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.plan == p { // another one knows of when its targets are
		o.plan = &now
	}
	return nil
}

// sooner returns which comes first, where zero is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// askedAgain is when a cluster is worked on again that waited for the record.
const askedAgain = 50 * time.Millisecond

// noteAsked notes since when clusters that can be used are asked for what was not done there yet. What one waits for that is back begins anew.
func (a *accounting) noteAsked() {
	names := union(record.Names(a.record.Sites), a.plan.targets)
	away := map[mcreconcile.ClusterName]bool{} // found before the lock is taken: the fleet has one of its own
	for _, name := range names {
		away[name] = a.engine.access.WhyNot(name) != nil || a.engine.access.WhyPaused(name) != nil
	}
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	for _, name := range names {
		_, targeted := slices.BinarySearch(a.plan.targets, name)
		p := a.o.partLocked(name)
		if p.away && !away[name] {
			p.result.Since = time.Now()
		}
		p.away = away[name] && p.done
		switch {
		case away[name]:
			p.asked = time.Time{}
		case p.asked.IsZero() && !p.isDone(a.plan, targeted):
			p.asked = time.Now()
		}
	}
}

// distribute asks for what is to be done in the clusters.
func (a *accounting) distribute() {
	names := union(record.Names(a.record.Sites), a.plan.targets)
	missing := map[mcreconcile.ClusterName]bool{} // found before the lock is taken: the fleet has one of its own
	for _, name := range union(names, a.o.partNames()) {
		missing[name] = remote.IsMissing(a.engine.access.WhyNot(name))
	}
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	for _, name := range names {
		_, targeted := slices.BinarySearch(a.plan.targets, name)
		if missing[name] {
			continue // it is worked on when it joins
		}
		switch p := a.o.partLocked(name); {
		case !p.isDone(a.plan, targeted) || a.again[name]:
			a.engine.works.add(a.engine.placing(a.o.req, name))
		case a.asked[name]: // in vain so far, perhaps
			a.engine.works.addAfter(a.engine.placing(a.o.req, name), askedAgain)
		}
	}
	maps.DeleteFunc(a.o.parts, func(name mcreconcile.ClusterName, p *part) bool {
		_, is := slices.BinarySearch(names, name)
		if !is {
			delete(a.o.needed, name)
		}
		// What is being deleted is seen once more, and nothing is watched then to find out what else is there.
		isGoing := !p.result.Targeted && len(p.result.Objects) > 0 && !missing[name]
		return !is && p.stray == nil && len(p.drop) == 0 && p.running == 0 && !isGoing
	})
}
