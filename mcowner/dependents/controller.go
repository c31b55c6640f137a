package dependents

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	*places
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
	err = c.visit(ctx, req.ClusterName, func(ctx context.Context, home place) error {
		owner, err := c.getOwner(ctx, home, req)
		if apierrors.IsNotFound(err) {
			c.memories.forget(req)
			return c.ownerGone(ctx, req)
		}
		if err != nil {
			return fmt.Errorf("reading the owner: %w", err)
		}
		p, err := c.newPass(ctx, req, home, owner)
		if err != nil {
			return err
		}
		if owner.GetDeletionTimestamp().IsZero() {
			result, err = p.place(ctx)
		} else {
			result, err = p.finish(ctx)
		}
		return err
	})
	return result, err
}

func (c *controller) getOwner(ctx context.Context, home place, req mcreconcile.Request) (client.Object, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	owner := c.newOwner()
	return owner, home.cluster.GetCache().Get(ctx, req.NamespacedName, owner)
}

func (c *controller) newPass(ctx context.Context, req mcreconcile.Request, home place, owner client.Object) (*pass, error) {
	uid, err := c.uid(ctx, home)
	if err != nil {
		return nil, err
	}
	ref, err := mcowner.ReferenceTo(c.fleet, req.ClusterName, owner, c.mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	ref.Manager, ref.ClusterUID, ref.Controller = c.name, uid, true
	return &pass{controller: c, req: req, home: home.cluster, owner: owner, ref: ref, memory: c.memories.of(req)}, nil
}

// place has the dependents of an owner where they belong.
func (p *pass) place(ctx context.Context) (reconcile.Result, error) {
	placed := p.placed()
	// A cluster that joins after the targets were found is missing among them for that reason alone.
	usable := slices.DeleteFunc(slices.Clone(placed), func(name mcreconcile.ClusterName) bool { return p.whyNot(name) != nil })
	targets, err := p.targetsNow(ctx)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("finding the clusters of the dependents: %w", err)
	}
	if !p.record.exists(p.owner) && !p.within(p.ownersIn, p.req.ClusterName) {
		return reconcile.Result{}, nil // anybody who may write a reference can bring an object here
	}
	if !p.record.exists(p.owner) && len(targets) == 0 {
		placed = p.strays(ctx)
		if usable = placed; len(placed) == 0 {
			return reconcile.Result{}, nil
		}
	}
	all := union(placed, targets)
	p.awaitAll(all) // before their states are looked up, so that no change is missed
	placed = union(placed, slices.DeleteFunc(slices.Clone(targets), func(name mcreconcile.ClusterName) bool { return p.whyNot(name) != nil }))
	if err := p.note(ctx, placed, true, ""); err != nil {
		return later(err)
	}
	results := p.each(ctx, all, func(ctx context.Context, name mcreconcile.ClusterName) Result {
		switch {
		case slices.Contains(targets, name):
			return p.applyTo(ctx, name, slices.Contains(placed, name))
		case slices.Contains(usable, name):
			return p.leave(ctx, name, metav1.DeletePropagationBackground)
		default:
			return p.left(name, cmp.Or(p.whyNot(name), errJustReady))
		}
	})
	for _, r := range results {
		if !r.Targeted && r.Err == nil {
			placed = slices.DeleteFunc(placed, func(name mcreconcile.ClusterName) bool { return name == r.Cluster })
		}
	}
	if err := p.note(ctx, placed, len(targets)+len(placed) > 0, ""); err != nil {
		return later(err)
	}
	return p.conclude(ctx, results)
}

// strays returns the clusters in which dependents are of which the owner has no record: left in a cluster that was away for
// too long, or created by a request that arrived late. A cluster that cannot be asked brings the owner back when it can.
func (p *pass) strays(ctx context.Context) []mcreconcile.ClusterName {
	names := p.names(p.dependentsIn)
	has := make([]bool, len(names))
	sideBySide(names, func(i int, name mcreconcile.ClusterName) {
		_ = p.visit(ctx, name, func(ctx context.Context, at place) error {
			found, err := p.known(ctx, at, p.ref)
			has[i] = len(found) > 0
			return err
		})
	})
	var strays []mcreconcile.ClusterName
	for i, name := range names {
		if has[i] {
			strays = append(strays, name)
		}
	}
	return strays
}

