package dependents

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// controller is a [Reconciler] at work.
type controller struct {
	config
	*access
	owner     kind
	kinds     []kind
	record    record
	writers   writers
	memories  *memory
	deletions *deletions
	proof     *proof
}

// pass is one reconcile of an owner that exists.
type pass struct {
	*controller
	req    mcreconcile.Request
	home   cluster.Cluster
	owner  client.Object // replaced when its metadata was stored, never changed
	ref    mcowner.Reference
	memory *ownerMemory
}

// Reconcile implements mcreconcile.Reconciler.
func (c *controller) Reconcile(ctx context.Context, req mcreconcile.Request) (result reconcile.Result, err error) {
	err = c.visit(ctx, req.ClusterName, func(ctx context.Context, home session) error {
		if home.engagement != nil { // the request's may have been replaced a moment ago
			ctx = mcreconcile.WithCluster(ctx, home.name, home.cluster)
		}
		inside := c.within(c.ownersIn, req.ClusterName)
		owner, err := c.getOwner(ctx, home, req, inside)
		switch {
		case apierrors.IsNotFound(err):
			c.memories.forget(req)
			return c.ownerGone(ctx, home, req)
		case !inside && (apierrors.IsForbidden(err) || meta.IsNoMatchError(err)):
			return nil // anybody who may write a reference can bring a request here
		case err != nil:
			return fmt.Errorf("reading the owner: %w", err)
		case !inside && !c.record.exists(owner):
			return nil
		}
		p, err := c.newPass(req, home, owner)
		if err != nil {
			return err
		}
		if owner.GetDeletionTimestamp().IsZero() {
			result, err = p.distribute(ctx)
		} else {
			result, err = p.finish(ctx)
		}
		return err
	})
	return result, err
}

// getOwner reads an owner. Where owners are not watched, the API server is asked for this one: a read from the cache would
// list, and keep, all objects of the kind.
func (c *controller) getOwner(ctx context.Context, home session, req mcreconcile.Request, watched bool) (client.Object, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	from := home.cluster.GetAPIReader()
	if watched {
		from = home.cluster.GetCache()
	}
	owner := c.newOwner()
	return owner, from.Get(ctx, req.NamespacedName, owner)
}

func (c *controller) newPass(req mcreconcile.Request, home session, owner client.Object) (*pass, error) {
	ref, err := mcowner.ReferenceTo(c.fleet, req.ClusterName, owner, c.mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	ref.Manager, ref.ClusterUID, ref.Controller = c.name, home.identity, true
	return &pass{controller: c, req: req, home: home.cluster, owner: owner, ref: ref, memory: c.memories.of(req)}, nil
}

// distribute puts the dependents of an owner where they belong.
func (p *pass) distribute(ctx context.Context) (reconcile.Result, error) {
	placed := p.placed()
	// A cluster that joins after the targets were found is missing among them for that reason alone.
	usable := slices.DeleteFunc(namesOf(placed), func(name mcreconcile.ClusterName) bool { return p.whyNot(name) != nil })
	targets, err := p.targetsNow(ctx)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("finding the clusters of the dependents: %w", err)
	}
	if !p.record.exists(p.owner) && len(targets) == 0 {
		placed = p.strays(ctx)
		if usable = namesOf(placed); len(placed) == 0 {
			return reconcile.Result{}, nil
		}
	}
	all := union(namesOf(placed), targets)
	p.awaitAll(all) // before their states are looked up, so that no change is missed
	placed = p.withTargets(ctx, placed, targets)
	if err := p.note(ctx, placed, true, ""); err != nil {
		return unlessOutdated(err)
	}
	results, placed := p.each(ctx, all, placed, func(ctx context.Context, name mcreconcile.ClusterName, sites []site) outcome {
		switch {
		case slices.Contains(targets, name):
			return p.applyTo(ctx, name, sites)
		case slices.Contains(usable, name):
			return p.leave(ctx, name, sites, metav1.DeletePropagationBackground)
		default:
			return p.left(name, sites, cmp.Or(p.whyNot(name), errJustReady))
		}
	})
	if err := p.note(ctx, placed, len(targets)+len(placed) > 0, ""); err != nil {
		return unlessOutdated(err)
	}
	return p.conclude(ctx, results)
}

