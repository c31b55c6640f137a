package dependents

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/rollout"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// ownerState is what is known of one owner.
type ownerState struct {
	req  mcreconcile.Request
	born time.Time // from when on this replica alone writes for the owner, zero for its start

	mu        sync.Mutex // guards what follows; nothing remote is asked while it is held
	plan      *plan
	unplanned *unplanned                                // the owner as it was read last, nil if the plan is of that
	record    record.Record                             // as far as it is certain to be stored: what is to be taken from it is taken at once
	named     map[mcreconcile.ClusterName][]record.Site // the sites of the record
	changes   uint64                                    // of members, that may have changed the targets
	parts     map[mcreconcile.ClusterName]*part
	told      map[topic]hash    // of what the last event said, by what it is about
	removals  contests          // about objects that are not to be there, in any cluster
	events    []ownerEvent      // to be recorded
	conflicts int               // of storing it, in a row
	progress  *rollout.Progress // nil if clusters need not wait for others
	known     knownSlices
	// unvisited are the clusters in which the last visit has failed, and may wait to be tried again; nil if there was none.
	unvisited map[mcreconcile.ClusterName]struct{}
	// kindsLater says that kinds may be dropped from the record once nothing is put anywhere.
	kindsLater bool
}

// part is an owner's part in one cluster.
type part struct {
	seq     uint64                    // of the plan that was last done
	done    bool                      // something was done since the program began
	runs    uint64                    // grows with each run
	result  Result                    // of that
	drop    []record.Site             // where nothing is left, to be taken from the record
	givenUp bool                      // something may be left in them
	stray   *record.Site              // dependents were seen there, and are not in the record
	kinds   []schema.GroupVersionKind // to be noted in the record
	again   bool                      // once the record is stored, there is more to do, whatever a run finds before that
	applied map[dependentKey]fingerprint
	// hung are objects about which a request got no answer when they were last looked at, and kinds, which have no name.
	hung map[dependentKey]bool
	// unserved are kinds that should be served, by when it was seen first that they are not.
	unserved map[schema.GroupKind]time.Time
	retries  int // since an object was last as it was thought to be
	awaits   int // how often in a row it was not known what is desired
	// contests are about objects that others have changed of late.
	contests contests
	present  kindsPresent
}

// fingerprint is what was desired of an object, and what is there: while both are as they were, nothing is to be done.
type fingerprint struct {
	uid           types.UID
	desired, live hash
	version       string // in which it was last written, or found unchanged
}

// isSame reports whether both say the same of an object, in whatever version.
func (f fingerprint) isSame(other fingerprint) bool {
	f.version = other.version
	return f == other
}

// isAfter reports whether an object was read from a cache that does not have yet what is known.
func (f fingerprint) isAfter(cached client.Object) bool {
	return f.uid == cached.GetUID() && isOlderVersion(cached.GetResourceVersion(), f.version)
}

func newOwnerState(req mcreconcile.Request) *ownerState {
	return &ownerState{
		req: req, parts: map[mcreconcile.ClusterName]*part{}, told: map[topic]hash{}, removals: contests{},
	}
}

func (o *ownerState) partLocked(name mcreconcile.ClusterName) *part {
	p, ok := o.parts[name]
	if !ok {
		p = &part{applied: map[dependentKey]fingerprint{}, hung: map[dependentKey]bool{}, contests: contests{}}
		o.parts[name] = p
	}
	return p
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

// uid returns that of the owner, empty if there is no plan.
func (o *ownerState) uid() types.UID {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.plan == nil {
		return ""
	}
	return o.plan.ref.UID
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
	return o.plan.owner
}

// restore takes over an owner that is older than what was known before the API server was asked, unless it was written meanwhile:
// the storage of its cluster was restored from a backup. What the record has lost by that is noted again, as there may be dependents.
func (o *ownerState) restore(known, now client.Object, keys record.Keys) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.plan == nil || o.plan.owner != known {
		return
	}
	p, lost := *o.plan, o.record
	p.owner = now
	o.plan = &p
	o.recordLocked(o.readLocked(now, keys))
	for _, s := range lost.Sites {
		part := o.partLocked(s.Name)
		part.kinds = kindsOf(part.kinds, lost.Kinds)
		if !s.IsNoted(o.named[s.Name]) {
			part.stray = &s
		}
	}
}

