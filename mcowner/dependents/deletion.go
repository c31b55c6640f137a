package dependents

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// DeletionPolicyAnnotation on an owner says what becomes of its dependents when it is deleted: Background, Foreground or
// Orphan, as in metav1.DeletionPropagation. It wins over what the deletion asks for, but for Foreground where that is Orphan: it may be what the
// controller has written of a deletion before. With any other value an event says so, and an owner that is being deleted waits, with its
// dependents, until that is put right.
//
// The policy of a deletion shows in a finalizer of the owner, which Kubernetes' garbage collector may take within
// milliseconds. The controller sees it in passing, and writes this annotation then; a deletion with the policy Orphan while
// no controller runs cannot be told from one with the policy Background. To be sure, set the annotation before.
const DeletionPolicyAnnotation = mcowner.DeletionPolicyAnnotation

// deletions remembers how owners are being deleted, from events that it sees as a predicate, until they are gone and what that means for
// their dependents is noted.
type deletions struct {
	// mayLeave reports whether there may be dependents of an owner, and isOthers whether another replica sees to the owners of a
	// cluster: each hears of those in the local one. Nil is never.
	mayLeave func(owner client.Object) bool
	isOthers func(in mcreconcile.ClusterName) bool

	mu     sync.Mutex                                     // guards what follows
	seen   map[mcreconcile.Request]map[types.UID]deletion // by the name, which several owners may have had in turn
	pruned int                                            // how many names were left when it was last pruned
}

// deletion is how an owner is being deleted, as a cluster has said while it was engaged.
type deletion struct {
	policy metav1.DeletionPropagation // empty if no finalizer has said it
	by     cluster.Cluster
	gone   bool          // the owner is
	last   client.Object // the owner that is gone, nil if it had no dependents
	// settled says that all was done for the owner, which goes now: nothing is left, whatever late events say that it had.
	settled bool
}

// requestOf returns what an owner in a cluster is called.
func requestOf(in mcreconcile.ClusterName, owner client.Object) mcreconcile.Request {
	req := mcreconcile.Request{ClusterName: in}
	req.NamespacedName = client.ObjectKeyFromObject(owner)
	return req
}

// errPolicy says that it is not known what is to become of dependents.
var errPolicy = errors.New("while it is not known what is to become of its dependents, the owner is not deleted, and they stay")

// saidPolicy returns what the owner's annotation says, empty if there is none. The error wraps errPolicy.
func saidPolicy(owner client.Object) (policy metav1.DeletionPropagation, err error) {
	err = override(&policy, owner.GetAnnotations(), DeletionPolicyAnnotation,
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errPolicy, err)
	}
	return policy, nil
}

// policyOf returns how an owner that is being deleted was seen to be, or otherwise if that was not seen.
func (d *deletions) policyOf(
	in mcreconcile.ClusterName, cl cluster.Cluster, owner client.Object, otherwise metav1.DeletionPropagation,
) metav1.DeletionPropagation {
	d.note(in, cl, owner)
	return cmp.Or(d.policy(requestOf(in, owner), owner.GetUID()), otherwise)
}

// policy returns how an owner was seen to be deleted, empty if that was not seen.
func (d *deletions) policy(req mcreconcile.Request, uid types.UID) metav1.DeletionPropagation {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[req][uid].policy
}

// isOpen reports whether it is open what becomes of dependents, by what the owner's annotation says: how it is seen to be deleted decides then.
// Foreground may be what the controller has noted of a deletion before.
func isOpen(said metav1.DeletionPropagation) bool {
	return said == "" || said == metav1.DeletePropagationForeground
}

// leaves reports whether there may be dependents of an owner.
func (d *deletions) leaves(owner client.Object) bool { return d.mayLeave != nil && d.mayLeave(owner) }

