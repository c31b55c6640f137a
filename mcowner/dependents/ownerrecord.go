package dependents

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// open reads the record, and takes from it where nothing is left. That is so at once: what is not in the record may not be
// given anything, whether it is stored or not. The answer is false if there is nothing to account for.
func (a *accounting) open() bool {
	o := a.o
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.plan == nil || o.over {
		return false
	}
	a.plan = o.accountedLocked()
	a.record = o.readLocked(a.plan.owner, a.engine.keys)
	a.record.Slices = nil // that is found anew
	if a.record.Nonsense {
		a.record.GivenUp = true // a cluster that is not in the fleet may have been in it
		for _, name := range a.engine.access.Names(a.engine.cfg.dependentsIn) {
			a.record.Sites = append(a.record.Sites, record.Site{Name: name})
		}
	}
	a.settled = make(map[mcreconcile.ClusterName]uint64, len(o.parts))
	a.again, a.asked = map[mcreconcile.ClusterName]bool{}, map[mcreconcile.ClusterName]bool{}
	var strays []record.Site
	gone := map[record.Site]bool{}
	stored := a.record.Kinds // nothing is created of others before they are stored
	for name, p := range o.parts {
		a.settled[name] = p.runs
		for _, s := range p.drop {
			gone[s] = true
		}
		a.record.GivenUp = a.record.GivenUp || p.givenUp
		a.record.Kinds = kindsOf(a.record.Kinds, p.kinds)
		if p.stray != nil {
			strays = append(strays, *p.stray)
		}
		_, targeted := slices.BinarySearch(a.plan.targets, name)
		a.asked[name] = p.again && (targeted || a.unknown == nil)
	}
	for _, lost := range o.lost {
		strays = append(strays, lost.Sites...)
		a.record.GivenUp = a.record.GivenUp || lost.GivenUp
		a.record.Kinds = kindsOf(a.record.Kinds, lost.Kinds)
	}
	a.lost = len(o.lost)
	a.record.Sites = slices.DeleteFunc(a.record.Sites, func(s record.Site) bool { return gone[s] })
	for _, s := range a.record.Sites {
		if a.record.Nonsense && len(o.named[s.Name]) == 0 { // whatever was found there before
			a.again[s.Name] = true
		}
	}
	dropped := o.droppedKindsLocked(a.record)
	a.record.Kinds = without(a.record.Kinds, dropped)
	certain := a.record
	certain.Sites, certain.Kinds = slices.Clone(a.record.Sites), without(stored, dropped)
	o.recordLocked(certain)
	for _, s := range strays {
		if !gone[s] && !s.IsNoted(o.named[s.Name]) {
			a.record.Sites, gone[s] = append(a.record.Sites, s), true
		}
	}
	return true
}