// goesAs reports whether the owner is let go, or finished, by a plan that was made of it as it is now, in this engagement of its cluster.
func (o *ownerState) goesAs(home remote.Session, owner client.Object) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.plan
	return p != nil && p.mode != serving && !p.isUnclear() && p.home.Engagement == home.Engagement &&
		p.ref.UID == owner.GetUID() && p.owner.GetResourceVersion() == owner.GetResourceVersion()
}

// isRead notes the owner as it was read. That holds until there is a plan of it.
func (o *ownerState) isRead(now unplanned) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unplanned = &now
}

// leavesBehind reports whether dependents of the owner may be left that are to stay, were it gone now, and returns a reference to it.
// While it is not known whether they are, they are.
func (o *ownerState) leavesBehind(seen *deletions) (owner mcowner.Reference, stay bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := o.lastReadLocked()
	return last.ref, last.left && (last.keeps(seen.policy(o.req, last.ref.UID)) || o.plan.keeps(last.ref.UID))
}

// knows reports whether this is the owner that is planned, or was read last.
func (o *ownerState) knows(uid types.UID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.plan != nil && o.plan.ref.UID == uid || o.unplanned != nil && o.unplanned.ref.UID == uid
}

// lastReadLocked returns the owner as it was read last. Whether there may be dependents says the record, if there is a plan of this owner.
func (o *ownerState) lastReadLocked() (last unplanned) {
	switch {
	case o.unplanned != nil && (o.plan == nil || !isOlder(o.unplanned.owner, o.plan.owner)):
		last = *o.unplanned
	case o.plan != nil:
		last = unplanned{owner: o.plan.owner, ref: o.plan.ref}
	}
	if o.plan != nil && o.plan.ref.UID == last.ref.UID {
		last.left = len(o.record.Sites) > 0 || o.record.GivenUp
	}
	return last
}

// follows reports whether a plan is the last one.
func (o *ownerState) follows(p *plan) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.plan.seq == p.seq && o.plan.ref.UID == p.ref.UID
}

// view is what is known of the owner's part in one cluster at a moment.
type view struct {
	*plan

	targeted bool
	sites    []record.Site             // of the name, in which there may be dependents
	dropped  []record.Site             // in which nothing is left, but for what is stored
	noted    []schema.GroupVersionKind // kinds that there may be
	part     *part                     // in which something may be put, nil if nothing is
}

// in returns what is to be done in a cluster. The answer is false if there is no plan.
func (o *ownerState) in(name mcreconcile.ClusterName) (view, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.inLocked(name)
}

// begin is in, for a run that may put something there if it is a target: what an earlier one has found gone may not be for long.
func (o *ownerState) begin(name mcreconcile.ClusterName) (view, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v, ok := o.inLocked(name)
	if ok && v.targeted {
		p := o.partLocked(name)
		v.dropped, p.drop, p.runs = nil, nil, p.runs+1
		v.part, p.present.running = p, p.present.running+1
		p.present.seen = nil
	}
	return v, ok
}

// end ends a run that begin has begun.
func (o *ownerState) end(v view) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if v.part != nil {
		v.part.present.running--
	}
}

func (o *ownerState) inLocked(name mcreconcile.ClusterName) (view, bool) {
	if o.plan == nil {
		return view{}, false
	}
	v := view{plan: o.plan, noted: o.record.Kinds, sites: o.named[name]}
	_, v.targeted = slices.BinarySearch(o.plan.targets, name)
	if p, ok := o.parts[name]; ok {
		v.dropped = p.drop
	}
	return v, true
}

