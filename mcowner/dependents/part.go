package dependents

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// part is an owner's part in one cluster.
type part struct {
	seq     uint64                    // of the plan that was last done
	done    bool                      // something was done since the program began
	asked   time.Time                 // since when it can be used and is asked for what was not done yet, zero if it is not
	away    bool                      // it cannot be used now
	runs    uint64                    // grows with each run
	running int                       // how many runs are on: what they know is not forgotten before they end
	result  Result                    // of that
	drop    []record.Site             // where nothing is left, to be taken from the record
	givenUp bool                      // something may be left in them
	stray   *record.Site              // dependents were seen there, and are not in the record
	kinds   []schema.GroupVersionKind // to be noted in the record
	again   bool                      // once the record is stored, there is more to do, whatever a run finds before that
	applied map[dependentKey]fingerprint
	// hung are objects about which a request got no answer when they were last looked at, and kinds, which have no name.
	hung map[dependentKey]bool
	// unserved are objects of kinds that should be served, by when it was seen first that they are not.
	unserved map[dependentKey]time.Time
	// denied are rights that the owner's user has missed, in one life of the cluster's session.
	denied   map[deniedIn]denial
	deniedTo any
	retries  int // since an object was last as it was thought to be
	awaits   int // how often in a row it was not known what is desired
	// contests are about objects that others have changed of late.
	contests contests
	present  kindsPresent
}

// isDone reports whether a plan was done.
func (p *part) isDone(by *plan, targeted bool) bool {
	return p.done && p.seq == by.seq && p.result.Targeted == targeted
}

// fingerprint is what was desired of an object, and what is there: while both are as they were, nothing is to be done.
type fingerprint struct {
	uid           types.UID
	desired, live hash
	version       string // in which it was last written, or found unchanged
}

// isSame reports whether both say the same of an object, in whatever resource version. In the same one, what is there is the same, whichever
// version of its kind it was read in.
func (f fingerprint) isSame(other fingerprint) bool {
	if f.version == other.version && f.version != "" {
		f.live = other.live
	}
	f.version = other.version
	return f == other
}

// isAfter reports whether an object was read from a cache that does not have yet what is known.
func (f fingerprint) isAfter(cached client.Object) bool {
	return f.uid == cached.GetUID() && isOlderVersion(cached.GetResourceVersion(), f.version)
}

// partNames returns the clusters of which something is known.
func (o *ownerState) partNames() []mcreconcile.ClusterName {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.parts))
}

func (o *ownerState) partLocked(name mcreconcile.ClusterName) *part {
	p, ok := o.parts[name]
	if !ok {
		p = &part{applied: map[dependentKey]fingerprint{}, hung: map[dependentKey]bool{}, contests: contests{}}
		o.parts[name] = p
	}
	return p
}

// view is what is known of the owner's part in one cluster at a moment.
type view struct {
	*plan

	targeted bool
	sites    []record.Site             // of the name, in which there may be dependents
	dropped  []record.Site             // in which nothing is left, but for what is stored
	noted    []schema.GroupVersionKind // kinds that there may be
	part     *part                     // of the run, nil if none was begun
}

// in returns what is to be done in a cluster. The answer is false if there is no plan, or the owner is gone.
func (o *ownerState) in(name mcreconcile.ClusterName) (view, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.inLocked(name)
}

// inDone is in, if the plan was done there.
func (o *ownerState) inDone(name mcreconcile.ClusterName) (view, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v, ok := o.inLocked(name)
	p := o.parts[name]
	return v, ok && p != nil && p.done && p.seq == v.seq
}

// begin is in, for a run that may put something there if it is a target: what an earlier one has found gone may not be for long.
func (o *ownerState) begin(name mcreconcile.ClusterName) (view, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v, ok := o.inLocked(name)
	if !ok {
		return v, false
	}
	p := o.partLocked(name)
	v.part, p.running = p, p.running+1
	if v.targeted {
		v.dropped, p.drop, p.runs = nil, nil, p.runs+1
		p.present.running++
		p.present.seen = nil
	}
	return v, true
}

// end ends a run that begin has begun.
func (o *ownerState) end(v view) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if v.part == nil {
		return
	}
	v.part.running--
	if v.targeted {
		v.part.present.running--
	}
}

func (o *ownerState) inLocked(name mcreconcile.ClusterName) (view, bool) {
	if o.plan == nil || o.over {
		return view{}, false
	}
	v := view{plan: o.plan, noted: o.record.Kinds, sites: o.named[name]}
	_, v.targeted = slices.BinarySearch(o.plan.targets, name)
	if p, ok := o.parts[name]; ok {
		v.dropped = p.drop
	}
	return v, true
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

// keep drops what was applied in a cluster and is not wanted any more: it may have gone by itself. Or it is there, and the cache in which nothing of
// its kind was read does not have it yet.
func (o *ownerState) keep(name mcreconcile.ClusterName, wanted map[dependentKey]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partLocked(name)
	maps.DeleteFunc(p.applied, func(key dependentKey, _ fingerprint) bool {
		if !wanted[key] {
			delete(p.present.empty, key.kind)
		}
		return !wanted[key]
	})
	maps.DeleteFunc(p.contests, func(key dependentKey, _ contest) bool { return !wanted[key] })
	for key := range wanted {
		delete(o.removals, key)
	}
	maps.DeleteFunc(p.unserved, func(key dependentKey, _ time.Time) bool { return !wanted[key] })
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
		if key.name.Name != "" {
			if p.present.late == nil {
				p.present.late = map[schema.GroupKind]time.Time{}
			}
			p.present.late[key.kind] = time.Now()
		}
	} else {
		delete(p.hung, key)
	}
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
	stopped bool       // something is suspended whose turn it was
	unknown bool       // nothing is known yet of what is desired
	look    *kindsLook // nil if it is not known of which kinds there is something
}

// isSuspended reports whether something is not as it is desired, since it is suspended.
func (r *Result) isSuspended() bool {
	return slices.ContainsFunc(r.Objects, func(o ObjectResult) bool { return o.State == Suspended })
}

// report notes what came of a cluster.
func (o *ownerState) report(name mcreconcile.ClusterName, v view, r report) (news bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partLocked(name)
	r.Since = since(p.result.Since, text(p.result.Err) != text(r.Err) || text(p.result.Unready) != text(r.Unready) || !p.done)
	r.Objects = aged(p.result.Objects, r.Objects)
	o.known.age(&r)
	o.noteNeededLocked(name, r.Err)
	news = !p.done || p.seq != v.seq || !sameResult(p.result, r.Result) ||
		len(r.drop) > 0 || r.stray != nil || r.again || len(o.events) > 0
	news = p.present.note(r.look) || news || o.kindsLater
	p.seq, p.done, p.asked, p.result, p.runs = v.seq, true, time.Time{}, r.Result, p.runs+1
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
