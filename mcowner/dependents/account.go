package dependents

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
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
	// settled are the parts whose news are in the record, by how often they had any.
	settled map[mcreconcile.ClusterName]uint64
	// again are the clusters to be worked on once the record is stored, and asked those that have asked for that.
	again, asked map[mcreconcile.ClusterName]bool
	// later is when slices are to be written that were not, zero for never. lingers says that they have clusters that the record
	// does not have any more.
	later   time.Duration
	lingers bool
}

// accountDelay is how long news of an owner with so many targets are gathered before they are written down.
func accountDelay(targets int) time.Duration {
	switch {
	case targets <= remote.AtOnce:
		return 0
	case targets <= 100:
		return 100 * time.Millisecond
	default:
		return time.Second
	}
}

func (c *engine) account(ctx context.Context, o *ownerState, home remote.Session) (reconcile.Result, error) {
	if err := c.retargeted(ctx, o); err != nil {
		return reconcile.Result{}, err
	}
	a := &accounting{engine: c, o: o, home: home}
	if err := a.reopenBook(ctx); err != nil {
		return reconcile.Result{}, a.unnoted(err)
	}
	if !a.open() {
		return reconcile.Result{}, nil
	}
	until := a.release()
	a.addTargets(ctx)
	held, unnoted := a.hold(ctx)
	if err := a.keep(ctx, held); err != nil {
		if (apierrors.IsConflict(err) || errors.Is(err, record.ErrOutdated)) && !mcreconcile.Leaving(ctx) {
			return reconcile.Result{RequeueAfter: pauseAfter(o.outdated(true))}, nil // the cache has another version soon
		}
		return reconcile.Result{}, a.unnoted(client.IgnoreNotFound(err))
	}
	o.outdated(false)
	o.tellRecord(nil)
	if a.plan.mode != serving && !held {
		a.tellAll(nil)
		c.deletions.forget(a.plan.owner)
		c.ledger.finished(o, a.plan)
		return reconcile.Result{}, nil
	}
	if c.ledger.get(o.req) != o { // it was let go meanwhile, and has the finalizer now
		c.owners.add(o.req)
		return reconcile.Result{}, nil
	}
	a.distribute()
	c.takeBack(o)
	c.advance(o)
	results := a.results()
	err := a.writeStatus(ctx, results)
	o.tellUnnoted(unnoted)
	o.tellUnclear(a.plan.unclear)
	a.tellAll(results)
	switch {
	case unnoted != nil:
		return reconcile.Result{}, unnoted
	case err == nil && a.plan.mode != serving && mcreconcile.Leaving(ctx):
		return reconcile.Result{}, errHeld
	}
	return reconcile.Result{RequeueAfter: sooner(until, a.later)}, err
}

// unnoted tells of an error that keeps the record from being read or stored.
func (a *accounting) unnoted(err error) error {
	if err != nil && a.plan != nil && !remote.IsAway(err) {
		a.o.tellRecord(err)
		a.tellAll(nil)
	}
	return err
}

// errHeld says that a member that leaves has an owner with the finalizer. The member waits until that is taken.
var errHeld = errors.New("the owner still waits for dependents in other clusters, and its own cluster is about to leave the fleet")

// hold reports whether the owner keeps the finalizer: it waits for clusters, or, where something was left in one that was given
// up, it is to be seen how it is deleted. The error says why it waits, although no cluster is in the way.
func (a *accounting) hold(ctx context.Context) (bool, error) {
	switch {
	case len(a.record.Sites)+len(a.plan.targets) > 0:
		return true, nil
	case !a.record.GivenUp || a.plan.mode == retiring:
		return false, nil
	case a.plan.mode == serving, a.plan.isUnclear():
		return true, nil
	case a.plan.propagation != metav1.DeletePropagationOrphan:
		return false, nil
	}
	err := a.engine.tombs.put(ctx, a.plan.ref)
	return err != nil, err
}