// strays returns the clusters with dependents that are missing in the owner's record. They were left in a cluster that was
// away for too long, or created by a request that arrived late. A cluster that cannot be asked brings the owner back later.
func (p *pass) strays(ctx context.Context) []site {
	names := p.names(p.dependentsIn)
	has := make([][]site, len(names))
	sideBySide(names, func(i int, name mcreconcile.ClusterName) {
		_ = p.visit(ctx, name, func(ctx context.Context, at session) error {
			found, err := p.known(ctx, at, p.ref)
			if len(found) > 0 {
				has[i] = []site{{name, at.identity}}
			}
			return err
		})
	})
	return slices.Concat(has...)
}

// finish removes the dependents of an owner that is being deleted, and then the finalizer.
func (p *pass) finish(ctx context.Context) (reconcile.Result, error) {
	if !p.record.exists(p.owner) {
		return reconcile.Result{}, nil
	}
	policy := p.deletions.policyOf(p.owner)
	placed := p.placed()
	held := hasFinalizer(p.owner, p.record)
	names := namesOf(placed)
	p.awaitAll(names)
	if err := p.note(ctx, placed, held, policy); err != nil {
		return unlessOutdated(err)
	}
	results, left := p.each(ctx, names, placed, func(ctx context.Context, name mcreconcile.ClusterName, sites []site) outcome {
		return p.leave(ctx, name, sites, policy)
	})
	if len(left) > 0 {
		if err := p.note(ctx, left, held, policy); err != nil {
			return unlessOutdated(err)
		}
		return p.conclude(ctx, results)
	}
	if err := p.note(ctx, nil, false, policy); err != nil {
		return unlessOutdated(err)
	}
	p.deletions.forget(p.owner)
	p.memories.forget(p.req)
	return reconcile.Result{}, nil
}

// targetsNow returns the clusters that the owner is to have dependents in, ordered, each once.
func (p *pass) targetsNow(ctx context.Context) ([]mcreconcile.ClusterName, error) {
	targets := p.names(p.dependentsIn)
	if p.targets != nil {
		var err error
		if targets, err = p.targets(ctx, p.owner); err != nil {
			return nil, err
		}
	}
	return union(targets, nil), nil
}

// placed returns the clusters in which the owner may have dependents.
func (p *pass) placed() []site {
	placed, ok := p.record.read(p.owner)
	if !ok {
		for _, name := range p.names(p.dependentsIn) {
			placed = append(placed, site{name: name})
		}
	}
	return placed
}

// withTargets returns the clusters in which the owner may have dependents once there are some in all targets that can be used
// now. A target of which it was not known which cluster it is becomes the one that has its name.
func (p *pass) withTargets(ctx context.Context, placed []site, targets []mcreconcile.ClusterName) []site {
	named := byName(placed)
	for _, name := range targets {
		identity, err := p.identityNow(ctx, name)
		if now := (site{name, identity}); err == nil && !now.isNoted(named[name]) {
			known := slices.DeleteFunc(named[name], func(s site) bool { return s.identity == "" })
			named[name] = p.withinBounds(append(known, now))
		}
	}
	return slices.Concat(slices.Collect(maps.Values(named))...)
}

// note stores in the owner's metadata in which clusters there may be dependents, and how it is being deleted.
func (p *pass) note(ctx context.Context, placed []site, held bool, policy metav1.DeletionPropagation) error {
	ctx, cancel := p.bound(ctx)
	defer cancel()
	stored, err := store(ctx, p.home.GetClient(), p.owner, p.name, func(owner client.Object) {
		p.record.set(owner, placed, held)
		if policy == metav1.DeletePropagationForeground || policy == metav1.DeletePropagationOrphan {
			owner.SetAnnotations(withKey(owner.GetAnnotations(), DeletionPolicyAnnotation, string(policy)))
		}
	})
	if err == nil {
		p.owner = stored
	}
	return err
}

func (p *pass) awaitAll(names []mcreconcile.ClusterName) {
	for _, name := range names {
		p.memories.await(p.req, obstacle{cluster: name})
	}
}

// whyNot returns why a cluster cannot be used now, nil if it can.
func (p *pass) whyNot(name mcreconcile.ClusterName) error {
	if name == mcreconcile.LocalCluster {
		return nil
	}
	_, err := p.mgr.GetFleet().Engagement(name)
	return err
}

// outcome is a [Result], and the clusters of that name in which the owner may still have dependents.
type outcome struct {
	Result
	sites []site
}