// isSeen reports whether an event has told that an owner is being deleted, or all that it may lose does not depend on that. A cache has what is
// stored now, and its events come later: one of them may be the only one that says that dependents are to stay.
func (d *deletions) isSeen(in mcreconcile.ClusterName, owner client.Object) bool {
	said, err := saidPolicy(owner)
	if owner.GetDeletionTimestamp().IsZero() || err != nil || !isOpen(said) || !d.leaves(owner) {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, seen := d.seen[requestOf(in, owner)][owner.GetUID()]
	return seen
}

// see notes how an owner is as an event says: if it is being deleted, from then on its finalizers have said how.
func (d *deletions) see(in mcreconcile.ClusterName, cl cluster.Cluster, owner client.Object) {
	d.note(in, cl, owner)
	if owner.GetDeletionTimestamp().IsZero() || !d.leaves(owner) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	req := requestOf(in, owner)
	seen := d.seen[req][owner.GetUID()]
	seen.by = cl
	d.putLocked(req, owner.GetUID(), seen)
}

// note remembers what the owner's finalizers say.
func (d *deletions) note(in mcreconcile.ClusterName, cl cluster.Cluster, owner client.Object) {
	if owner.GetDeletionTimestamp().IsZero() {
		return
	}
	var policy metav1.DeletionPropagation
	switch finalizers := owner.GetFinalizers(); {
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	default:
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	req := requestOf(in, owner)
	seen := d.seen[req][owner.GetUID()]
	seen.policy, seen.by = policy, cl
	d.putLocked(req, owner.GetUID(), seen)
}

func (d *deletions) putLocked(req mcreconcile.Request, uid types.UID, seen deletion) {
	d.pruneLocked()
	if d.seen == nil {
		d.seen = map[mcreconcile.Request]map[types.UID]deletion{}
	}
	if d.seen[req] == nil {
		d.seen[req] = map[types.UID]deletion{}
	}
	d.seen[req][uid] = seen
}

// noteGone notes that an owner is gone. How it was deleted is forgotten once it was seen to its dependents.
func (d *deletions) noteGone(in mcreconcile.ClusterName, cl cluster.Cluster, owner client.Object) {
	req, uid := requestOf(in, owner), owner.GetUID()
	left, others := d.leaves(owner), d.isOthers != nil && d.isOthers(in)
	d.mu.Lock()
	defer d.mu.Unlock()
	seen, known := d.seen[req][uid]
	if seen.settled || others {
		d.dropLocked(req, func(is types.UID, _ deletion) bool { return is == uid })
		return
	}
	if left {
		seen.by, seen.last = cl, owner
	}
	if known || left {
		seen.gone = true
		d.putLocked(req, uid, seen)
	}
}

// undo forgets how an owner was being deleted, if it is not any more: its cluster was restored from a backup.
func (d *deletions) undo(in mcreconcile.ClusterName, owner client.Object) {
	if !owner.GetDeletionTimestamp().IsZero() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dropLocked(requestOf(in, owner), func(is types.UID, _ deletion) bool { return is == owner.GetUID() })
}

// settle notes that all was done for an owner, which may go. That is known until it is gone.
func (d *deletions) settle(req mcreconcile.Request, uid types.UID, by cluster.Cluster) {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := d.seen[req][uid]
	if seen.gone {
		d.dropLocked(req, func(is types.UID, _ deletion) bool { return is == uid })
		return
	}
	if seen.settled = true; seen.by == nil { // else another connection may have told of it since, and tells no more
		seen.by = by
	}
	d.putLocked(req, uid, seen)
}

// mostSeen is how many names are known before owners are forgotten for which nothing is left to do: all was done, or they went without dependents,
// which nobody plans where an event filter of the user drops it.
const mostSeen = 10_000

func (d *deletions) pruneLocked() {
	if len(d.seen) < max(mostSeen, 2*d.pruned) {
		return
	}
	for req := range d.seen {
		d.dropLocked(req, func(_ types.UID, seen deletion) bool { return seen.settled || seen.gone && seen.last == nil })
	}
	d.pruned = len(d.seen)
}

// giveAway notes that another replica sees to the owners of a cluster from now on, and hears how they are deleted. What this one alone knows stays:
// how owners went that nobody has seen to. The connection is not needed any more.
func (d *deletions) giveAway(in mcreconcile.ClusterName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for req := range d.seen {
		if req.ClusterName != in {
			continue
		}
		d.dropLocked(req, func(_ types.UID, seen deletion) bool { return !seen.gone })
		for uid, seen := range d.seen[req] {
			seen.by = nil
			d.seen[req][uid] = seen
		}
	}
}

// reopen notes that a cluster is connected anew: no event tells what ended meanwhile. It returns the names of owners that are gone and
// not seen to yet, since requests for them may have been dropped. The connection before is not needed any more.
func (d *deletions) reopen(in mcreconcile.ClusterName, now cluster.Cluster) (gone []mcreconcile.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for req := range d.seen {
		if req.ClusterName != in {
			continue
		}
		d.dropLocked(req, func(_ types.UID, seen deletion) bool { return seen.settled && seen.by != now })
		for uid, seen := range d.seen[req] {
			seen.by = now
			d.seen[req][uid] = seen
			if seen.gone && !slices.Contains(gone, req) {
				gone = append(gone, req)
			}
		}
	}
	return gone
}

// lost returns the owners of a name that went with dependents, as they were last.
func (d *deletions) lost(req mcreconcile.Request) (owners []client.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, seen := range d.seen[req] {
		if seen.last != nil {
			owners = append(owners, seen.last)
		}
	}
	return owners
}

// forgetGone drops the owners of a name that are gone, but for the one of this UID.
func (d *deletions) forgetGone(req mcreconcile.Request, but types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dropLocked(req, func(uid types.UID, seen deletion) bool { return seen.gone && uid != but })
}

func (d *deletions) dropLocked(req mcreconcile.Request, is func(types.UID, deletion) bool) {
	maps.DeleteFunc(d.seen[req], is)
	if len(d.seen[req]) == 0 {
		delete(d.seen, req)
	}
}

// forgetOrigin drops the owners of a name that is no member's any more, or another cluster's. What the cluster has said that has the
// name now, if one has, is known already.
func (d *deletions) forgetOrigin(in mcreconcile.ClusterName, now cluster.Cluster) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for req := range d.seen {
		if req.ClusterName == in {
			d.dropLocked(req, func(_ types.UID, seen deletion) bool { return now == nil || seen.by != now })
		}
	}
}

// predicate lets every event of a cluster pass, and sees it.
func (d *deletions) predicate(in mcreconcile.ClusterName, cl cluster.Cluster) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			d.undo(in, e.Object)
			d.see(in, cl, e.Object)
			return true
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() { // it was created anew while nobody watched
				d.noteGone(in, cl, e.ObjectOld)
			}
			if !e.ObjectOld.GetDeletionTimestamp().IsZero() {
				d.undo(in, e.ObjectNew)
			}
			d.see(in, cl, e.ObjectNew)
			return true
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			d.noteGone(in, cl, e.Object)
			return true
		},
	}
}