// retargeted finds the targets anew if members have changed.
func (c *engine) retargeted(ctx context.Context, o *ownerState) error {
	o.mu.Lock()
	p, due := o.plan, o.retarget
	o.retarget = false // a member that changes from now on asks again
	o.mu.Unlock()
	if p == nil || !due || p.mode != serving {
		return nil
	}
	now := *p
	err := c.aim(ctx, o, &now)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.retarget = true
		return err
	}
	if o.plan == p {
		o.plan = &now
	}
	return nil
}

// open reads the record, and takes from it where nothing is left. That is so at once: what is not in the record may not be
// given anything, whether it is stored or not. The answer is false if there is nothing to account for.
func (a *accounting) open() bool {
	o := a.o
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.plan == nil {
		return false
	}
	a.plan, a.record = o.plan, o.readLocked(o.plan.owner, a.engine.keys)
	a.record.Slices = nil // that is found anew
	if a.record.Nonsense {
		for _, name := range a.engine.access.Names(a.engine.cfg.dependentsIn) {
			a.record.Sites = append(a.record.Sites, record.Site{Name: name})
		}
	}
	a.settled = make(map[mcreconcile.ClusterName]uint64, len(o.parts))
	a.again, a.asked = map[mcreconcile.ClusterName]bool{}, map[mcreconcile.ClusterName]bool{}
	var strays []record.Site
	stored := a.record.Kinds // nothing is created of others before they are stored
	for name, p := range o.parts {
		a.settled[name] = p.runs
		a.record.Sites = slices.DeleteFunc(a.record.Sites, func(s record.Site) bool { return s.Name == name && slices.Contains(p.drop, s) })
		a.record.GivenUp = a.record.GivenUp || p.givenUp
		a.record.Kinds = kindsOf(a.record.Kinds, p.kinds)
		if p.stray != nil {
			strays = append(strays, *p.stray)
		}
		a.asked[name] = p.again
	}
	o.record = a.record
	o.record.Sites, o.record.Kinds = slices.Clone(a.record.Sites), stored
	for _, s := range strays {
		if !s.IsNoted(record.ByName(a.record.Sites)[s.Name]) {
			a.record.Sites = append(a.record.Sites, s)
		}
	}
	if a.plan.mode == retiring && a.plan.propagation == "" { // everything is to be kept as it is
		a.record.Sites = nil
	}
	return true
}

// release takes clusters from the record that hold up nothing any more, as the declared policy says. It returns when to look
// again, zero for never.
func (a *accounting) release() (until time.Duration) {
	targeted := func(s record.Site) bool { _, is := slices.BinarySearch(a.plan.targets, s.Name); return is }
	a.record.Sites = slices.DeleteFunc(a.record.Sites, func(s record.Site) bool {
		err := a.engine.access.WhyNot(s.Name)
		if targeted(s) || !remote.IsMissing(err) {
			return false
		}
		missing := a.engine.ledger.missingFor(record.Site{Name: s.Name})
		switch {
		case a.plan.isGivenUp(s.Name):
			a.tellReleased(s, fmt.Errorf("the annotation %s of the owner says so: %w", GiveUpAnnotation, err))
		case a.engine.cfg.releaseAfter > 0 && missing >= a.engine.cfg.releaseAfter:
			a.tellReleased(s, fmt.Errorf("it has not been in the fleet for %s: %w", a.engine.cfg.releaseAfter, err))
		default:
			if left := a.engine.cfg.releaseAfter - missing; a.engine.cfg.releaseAfter > 0 && (until == 0 || left < until) {
				until = left
			}
			return false
		}
		a.record.GivenUp = true
		return true
	})
	return until
}

// addTargets adds the targets that can be used now to the record. One of which it was not known which cluster it is becomes
// the one that has its name.
func (a *accounting) addTargets(ctx context.Context) {
	if a.plan.mode != serving {
		return
	}
	named := record.ByName(a.record.Sites)
	for _, name := range a.plan.targets {
		id, err := a.engine.access.IDOf(ctx, name)
		now := record.Site{Name: name, Identity: id.UID}
		if err != nil || a.engine.isLeaving(name) || !a.engine.access.Within(a.engine.cfg.dependentsIn, name) || now.IsNoted(named[name]) {
			continue
		}
		known := slices.DeleteFunc(named[name], func(s record.Site) bool { return s.Identity == "" })
		named[name] = a.withinBounds(append(known, now))
		a.again[name] = true
	}
	a.record.Sites = slices.Concat(slices.Collect(maps.Values(named))...)
	if len(a.record.Kinds) == 0 && len(a.plan.targets) > 0 {
		a.record.Kinds = a.firstKinds(ctx)
	}
}