// release takes clusters from the record that hold up nothing any more, as the declared policies say: they were given up, have left with what is to
// stay as it is, or the owner is let go with that. It returns when to look again, zero for never.
func (a *accounting) release() (until time.Duration) {
	givenUp := sync.OnceValue(a.plan.givenUp) // there may be thousands of clusters, and as many names in the annotation
	targeted := func(s record.Site) bool { _, is := slices.BinarySearch(a.plan.targets, s.Name); return is }
	leavesAsIs := a.engine.cfg.onMemberLeaving.propagation() == ""
	departs := func(s record.Site) bool {
		return !leavesAsIs && a.engine.isLeaving(s.Name) && !mcowner.Differ(s.Identity, a.engine.ledger.leading(s.Name))
	}
	a.record.Sites = slices.DeleteFunc(a.record.Sites, func(s record.Site) bool {
		err := a.engine.access.WhyNot(s.Name)
		switch {
		case a.plan.mode == retiring && a.plan.propagation == "" && (err != nil || !departs(s)):
			a.record.GivenUp = true
			return true
		case !remote.IsMissing(err):
			return false
		case leavesAsIs && a.plan.mode != finishing && a.engine.ledger.hasLeft(s):
			a.tellReleased(s, fmt.Errorf("it was leaving the fleet when it went, and what is there stays as it is: %w", err))
			a.record.GivenUp = true
			return true
		case targeted(s):
			return false
		}
		missing := a.engine.ledger.missingFor(record.Site{Name: s.Name})
		late, after := remote.ReportedLate(err)-missing, a.engine.cfg.releaseAfter
		switch {
		case late <= 0 && givenUp()[s.Name]:
			a.tellReleased(s, fmt.Errorf("the annotation %s of the owner says so: %w", GiveUpAnnotation, err))
		case after > 0 && missing >= after:
			a.tellReleased(s, fmt.Errorf("it has not been in the fleet for %s: %w", after, err))
		default:
			if givenUp()[s.Name] {
				until = sooner(until, late)
			}
			if after > 0 {
				until = sooner(until, after-missing)
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
		if len(known) > 0 {
			a.o.forgiveReplaced(name)
		}
		named[name] = a.withinBounds(append(known, now))
		a.again[name] = true
	}
	a.record.Sites = slices.Concat(slices.Collect(maps.Values(named))...)
	if len(a.record.Kinds) == 0 && len(a.plan.targets) > 0 {
		a.record.Kinds = a.engine.likelyKinds(ctx, a.plan.owner, a.plan.targets[0]) // so that it is written to once at first
	}
}

func (c *engine) isLeaving(name mcreconcile.ClusterName) bool {
	if name == mcreconcile.LocalCluster {
		return false
	}
	status, _ := c.access.Manager.GetFleet().Status(name)
	return status.Leaving
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
	err := a.writeOwner(ctx, changed, func(ctx context.Context, patch client.Patch, by client.FieldOwner) error {
		return a.home.Cluster.GetClient().Patch(ctx, changed, patch, by)
	})
	if err != nil {
		return fmt.Errorf("noting on the owner where its dependents are: %w", err)
	}
	a.ownerStored(changed, true)
	return nil
}

// writeOwner sends the owner as it is to be, and reads into that what is stored then. If the owner was changed meanwhile, the error is a conflict:
// a patch would put back what others have written, such as the conditions of another controller.
func (a *accounting) writeOwner(ctx context.Context, changed client.Object, send func(context.Context, client.Patch, client.FieldOwner) error) error {
	ctx, cancel := a.engine.access.Bound(ctx)
	defer cancel()
	answered := a.engine.ledger.writing(a.home.Name(), changed)
	patch := client.MergeFromWithOptions(a.plan.owner, client.MergeFromWithOptimisticLock{})
	err := send(ctx, patch, client.FieldOwner(a.engine.cfg.name))
	if answered(changed, err) {
		a.engine.owners.add(a.o.req)
	}
	return unquoted(a.engine.owner, a.home, err, a.plan.owner, changed)
}

// settle notes that the record is stored.
func (a *accounting) settle() {
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	a.o.recordLocked(a.record)
	a.o.lost = slices.Delete(a.o.lost, 0, a.lost)
	for name, runs := range a.settled {
		if p := a.o.parts[name]; p != nil && p.runs == runs {
			p.stray, p.kinds, p.givenUp, p.again = nil, nil, false, p.again && !a.asked[name]
			if !a.lingers {
				p.drop = nil
			}
		}
	}
}

// ownerStored notes the owner as it was stored.
func (a *accounting) ownerStored(stored client.Object, asWritten bool) {
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	a.o.storedLocked(stored, asWritten)
	if isOlder(a.plan.owner, stored) {
		now := *a.plan
		now.owner = stored
		a.plan = &now
	}
}

// isOlder reports whether one is an older state of the other object.
func isOlder(one, other client.Object) bool {
	return one.GetUID() == other.GetUID() && isOlderVersion(one.GetResourceVersion(), other.GetResourceVersion())
}

func isOlderVersion(one, other string) bool {
	order, err := resourceversion.CompareResourceVersion(one, other)
	return err == nil && order < 0
}

// kindsOf returns the kinds of both, each once, and of the last ones no more than an owner can note.
func kindsOf(a, b []schema.GroupVersionKind) []schema.GroupVersionKind {
	for _, kind := range b {
		if len(a) < record.MostKinds && !slices.Contains(a, kind) {
			a = append(slices.Clone(a), kind)
		}
	}
	return a
}

// without returns the kinds but for these.
func without(kinds, but []schema.GroupVersionKind) []schema.GroupVersionKind {
	return slices.DeleteFunc(slices.Clone(kinds), func(kind schema.GroupVersionKind) bool { return slices.Contains(but, kind) })
}