// finish removes the dependents of an owner that is being deleted, and then the finalizer.
func (p *pass) finish(ctx context.Context) (reconcile.Result, error) {
	if !p.record.exists(p.owner) {
		return reconcile.Result{}, nil
	}
	policy := p.deletions.policyOf(p.owner)
	placed := p.placed()
	held := hasFinalizer(p.owner, p.record)
	p.awaitAll(placed)
	if err := p.note(ctx, placed, held, policy); err != nil {
		return later(err)
	}
	results := p.each(ctx, placed, func(ctx context.Context, name mcreconcile.ClusterName) Result {
		return p.leave(ctx, name, policy)
	})
	var left []mcreconcile.ClusterName
	for _, r := range results {
		if r.Err != nil {
			left = append(left, r.Cluster)
		}
	}
	if len(left) > 0 {
		if err := p.note(ctx, left, held, policy); err != nil {
			return later(err)
		}
		return p.conclude(ctx, results)
	}
	if err := p.note(ctx, nil, false, policy); err != nil {
		return later(err)
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
func (p *pass) placed() []mcreconcile.ClusterName {
	placed, ok := p.record.read(p.owner)
	if !ok {
		placed = p.names(p.dependentsIn)
	}
	return union(placed, nil)
}

// note stores in the owner's metadata in which clusters there may be dependents, and how it is being deleted.
func (p *pass) note(ctx context.Context, placed []mcreconcile.ClusterName, held bool, policy metav1.DeletionPropagation) error {
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

// each works on several clusters side by side, so that none holds up the others.
func (p *pass) each(ctx context.Context, names []mcreconcile.ClusterName, do func(context.Context, mcreconcile.ClusterName) Result) []Result {
	results := make([]Result, len(names))
	sideBySide(names, func(i int, name mcreconcile.ClusterName) {
		defer func() {
			if v := recover(); v != nil { // as the controller does on its own goroutine
				results[i] = Result{Cluster: name, Err: fmt.Errorf("panic: %v", v)}
				log.FromContext(ctx).Error(results[i].Err, "Recovered", "dependentsIn", name, "stack", string(debug.Stack()))
			}
		}()
		results[i] = do(ctx, name)
	})
	if ctx.Err() != nil {
		return results // whose errors say that it was interrupted, which is no news
	}
	for _, r := range results {
		p.tell(r.Cluster, r.Err)
		if r.Err == nil {
			p.memories.settled(p.req, obstacle{cluster: r.Cluster})
		}
	}
	return results
}

// applyTo makes one cluster as it is desired. It creates nothing in a cluster that was not noted before.
func (p *pass) applyTo(ctx context.Context, name mcreconcile.ClusterName, noted bool) Result {
	result := Result{Cluster: name, Targeted: true}
	result.Err = p.in(ctx, name, func(ctx context.Context, a *applier) (err error) {
		if !noted {
			return errJustReady
		}
		if !p.within(p.dependentsIn, name) {
			return fmt.Errorf("%s is a target, and not one of the clusters of DependentsIn", clusterText(name))
		}
		result.Dependents, err = a.applyAll(ctx)
		return err
	})
	return result
}

// leave takes the owner from its dependents in one cluster. The result has no error once that is done.
func (p *pass) leave(ctx context.Context, name mcreconcile.ClusterName, policy metav1.DeletionPropagation) Result {
	err := p.in(ctx, name, func(ctx context.Context, a *applier) error {
		going, err := a.empty(ctx, policy)
		if err == nil && going > 0 && policy == metav1.DeletePropagationForeground {
			return fmt.Errorf("%d dependents in %s: %w", going, clusterText(name), errGoing)
		}
		return err
	})
	return p.left(name, err)
}

// left returns what came of leaving a cluster. One that is released holds up nothing.
func (p *pass) left(name mcreconcile.ClusterName, err error) Result {
	if p.isReleased(name, err) {
		p.tellReleased(name, err)
		err = nil
	}
	return Result{Cluster: name, Err: err}
}

// in calls do for one cluster, if it can be used now.
func (p *pass) in(ctx context.Context, name mcreconcile.ClusterName, do func(context.Context, *applier) error) error {
	return p.visit(ctx, name, func(ctx context.Context, at place) error {
		writer, err := p.writers.at(at, p.req.ClusterName)
		if err != nil {
			return err
		}
		return do(ctx, &applier{pass: p, at: at, writer: writer})
	})
}

// writeStatus has the owner's status say what came of it.
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
