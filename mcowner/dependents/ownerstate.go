package dependents

import (
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/rollout"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// ownerState is what is known of one owner. One that has the name after it has another.
type ownerState struct {
	req  mcreconcile.Request
	uid  types.UID
	born time.Time // from when on this replica alone writes for the owner, zero for its start

	mu        sync.Mutex // guards what follows; nothing remote is asked while it is held
	plan      *plan
	unplanned *unplanned                                // the owner as it was read last, nil if the plan is of that
	record    record.Record                             // as far as it is certain to be stored: what is to be taken from it is taken at once
	named     map[mcreconcile.ClusterName][]record.Site // the sites of the record
	lost      []record.Record                           // from before its cluster was restored from a backup, each to be noted again
	changes   uint64                                    // of members, that may have changed the targets
	parts     map[mcreconcile.ClusterName]*part
	told      map[topic]hash    // of what the last event said, by what it is about
	removals  contests          // about objects that are not to be there, in any cluster
	events    []ownerEvent      // to be recorded
	conflicts int               // of storing it, in a row
	progress  *rollout.Progress // nil if clusters need not wait for others
	turned    time.Time         // when it was last the turn of a cluster that had waited
	known     knownSlices
	unread    Result // what keeps the record from being read, and since when
	// unvisited are the clusters in which the last visit has failed, and may wait to be tried again; nil if there was none.
	unvisited map[mcreconcile.ClusterName]struct{}
	// needed are the clusters that are needed for what is desired in others, and were away, by these.
	needed map[mcreconcile.ClusterName][]mcreconcile.ClusterName
	// over says that the owner is gone, and what was known of it is kept for a note that is to be made of that.
	over bool
	// kindsLater says that kinds may be dropped from the record once nothing is put anywhere.
	kindsLater bool
}

func newOwnerState(req mcreconcile.Request, uid types.UID) *ownerState {
	return &ownerState{
		req: req, uid: uid, parts: map[mcreconcile.ClusterName]*part{}, told: map[topic]hash{}, removals: contests{},
	}
}

// gone ends what is done for the owner, which is gone, unless it is planned again. Events that wait are not told of another one of its name.
func (o *ownerState) gone() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over, o.events = true, nil
}

// needs returns of which kinds the owner has, or is to have, something in a cluster of it. Until that was looked at, all that were noted
// count, and an empty kind is any.
func (o *ownerState) needs(name mcreconcile.ClusterName) (kinds []schema.GroupVersionKind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.parts[name]
	switch {
	case p == nil:
		kinds = o.record.Kinds
	case p.present.in != nil:
		return slices.Concat(p.kinds, p.present.kinds)
	default:
		kinds = kindsOf(o.record.Kinds, p.kinds)
	}
	if len(kinds) == 0 {
		kinds = []schema.GroupVersionKind{{}}
	}
	if p != nil {
		kinds = slices.Concat(kinds, p.present.kinds)
	}
	return kinds
}

// isAtHome reports whether the plan was made in an engagement of a member that goes on.
func (o *ownerState) isAtHome() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.plan != nil && o.plan.home.Engagement != nil && o.plan.home.Engagement.Context().Err() == nil
}

// isSame reports whether a reference is to the owner that is planned.
func (o *ownerState) isSame(owner mcowner.Reference) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.plan != nil && o.plan.ref.Same(owner)
}

// owner returns the owner as it is known, nil if there is no plan.
func (o *ownerState) owner() client.Object {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.plan == nil {
		return nil
	}
	return o.lastLocked()
}

// restore takes over an owner that is older than what was known before the API server was asked, unless it was written meanwhile:
// the storage of its cluster was restored from a backup. What the record has lost by that is noted again, as there may be dependents.
func (o *ownerState) restore(known, now client.Object, keys record.Keys) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.plan == nil || o.lastLocked() != known {
		return
	}
	o.lost = append(o.lost, o.record)
	if isOlder(now, o.plan.owner) { // else the plan goes on with what it is of
		p := *o.plan
		if p.owner = now; p.asksMore(o.plan) {
			p.asked = p.seq + 1 // what was done was done for what is lost
		}
		o.plan = &p
	}
	if o.unplanned != nil {
		read := *o.unplanned
		read.owner = now
		o.unplanned = &read
	}
	o.recordLocked(o.readLocked(now, keys))
}

// goesAs reports whether the owner is let go, or finished, by a plan that was made of it as it is now, in this engagement of its cluster.
func (o *ownerState) goesAs(home remote.Session, owner client.Object) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.plan
	return p != nil && p.mode != serving && !p.isUnclear() && p.home.Engagement == home.Engagement &&
		o.uid == owner.GetUID() && p.owner.GetResourceVersion() == owner.GetResourceVersion()
}

// isRead notes the owner as it was read. That holds until there is a plan of it.
func (o *ownerState) isRead(now unplanned) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.plan != nil && isOlder(now.owner, o.lastLocked()) {
		now.owner = o.lastLocked() // it was written since it was read
	}
	now.since = time.Now()
	if o.unplanned != nil {
		now.since = o.unplanned.since
	}
	o.unplanned = &now
}

// isPlanned reports whether there is a plan of the owner.
func (o *ownerState) isPlanned() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.plan != nil
}