// each works on several clusters side by side, so that none holds up the others. It returns in which of them the owner may
// still have dependents.
func (p *pass) each(
	ctx context.Context, names []mcreconcile.ClusterName, placed []site,
	do func(context.Context, mcreconcile.ClusterName, []site) outcome,
) (results []Result, left []site) {
	outcomes := make([]outcome, len(names))
	named := byName(placed)
	sideBySide(names, func(i int, name mcreconcile.ClusterName) {
		sites := named[name]
		defer func() {
			if v := recover(); v != nil { // as the controller does on its own goroutine
				err := fmt.Errorf("panic: %v", v)
				outcomes[i] = outcome{Result{Cluster: name, Err: err}, sites}
				log.FromContext(ctx).Error(err, "Recovered", "dependentsIn", name, "stack", string(debug.Stack()))
			}
		}()
		outcomes[i] = do(ctx, name, sites)
	})
	for _, o := range outcomes {
		results, left = append(results, o.Result), append(left, o.sites...)
	}
	if ctx.Err() != nil {
		return results, left // whose errors say that it was interrupted, which is no news
	}
	for _, r := range results {
		p.tell(r.Cluster, r.Err)
		if r.Err == nil {
			p.memories.settled(p.req, obstacle{cluster: r.Cluster})
		}
	}
	return results, left
}

// applyTo makes one cluster as it is desired. It creates nothing in a cluster that was not noted before.
func (p *pass) applyTo(ctx context.Context, name mcreconcile.ClusterName, sites []site) outcome {
	o := outcome{Result{Cluster: name, Targeted: true}, sites}
	o.Err = p.in(ctx, name, func(ctx context.Context, a *applier) (err error) {
		if !(site{name, a.at.identity}).isNoted(sites) {
			return errJustReady
		}
		if !p.within(p.dependentsIn, name) {
			return fmt.Errorf("%s is a target, and not one of the clusters of DependentsIn", clusterText(name))
		}
		here, before := a.at.divide(sites)
		before = p.unreleased(before)
		p.tellReplaced(a.at, before)
		o.sites = slices.Concat(before, here) // the oldest first
		o.Dependents, err = a.applyAll(ctx)
		return err
	})
	return o
}

// leave takes the owner from its dependents in one cluster. The result has no error once that is done. If the name leads to
// another cluster than those in which the owner may have dependents, nothing is done there.
func (p *pass) leave(ctx context.Context, name mcreconcile.ClusterName, sites []site, policy metav1.DeletionPropagation) outcome {
	err := p.in(ctx, name, func(ctx context.Context, a *applier) error {
		here, before := a.at.divide(sites)
		if len(here) > 0 {
			going, err := a.emptyCluster(ctx, policy)
			if err != nil {
				return err
			}
			if going > 0 && policy == metav1.DeletePropagationForeground {
				return fmt.Errorf("%d dependents in %s: %w", going, clusterText(name), errGoing)
			}
		}
		sites = p.unreleased(before)
		return p.replaced(a.at, sites)
	})
	return p.left(name, sites, err)
}

// left returns what came of leaving a cluster. One that is released holds up nothing.
func (p *pass) left(name mcreconcile.ClusterName, sites []site, err error) outcome {
	if p.isReleased(name, err) {
		p.tellReleased(site{name: name}, fmt.Errorf("it has not been in the fleet for %s: %w", p.releaseAfter, err))
		return outcome{Result: Result{Cluster: name}}
	}
	return outcome{Result{Cluster: name, Err: err}, sites}
}

// in calls do for one cluster, if it can be used now.
func (p *pass) in(ctx context.Context, name mcreconcile.ClusterName, do func(context.Context, *applier) error) error {
	return p.visit(ctx, name, func(ctx context.Context, at session) error {
		writer, err := p.writers.at(at, p.req.ClusterName)
		if err != nil {
			return err
		}
		return do(ctx, &applier{pass: p, at: at, writer: writer})
	})
}

// writeStatus writes the results into the owner's status.
func (p *pass) writeStatus(ctx context.Context, results []Result) error {
	if p.status == nil {
		return nil
	}
	changed := p.owner.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	if err := p.status(ctx, changed, results); err != nil {
		return fmt.Errorf("finding the owner's status: %w", err)
	}
	if equality.Semantic.DeepEqual(p.owner, changed) {
		return nil
	}
	ctx, cancel := p.bound(ctx)
	defer cancel()
	err := p.home.GetClient().Status().Patch(ctx, changed, client.MergeFrom(p.owner), client.FieldOwner(p.name))
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("writing the owner's status: %w", err)
	}
	return nil
}
