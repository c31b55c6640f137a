package dependents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/sweep"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// engine is a [Reconciler] at work. It is two controllers of controller-runtime's: one plans what an owner is to have
// where, and one does that, a piece of [work] at a time.
type engine struct {
	cfg       config
	access    *remote.Access
	owner     remote.Kind
	kinds     []remote.Kind
	keys      record.Keys
	writers   remote.Writers
	ledger    *ledger
	deletions *deletions
	watches   *watches
	collector *sweep.Sweeper
	swept     sweptKinds
	leaves    remote.PerEngagement[*leaveLook]
	tombs     *tombs

	owners *feed[mcreconcile.Request]
	works  *feed[work]
}

// planner is the controller as the reconciler of owners.
type planner struct{ *engine }

// Reconcile implements mcreconcile.Reconciler. It decides what the owner is to have where, and leaves the rest to workers.
func (c planner) Reconcile(ctx context.Context, req mcreconcile.Request) (_ reconcile.Result, err error) {
	defer func() { c.ledger.tried(req, err) }()
	home, err := c.access.Current(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	c.inTenure(ctx, req.ClusterName)
	inside := c.access.Within(c.cfg.ownersIn, req.ClusterName)
	owner, err := c.readOwner(ctx, home, req, inside)
	switch {
	case notfound.Is(err, req.Name):
		return reconcile.Result{}, c.gone(ctx, req)
	case !inside && c.ledger.get(req) == nil && (apierrors.IsForbidden(err) || meta.IsNoMatchError(err)):
		return reconcile.Result{}, nil // anybody who may write a reference can bring a request here
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("reading the owner: %w", err)
	case inside && !c.deletions.isSeen(req.ClusterName, owner):
		return reconcile.Result{}, errUnseenDeletion
	}
	if o := c.ledger.get(req); !inside && o != nil && o.goesAs(home, owner) {
		c.works.add(accountOf(req)) // which asks for the next look at the owner
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, c.replan(ctx, home, owner, inside && !mcreconcile.Leaving(ctx))
}

// readOwner is getOwner. If the cache has an owner that is older than what is known of it, the API server says which of them holds: the cache may
// not have yet what was written last, or the storage of the cluster was restored from a backup.
func (c *engine) readOwner(ctx context.Context, home remote.Session, req mcreconcile.Request, watched bool) (client.Object, error) {
	o, known := c.ledger.get(req), client.Object(nil)
	if o != nil {
		known = o.owner()
	}
	owner, err := c.getOwner(ctx, home, req, watched)
	if known == nil || err != nil || !isOlder(owner, known) {
		return owner, err
	}
	if watched {
		owner, err = c.getOwner(ctx, home, req, false)
	}
	if err == nil && isOlder(owner, known) {
		o.restore(known, owner, c.keys)
	}
	return owner, err
}

// errUnseenDeletion says that no event has told yet how an owner is being deleted: it may be so that its dependents stay.
var errUnseenDeletion = errors.New("it is being deleted, and its watch has yet to say how; it is read again")

// getOwner reads an owner. Where owners are not watched, the API server is asked for this one: a read from the cache would
// list, and keep, all objects of the kind.
func (c *engine) getOwner(ctx context.Context, home remote.Session, req mcreconcile.Request, watched bool) (client.Object, error) {
	ctx, cancel := c.access.Bound(ctx)
	defer cancel()
	from := home.Cluster.GetAPIReader()
	if watched {
		from = home.Cluster.GetCache()
	}
	owner := c.cfg.newOwner()
	return owner, from.Get(ctx, req.NamespacedName, owner)
}

// gone forgets an owner that is gone. The collector proves that, and removes what is left, unless it is noted that it is to stay.
func (c *engine) gone(ctx context.Context, req mcreconcile.Request) error {
	if err := c.bury(ctx, req, ""); err != nil {
		if o := c.ledger.get(req); o != nil {
			o.gone()
		}
		return err
	}
	c.deletions.forgetGone(req, "")
	if c.cfg.slices != nil && c.ledger.get(req) != nil {
		c.works.add(work{req, req.ClusterName, discard})
	}
	c.forget(req)
	return nil
}

// forget drops what is known of an owner that is gone, and has the collector look for what it has left.
func (c *engine) forget(req mcreconcile.Request) {
	o := c.ledger.get(req)
	for _, name := range c.ledger.forget(req) {
		c.collector.Look(name)
	}
	if o != nil {
		c.endVisits(o)
	}
}

// replan notes what an owner asks for, if it asks for anything. stays says whether its cluster remains one of owners.
func (c *engine) replan(ctx context.Context, home remote.Session, owner client.Object, stays bool) error {
	req := requestOf(home.Name(), owner)
	ref, err := mcowner.ReferenceTo(c.cfg.fleet, home.ID, owner, c.access.Manager.GetScheme())
	if err != nil {
		return err
	}
	ref.Manager, ref.Controller = c.cfg.name, true
	before := c.ledger.get(req)
	isAnother := before != nil && before.uid != ref.UID // nobody saw that it was gone meanwhile
	if err := c.bury(ctx, req, ref.UID); err != nil {
		if isAnother {
			before.gone()
		}
		o := cmp.Or(before, newOwnerState(req, ref.UID)) // of the one before, or of none that was read
		o.tellRecord(err)
		c.recordEvents(o, home, owner)
		return err
	}
	c.deletions.forgetGone(req, ref.UID)
	if isAnother {
		c.forget(req)
	}
	o := c.ledger.of(req, ref.UID)
	policy, senseless := c.cfg.policyOf(ctx, owner)
	o.isRead(unplanned{owner: owner, ref: ref, left: c.mayLeave(owner), keep: policy.Keep || senseless != nil})
	p := &plan{home: home, owner: owner, ref: ref, policy: policy, propagation: metav1.DeletePropagationBackground}
	if err = c.openBook(ctx, o, home, ref, owner); err != nil {
		o.tellRecord(err)
	} else {
		err = c.fill(ctx, o, p, stays, senseless)
		o.tellPlan(err)
	}
	if err != nil {
		c.recordEvents(o, home, owner)
		c.works.add(accountOf(req)) // which says in the status that what it asks for now is pending, or why its record cannot be read
		return err
	}
	if p.mode != serving && !c.keys.On(owner) && (p.mode == retiring || !c.keys.Read(owner).GivenUp) {
		c.ledger.forget(req)
		c.endVisits(o)
		return nil
	}
	c.ledger.replan(o, p, c.keys)
	c.works.add(accountOf(req))
	if p.mode == serving && c.isTakenBack(owner) {
		c.gleanIn(req, c.toGlean())
	}
	return nil
}

// fill fills a plan with what its owner asks for. senseless is why it is not known which policy the owner has.
func (c *engine) fill(ctx context.Context, o *ownerState, p *plan, stays bool, senseless error) error {
	owner := p.owner
	o.retargeting(p)
	var said metav1.DeletionPropagation
	said, p.unclear = saidPolicy(owner)
	var unlimited error
	switch {
	case !owner.GetDeletionTimestamp().IsZero():
		p.mode = finishing
		if senseless != nil && p.unclear == nil { // it may say that they are to stay
			said, p.unclear = "", fmt.Errorf("%w: finding the policy of the owner: %w", errPolicy, senseless)
		}
		if p.propagation = said; p.unclear == nil && isOpen(said) {
			p.propagation = c.deletionOf(o, p, said)
		}
		return nil
	case !stays:
		p.mode, p.propagation = retiring, c.cfg.onOwnersLeaving.propagation()
	case c.cfg.retire != "":
		p.mode, p.propagation = retiring, c.cfg.retire.propagation()
	default:
		p.rollout, unlimited = c.cfg.rolloutOf(ctx, owner)
	}
	if err := errors.Join(senseless, unlimited); err != nil {
		return fmt.Errorf("finding the policies of the owner: %w", err)
	}
	if p.mode != serving {
		return nil
	}
	var err error
	if p.revision, err = c.revision(owner, p.rollout); err != nil {
		return err
	}
	return c.aim(ctx, o, p)
}

// deletionOf returns what becomes of the dependents of an owner that is being deleted, and leaves it open. Where owners are not
// watched, it may have been deleted so that they stay: what was known before that counts.
func (c *engine) deletionOf(o *ownerState, p *plan, said metav1.DeletionPropagation) metav1.DeletionPropagation {
	otherwise := cmp.Or(said, metav1.DeletePropagationBackground)
	if said == "" && c.cfg.onOwnersLeaving != LeaveDeleted && !c.access.Within(c.cfg.ownersIn, p.home.Name()) {
		otherwise = cmp.Or(o.plannedDeletion(), metav1.DeletePropagationOrphan)
	}
	return c.deletions.policyOf(p.home.Name(), p.home.Cluster, p.owner, otherwise)
}

// aim finds the targets. A cluster that can be used only after that may be missing among them for that reason alone, so what the
// owner has there is not taken for no longer wanted.
func (c *engine) aim(ctx context.Context, o *ownerState, p *plan) (err error) {
	p.usable = map[mcreconcile.ClusterName]*fleet.Engagement{}
	noted := slices.Concat(o.read(p.owner, c.keys).Sites, o.sites()) // since then it may have been noted on a state that cannot be planned
	for _, name := range union(record.Names(noted), slices.Collect(maps.Keys(p.givenUp()))) {
		if name == mcreconcile.LocalCluster || c.access.IsElsewhere(name) {
			p.usable[name] = nil
		} else if e, err := c.access.Manager.GetFleet().Engagement(name); err == nil {
			p.usable[name] = e
		}
	}
	p.targets, err = c.targetsNow(ctx, p.owner)
	return err
}

// targetsNow returns the clusters that the owner is to have dependents in, ordered, each once.
func (c *engine) targetsNow(ctx context.Context, owner client.Object) ([]mcreconcile.ClusterName, error) {
	if c.cfg.targets == nil {
		return union(c.access.Names(c.cfg.dependentsIn), nil), nil
	}
	targets, err := c.cfg.targets(ctx, owner)
	if err != nil {
		return nil, fmt.Errorf("finding the clusters of the dependents: %w", err)
	}
	return union(targets, nil), nil
}

// worker is the controller as the reconciler of work.
type worker struct{ *engine }

// Reconcile implements reconcile.TypedReconciler.
func (c worker) Reconcile(ctx context.Context, w work) (reconcile.Result, error) {
	if w.task == visit {
		return c.visit(ctx, w)
	}
	if w.task == glean {
		return reconcile.Result{}, c.glean(ctx, w)
	}
	if w.task == hold {
		return reconcile.Result{}, c.holdUp(ctx)
	}
	at, err := c.access.Current(ctx)
	if w.task == account {
		c.inTenure(ctx, w.owner.ClusterName)
	}
	o := c.ledger.get(w.owner)
	switch {
	case w.task == seek && err == nil:
		return reconcile.Result{}, c.seek(ctx, at)
	case w.task == discard && err == nil:
		return reconcile.Result{}, c.discard(ctx, at, w.owner)
	case w.task == review && err == nil:
		return reconcile.Result{}, c.review(ctx, at)
	case w.task == seek, w.task == discard, w.task == review:
		return reconcile.Result{}, err
	case w.task == account && (o == nil || err != nil):
		return reconcile.Result{}, err
	case w.task == account:
		return c.account(ctx, o, at)
	case o == nil:
		c.askFor(w)
		return reconcile.Result{}, nil
	case errors.Is(err, mcmanager.ErrNoIdentity): // the result says so
		c.cannot(o, w, err)
		return reconcile.Result{RequeueAfter: mostPause}, nil
	case err != nil:
		c.cannot(o, w, err)
		return reconcile.Result{}, err
	}
	return c.place(ctx, o, w, at)
}

// askFor has an owner planned of which nothing is known, since something is to be done for it. Whoever may write a reference may name
// any owner; sweeps find those that are.
func (c *engine) askFor(w work) {
	if c.access.Within(c.cfg.ownersIn, w.owner.ClusterName) {
		c.ledger.ask(w.owner, w.in)
		c.owners.add(w.owner)
	}
}

// cannot notes why a cluster cannot be worked on.
func (c *engine) cannot(o *ownerState, w work, err error) {
	if v, ok := o.in(w.in); ok {
		c.report(o, w, v, failed(w.in, v, err))
	}
}

// failed is what came of a cluster that cannot be worked on.
func failed(in mcreconcile.ClusterName, v view, err error) report {
	return report{Result: Result{Cluster: in, Targeted: v.targeted, Err: err}}
}

// report notes what came of a cluster, and has the owner's account kept if that is news.
func (c *engine) report(o *ownerState, w work, v view, r report) {
	if o.report(w.in, v, r) {
		c.works.addAfter(accountOf(w.owner), o.accountDelay())
	}
	isBack := func(name mcreconcile.ClusterName) bool {
		return name != w.in && !remote.IsMissing(c.access.WhyNot(name))
	}
	if slices.ContainsFunc(remote.NamedGone(r.Err), isBack) { // since it was looked at, and nobody tells of that
		c.works.addAfter(c.placing(w.owner, w.in), c.cfg.paces.orDefaults().again)
	}
	if !o.hasOldTargets() { // else its account finds them first: one that is reported now may be being changed
		c.advance(o)
	}
}

// isPlaced reports whether an owner has, or is to have, dependents in a cluster.
func (c *engine) isPlaced(owner mcowner.Reference, in mcreconcile.ClusterName) bool {
	o := c.ledger.get(owner.Request())
	return o != nil && o.uid == owner.UID && o.concerns(in)
}

// found is told by the collector of each dependent whose owner is there. One that the owner has there no more, as far as is known, or of such a
// kind, came back with a backup of the cluster, or with a manifest that was saved: nothing is noted of it, and it may not be watched. Nothing is
// done where the work would not find it as the owner's, nor if the reference does not say the kind: it may be a copy of one of another kind.
func (c *engine) found(owner mcowner.Reference, in mcreconcile.ClusterName, kind schema.GroupVersionKind) {
	o := c.ledger.get(owner.Request())
	if o != nil && owner.Dependent.Kind != "" && o.isSame(owner) && o.finds(in, kind) {
		c.works.add(c.placing(owner.Request(), in))
	}
}

// stray is told by the collector of a dependent in a cluster in which its owner has none by its record, or whose owner has a
// record, and is in a cluster that is none of owners any more.
func (c *engine) stray(owner mcowner.Reference, in mcreconcile.ClusterName) {
	if !c.access.Within(c.cfg.ownersIn, owner.Cluster) {
		c.owners.add(owner.Request())
		return
	}
	c.works.add(c.placing(owner.Request(), in))
}