// plannedDeletion returns what becomes of the dependents by the plan, if that is of an owner that is being deleted.
func (o *ownerState) plannedDeletion() metav1.DeletionPropagation {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.plan == nil || o.plan.mode != finishing {
		return ""
	}
	return o.plan.propagation
}

// isUnstored reports whether it was told that the record can be neither read nor stored.
func (o *ownerState) isUnstored() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, told := o.told[topic{of: topicRecord}]
	return told
}

// isOfAnother reports whether the plan is of an owner in another cluster, which had the name of this one.
func (o *ownerState) isOfAnother(now mcowner.ClusterID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.plan != nil && mcowner.Differ(o.plan.ref.ClusterUID, now.UID)
}

// isUnplanned reports whether there is no plan of the owner as it was read last.
func (o *ownerState) isUnplanned() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unplanned != nil
}

// leavesBehind reports whether dependents of the owner may be left that are to stay, were it gone now, and returns a reference to it.
// While it is not known whether they are, they are.
func (o *ownerState) leavesBehind(seen *deletions) (owner mcowner.Reference, stay bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := o.lastReadLocked()
	return last.ref, last.left && (last.keeps(seen.policy(o.req, o.uid)) || o.plan.keeps())
}

// lastLocked returns the owner of the plan as it was read or written last: planning that may have failed.
func (o *ownerState) lastLocked() client.Object {
	if u := o.unplanned; u != nil && isOlder(o.plan.owner, u.owner) {
		return u.owner
	}
	return o.plan.owner
}

// accountedLocked returns the plan with the last state of its owner. What is written to the owner is written to that, unless it is being deleted:
// what becomes of its dependents is as the state says that was planned.
func (o *ownerState) accountedLocked() *plan {
	if o.plan == nil || o.plan.mode == finishing || o.lastLocked() == o.plan.owner {
		return o.plan
	}
	p := *o.plan
	if p.owner = o.lastLocked(); p.asksMore(o.plan) {
		p.asked, p.since = p.seq+1, o.unplanned.since // nothing was done yet for what it says now
	}
	return &p
}

// storedLocked notes the owner as it was stored. The plan goes on with what it is of while a later state cannot be planned, and while others
// have changed more of it, which is planned soon.
func (o *ownerState) storedLocked(owner client.Object, asWritten bool) {
	switch u := o.unplanned; {
	case u != nil:
		if isOlder(u.owner, owner) {
			now := *u
			now.owner = owner
			o.unplanned = &now
		}
	case asWritten && isOlder(o.plan.owner, owner):
		now := *o.plan
		now.owner = owner
		o.plan = &now
	}
}

// lastReadLocked returns the owner as it was read last. Whether there may be dependents says the record, if there is a plan of this owner.
func (o *ownerState) lastReadLocked() (last unplanned) {
	switch {
	case o.unplanned != nil && (o.plan == nil || !isOlder(o.unplanned.owner, o.plan.owner)):
		last = *o.unplanned
	case o.plan != nil:
		last = unplanned{owner: o.plan.owner, ref: o.plan.ref}
	}
	if o.plan != nil {
		last.left = len(o.record.Sites) > 0 || o.record.GivenUp
	}
	return last
}

// follows reports whether a plan is the last one.
func (o *ownerState) follows(p *plan) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.plan.seq == p.seq
}

// outdated counts how often in a row the owner was not as it was thought to be. False ends the row.
func (o *ownerState) outdated(again bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.conflicts++
	if !again {
		o.conflicts = 0
	}
	return o.conflicts
}

// replan notes what the owner asks for now.
func (o *ownerState) replan(p *plan, keys record.Keys) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p.seq, p.since, p.asked = 1, time.Now(), 1
	if before := o.plan; before == nil {
		o.recordLocked(o.readLocked(p.owner, keys))
	} else {
		p.seq, p.asked = before.seq+1, before.seq+1
		if known := o.lastLocked(); isOlder(p.owner, known) {
			p.owner = known // the cache does not have yet what was written last
		}
		if !p.asksMore(before) {
			p.asked, p.since = before.asked, before.since
		}
		if p.mode != before.mode {
			clear(o.removals) // an owner that goes does not wait for what came before
		}
	}
	before := o.progress
	o.plan, o.unplanned, o.over, o.progress = p, nil, false, p.rollout.next(before, p.revision)
	if before == nil && o.progress != nil {
		o.progress.Recall(o.record.Failures)
	}
}

// retargeting notes that the targets of a plan are about to be found. A member that changes from now on asks for that again.
func (o *ownerState) retargeting(p *plan) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p.asOf = o.changes
}

// hasOldTargetsLocked reports whether members have changed since the targets of the plan were found.
func (o *ownerState) hasOldTargetsLocked() bool {
	return o.plan != nil && o.plan.mode == serving && o.plan.asOf != o.changes
}

// hasOldTargets is hasOldTargetsLocked.
func (o *ownerState) hasOldTargets() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.hasOldTargetsLocked()
}

// wantTargets asks for the targets to be found anew.
func (o *ownerState) wantTargets() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes++
}

// isNews reports whether something was not said last about the same thing. An empty message says that all is well.
func (o *ownerState) isNews(about topic, message string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	said, isSaid := o.told[about]
	if message == "" {
		delete(o.told, about)
		return isSaid
	}
	now := hashOf([]byte(message))
	if isSaid && said == now {
		return false
	}
	o.told[about] = now
	return true
}