// firstKinds returns the kinds that are likely to be desired, so that an owner is written to once at first.
func (a *accounting) firstKinds(ctx context.Context) []schema.GroupVersionKind {
	first := a.plan.targets[0]
	desired, err := a.engine.cfg.desired(ctx, a.plan.owner, Target{Cluster: first, Labels: a.engine.access.LabelsOf(first)})
	if err != nil {
		return nil // the result of the cluster says so
	}
	var kinds []schema.GroupVersionKind
	for _, obj := range desired {
		if k, err := a.engine.kindOf(obj); err == nil {
			kinds = kindsOf(kinds, []schema.GroupVersionKind{k.GroupVersionKind})
		}
		if a.engine.cfg.createNamespaces && obj.GetNamespace() != "" {
			kinds = kindsOf(kinds, []schema.GroupVersionKind{a.engine.namespaces().GroupVersionKind})
		}
	}
	return kinds
}

func (c *engine) isLeaving(name mcreconcile.ClusterName) bool {
	if name == mcreconcile.LocalCluster {
		return false
	}
	status, _ := c.access.Manager.GetFleet().Status(name)
	return status.Leaving
}

// sooner returns which comes first, where zero is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// store stores a record in the owner's metadata, with how it is being deleted, if that changes anything.
func (a *accounting) store(ctx context.Context, r record.Record, held bool) error {
	changed := record.Changed(a.plan.owner, func(owner client.Object) {
		a.engine.keys.Write(owner, r, held)
		policy := a.plan.propagation
		if a.plan.mode == finishing && (policy == metav1.DeletePropagationForeground || policy == metav1.DeletePropagationOrphan) {
			annotations := maps.Clone(owner.GetAnnotations())
			annotations[DeletionPolicyAnnotation] = string(policy)
			owner.SetAnnotations(annotations)
		}
	})
	if changed == nil {
		return nil
	}
	ctx, cancel := a.engine.access.Bound(ctx)
	defer cancel()
	answered := a.engine.ledger.writing(changed)
	err := record.Store(ctx, a.home.Cluster.GetClient(), a.plan.owner, changed, a.engine.cfg.name)
	if answered(changed, err) {
		a.engine.owners.add(a.o.req)
	}
	if err != nil {
		return err
	}
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	if a.o.plan.ref.UID == a.plan.ref.UID { // else another owner has the name now
		a.ownerStoredLocked(changed)
	}
	return nil
}

// settle notes that the record is stored.
func (a *accounting) settle() {
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	if a.o.plan.ref.UID != a.plan.ref.UID {
		return // another owner has the name now, and its own record
	}
	a.o.record = a.record
	for name, runs := range a.settled {
		if p := a.o.parts[name]; p != nil && p.runs == runs {
			p.stray, p.kinds, p.givenUp, p.again = nil, nil, false, false
			if !a.lingers {
				p.drop = nil
			}
		}
	}
}

// ownerStoredLocked has the plan know the owner as it was stored.
func (a *accounting) ownerStoredLocked(stored client.Object) {
	if isOlder(a.o.plan.owner, stored) {
		now := *a.o.plan
		now.owner = stored
		if a.o.plan == a.plan {
			a.plan = &now
		}
		a.o.plan = &now
	}
}

// isOlder reports whether one is an older state of the other object.
func isOlder(one, other client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(one.GetResourceVersion(), other.GetResourceVersion())
	return err == nil && order < 0 && one.GetUID() == other.GetUID()
}

// askedAgain is when a cluster is worked on again that waited for the record.
const askedAgain = 50 * time.Millisecond