// report notes what came of a cluster.
func (o *ownerState) report(name mcreconcile.ClusterName, v view, r report) (news bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partLocked(name)
	r.Since = since(p.result.Since, text(p.result.Err) != text(r.Err) || text(p.result.Unready) != text(r.Unready) || !p.done)
	r.Objects = aged(p.result.Objects, r.Objects)
	o.known.age(&r)
	news = !p.done || p.seq != v.seq || !sameResult(p.result, r.Result) ||
		len(r.drop) > 0 || r.stray != nil || r.again || len(o.events) > 0
	news = p.present.note(r.look) || news || o.kindsLater
	p.seq, p.done, p.result, p.runs = v.seq, true, r.Result, p.runs+1
	p.givenUp, p.stray, p.kinds, p.again = p.givenUp || r.givenUp, r.stray, r.kinds, p.again || r.again
	switch {
	case v.targeted, r.stray != nil:
		p.drop = r.drop
	case len(r.drop) > 0: // and what was dropped before, which slices may still have, though the view has it no more
		p.drop = append(slices.DeleteFunc(slices.Clone(p.drop), func(s record.Site) bool {
			return slices.Contains(v.sites, s) || slices.Contains(r.drop, s)
		}), r.drop...)
	default: // nothing was put there since, and nothing is found there
	}
	return o.progressedLocked(name, v, r) || news
}

// report is what an owner's part in a cluster has come to.
type report struct {
	Result

	drop    []record.Site
	givenUp bool
	stray   *record.Site
	kinds   []schema.GroupVersionKind
	again   bool
	refused bool       // a permit to change the cluster
	unknown bool       // nothing is known yet of what is desired
	look    *kindsLook // nil if it is not known of which kinds there is something
}

// isSuspended reports whether something is not as it is desired, since it is suspended.
func (r *report) isSuspended() bool {
	return slices.ContainsFunc(r.Objects, func(o ObjectResult) bool { return o.State == Suspended })
}

// was returns what was desired of an object last.
func (o *ownerState) was(key dependentKey) (fingerprint, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, ok := o.partLocked(key.cluster).applied[key]
	return f, ok
}

func (o *ownerState) remember(key dependentKey, f fingerprint) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.partLocked(key.cluster).applied[key] = f
}

func (o *ownerState) forgetObject(key dependentKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.partLocked(key.cluster).applied, key)
}

// keep drops what was applied in a cluster and is not wanted any more: it may have gone by itself.
func (o *ownerState) keep(name mcreconcile.ClusterName, wanted map[dependentKey]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partLocked(name)
	maps.DeleteFunc(p.applied, func(key dependentKey, _ fingerprint) bool { return !wanted[key] })
	maps.DeleteFunc(p.contests, func(key dependentKey, _ contest) bool { return !wanted[key] })
	for key := range wanted {
		delete(o.removals, key)
	}
	maps.DeleteFunc(p.unserved, func(kind schema.GroupKind, _ time.Time) bool {
		for key := range wanted {
			if key.kind == kind {
				return false
			}
		}
		return true
	})
	maps.DeleteFunc(p.hung, func(key dependentKey, _ bool) bool { return key.name.Name != "" && !wanted[key] })
}

// hungBefore reports whether a request about an object, or a kind, got no answer when it was last looked at.
func (o *ownerState) hungBefore(key dependentKey) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.partLocked(key.cluster).hung[key]
}

// noteHung notes whether a request about an object, or a kind, got no answer.
func (o *ownerState) noteHung(key dependentKey, hung bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.partLocked(key.cluster); hung {
		p.hung[key] = true
		if key.name.Name != "" && !slices.Contains(p.present.late, key.kind) {
			p.present.late = append(p.present.late, key.kind)
		}
	} else {
		delete(p.hung, key)
	}
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
	p.seq, p.since = 1, time.Now()
	switch before := o.plan; {
	case before == nil:
		o.recordLocked(o.readLocked(p.owner, keys))
	case before.ref.UID != p.ref.UID:
		o.recordLocked(o.readLocked(p.owner, keys))
		o.parts, o.progress, p.seq = map[mcreconcile.ClusterName]*part{}, nil, before.seq+1
		o.told, o.events, o.removals = map[topic]hash{}, nil, contests{} // they were about the other one
	default:
		p.seq = before.seq + 1
		if isOlder(p.owner, before.owner) {
			p.owner = before.owner // the cache does not have yet what was written last
		}
		if p.mode != before.mode {
			clear(o.removals) // an owner that goes does not wait for what came before
		}
	}
	before := o.progress
	o.plan, o.unplanned, o.progress = p, nil, p.rollout.next(before, p.revision)
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