// distribute asks for what is to be done in the clusters.
func (a *accounting) distribute() {
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	names := union(record.Names(a.record.Sites), a.plan.targets)
	for _, name := range names {
		_, targeted := slices.BinarySearch(a.plan.targets, name)
		p := a.o.parts[name]
		switch {
		case p == nil || !p.done || p.seq != a.plan.seq || p.result.Targeted != targeted || a.again[name]:
			a.engine.works.add(a.engine.placing(a.o.req, name))
		case a.asked[name]: // in vain so far, perhaps
			a.engine.works.addAfter(a.engine.placing(a.o.req, name), askedAgain)
		}
	}
	maps.DeleteFunc(a.o.parts, func(name mcreconcile.ClusterName, p *part) bool {
		_, is := slices.BinarySearch(names, name)
		return !is && p.stray == nil && len(p.drop) == 0
	})
}

// results returns what came of each cluster.
func (a *accounting) results() []Result {
	a.o.mu.Lock()
	names := union(record.Names(a.record.Sites), a.plan.targets)
	results := make([]Result, len(names))
	for i, name := range names {
		_, targeted := slices.BinarySearch(a.plan.targets, name)
		results[i] = Result{Cluster: name, Targeted: targeted, Err: ErrPending, Since: a.plan.since}
		if p := a.o.parts[name]; p != nil && p.done {
			results[i] = p.result
			results[i].Targeted = targeted
			if p.seq != a.plan.seq && p.result.Err == nil {
				results[i].Err, results[i].Since = ErrPending, a.plan.since
			}
		}
	}
	a.o.mu.Unlock()
	for i, name := range names { // the fleet has a lock of its own
		if err := a.engine.access.WhyNot(name); err != nil {
			results[i].Err, results[i].Since = err, awaySince(err, results[i].Since)
		}
	}
	return results
}

// awaySince returns since when a cluster cannot be used, as far as the fleet knows.
func awaySince(err error, otherwise time.Time) time.Time {
	if state, ok := errors.AsType[*fleet.StateError](err); ok && !state.Status.Since.IsZero() {
		return state.Status.Since
	}
	return otherwise
}

// writeStatus writes the results into the owner's status.
func (a *accounting) writeStatus(ctx context.Context, results []Result) error {
	if a.engine.cfg.status == nil {
		return nil
	}
	owner := a.plan.owner
	changed := owner.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	if err := a.engine.cfg.status(ctx, changed, results); err != nil {
		return fmt.Errorf("finding the owner's status: %w", err)
	}
	if equality.Semantic.DeepEqual(owner, changed) {
		return nil
	}
	answered := a.engine.ledger.writing(changed)
	ctx, cancel := a.engine.access.Bound(ctx)
	defer cancel()
	err := a.home.Cluster.GetClient().Status().Patch(ctx, changed, client.MergeFrom(owner), client.FieldOwner(a.engine.cfg.name))
	if answered(changed, err) {
		a.engine.owners.add(a.o.req)
	}
	if apierrors.IsNotFound(err) {
		return a.noStatus(ctx, err)
	}
	if err != nil {
		return fmt.Errorf("writing the owner's status: %w", err)
	}
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	a.ownerStoredLocked(changed)
	return nil
}

// errNoStatus says that the owner's CRD has no status subresource.
var errNoStatus = errors.New("its kind has no status subresource: add subresources.status to the CRD, or leave the field Status out")

// noStatus returns why a status could not be written that was not found.
func (a *accounting) noStatus(ctx context.Context, why error) error {
	there := a.engine.cfg.newOwner()
	err := a.home.Cluster.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(a.plan.owner), there)
	if err == nil && there.GetUID() == a.plan.owner.GetUID() {
		err = fmt.Errorf("writing the owner's status: %w: %w", errNoStatus, why)
		a.o.tellStatus(err)
		return reconcile.TerminalError(err)
	}
	return nil // it is gone, or its cluster is
}

// kindsOf returns the kinds of both, each once.
func kindsOf(a, b []schema.GroupVersionKind) []schema.GroupVersionKind {
	for _, kind := range b {
		if !slices.Contains(a, kind) {
			a = append(slices.Clone(a), kind)
		}
	}
	return a
}
