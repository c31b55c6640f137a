package dependents

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/rollout"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Rollout says how what an owner desires is brought to its clusters. The zero value changes all at once.
//
// A cluster is being changed from its first write until all that is desired there is applied and ready, see [WaveAnnotation]. One
// that waits for others shows [ErrWaiting]. What somebody else has changed is changed back without waiting, and so is what is
// removed as the cluster is no target any more, or the owner goes.
//
// Where one may have to wait, clusters are looked at after a restart before any is changed. Those that are as desired and not ready count as
// being changed, and those are next in which the most objects are as desired. One with dependents that no provider has reported is waited for,
// up to a minute. What others have deleted before that waits as what is new does.
type Rollout struct {
	// MaxParallel is how many clusters of one owner are changed at once: a number, or a percentage of its targets, rounded up.
	// One that cannot be used meanwhile counts until it can, is no target any more, or leaves the fleet well. Default: no limit.
	MaxParallel intstr.IntOrString
	// HaltAfter is after how many failed clusters no further one is changed until the owner is changed, but for its status. A
	// cluster that is being changed has failed if its API server refuses what is desired, Desired gives an error, what was applied says
	// that it has failed, or the cluster cannot be used any more; not if something may not be removed that is not desired, Desired needs
	// another cluster that cannot be used, or the cluster leaves the fleet well. One that has failed does not count for MaxParallel, and is
	// tried again. That it has failed is noted on the owner, for the time after a restart, until all targets are as desired and ready, and
	// so is which ones are still being changed. Default: never.
	HaltAfter int
	// ProgressDeadline is after how long a target counts as stuck that is pending, waits or has something that is not ready, while
	// nothing of that changes, see Result.Stuck. One whose turn has not come is not while another that is being changed waits for something, and
	// one that is told of a halt never is. Status is called then. A restart begins anew, but for what Slices say. Default: never.
	ProgressDeadline time.Duration
}

// ErrHalted says that a cluster has to wait since others have failed, see [Rollout.HaltAfter]. It comes with [ErrWaiting].
var ErrHalted = rollout.ErrHalted

func (r Rollout) validate() error {
	n, err := intstr.GetScaledValueFromIntOrPercent(&r.MaxParallel, 100, true)
	switch {
	case err != nil:
		return fmt.Errorf("Rollout.MaxParallel is %q: %w", r.MaxParallel.String(), err)
	case n < 0 || r.HaltAfter < 0 || r.ProgressDeadline < 0:
		return errors.New("the fields of Rollout must not be negative")
	default:
		return nil
	}
}

// limits reports whether it matters how far clusters are: they may have to wait for others, or are told to be stuck.
func (r Rollout) limits() bool { return r != Rollout{} }

// next returns the progress of an owner that asks for something, nil if nothing is limited. Before is nil if there was none.
func (r Rollout) next(before *rollout.Progress, revision hash) *rollout.Progress {
	policy := rollout.Policy{MaxParallel: r.MaxParallel, HaltAfter: r.HaltAfter}
	switch {
	case !r.limits():
		return nil
	case before == nil:
		return rollout.New(policy, revision.String())
	default:
		before.Next(policy, revision.String())
		return before
	}
}

// permit lets a cluster be changed. The error says for what it must wait.
func (p *placement) permit() error {
	p.o.mu.Lock()
	defer p.o.mu.Unlock()
	if p.o.progress == nil {
		return nil
	}
	if err := p.o.progress.Ask(p.at.Name(), func() int { return p.o.rolledOutLocked(p.asked.targets) }); err != nil {
		p.refused = true
		return fmt.Errorf("%w: %w", ErrWaiting, err)
	}
	return nil
}

// rolledOutLocked returns to how many clusters it is rolled out. One that may have dependents, and was not looked at since the program began, may
// be a target that is not reported yet.
func (o *ownerState) rolledOutLocked(targets []mcreconcile.ClusterName) int {
	n := len(targets)
	for name := range o.named {
		if _, targeted := slices.BinarySearch(targets, name); !targeted && !o.progress.HasLookedAt(name) {
			n++
		}
	}
	return n
}

// isRolledOut reports whether this was applied before: if it is not there now, somebody else has changed that.
func (p *placement) isRolledOut(key dependentKey, desired hash) bool {
	before, known := p.o.was(key)
	return known && before.desired == desired
}

// progressedLocked notes what came of a cluster, and returns whether it counts as failed now, which is to be noted.
func (o *ownerState) progressedLocked(name mcreconcile.ClusterName, v view, r report) (failed bool) {
	if o.progress == nil {
		return false
	}
	before := o.progress.HasFailed(name)
	switch {
	case !v.targeted && v.mode == serving: // it may be one that its account does not know yet, and else that lets it go
	case v.mode != serving, errors.Is(r.Err, ErrLeaving) && !before: // what has failed before it leaves counts on
		o.progress.Left(name)
	case remote.IsAwayItself(r.Err, name):
		o.awayLocked(name, r.Err)
	default:
		o.progress.Note(name, outcomeOf(r, o.plan != nil && o.plan.revision == v.revision))
	}
	return !before && o.progress.HasFailed(name)
}

// awayLocked notes that a cluster cannot be used now, and why. It has not failed where that is over soon.
func (o *ownerState) awayLocked(name mcreconcile.ClusterName, why error) {
	if isAwayForNow(why) {
		o.progress.Absent(name)
	} else {
		o.progress.Away(name)
	}
}

// isAwayForNow reports whether an error says that a cluster cannot be used for a moment, and nothing has failed so far: it is about to be
// connected, as when another replica has handed it over, or was just connected anew, or it is not proved now which replica works on it.
func isAwayForNow(err error) bool {
	state, ok := errors.AsType[*fleet.StateError](err)
	if !ok || isBeingConnected(err) {
		return ok || errors.Is(err, fleet.ErrDisengaged) // its state tells if it cannot be used after that
	}
	if errors.Is(err, remote.ErrNoVisit) {
		return false // its description is refused, or people keep it drained, which its state says of this replica's own members alone
	}
	return state.Status.State == fleet.Suspended || errors.Is(state, fleet.ErrNotOwned)
}

// noteFailures has the record say where the rollout has failed. Once all targets are as desired and ready, that does not count any more. One that has
// failed may be no target yet: its provider has not reported it.
func (a *accounting) noteFailures() {
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	a.record.Failures = nil
	if a.o.progress == nil {
		return
	}
	failures := a.o.progress.Failures()
	if failures == nil {
		return
	}
	if !slices.ContainsFunc(slices.Concat(a.plan.targets, failures.Clusters), func(name mcreconcile.ClusterName) bool {
		_, targeted := slices.BinarySearch(a.plan.targets, name)
		p := a.o.parts[name]
		return !targeted || p == nil || !p.isDone(a.plan, targeted) || unlessContended(p.result.Err) != nil || p.result.Unready != nil ||
			p.result.isSuspended()
	}) {
		a.o.progress.ForgiveAll()
	}
	a.record.Failures = a.o.progress.Failures()
}

// forgiveReplaced notes that a name leads to another cluster than before, which has not failed.
func (o *ownerState) forgiveReplaced(name mcreconcile.ClusterName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.progress != nil {
		o.progress.Forgive(name)
	}
}

// outcomeOf returns what a look at a cluster has come to. Failures count if the owner says now what it said then.
func outcomeOf(r report, current bool) rollout.Outcome {
	err := unlessContended(r.Err)
	switch {
	case err == nil && r.Unready == nil:
		return rollout.Complete
	case errors.Is(err, ErrPending):
		return rollout.NotLooked
	case r.unknown:
		return rollout.Unread // what is there was not compared with anything
	case r.Unready != nil && !r.refused && !r.stopped && (err == nil || isUnderway(err)): // else it waits for what was not begun
		if current && errors.Is(r.Unready, errStalled) {
			return rollout.Stalled
		}
		return rollout.NotReady
	case current && isFailure(err):
		return rollout.Failed
	case isUnread(err):
		return rollout.Unread
	default:
		return rollout.Other
	}
}

// advance gives permits to clusters that wait for one, and lets them be worked on. Until all clusters that can be used were looked
// at, or are found to be away, it is not known which are being changed. Of a member that another replica works on, a visit alone tells
// whether it can be used. One that is not reported yet may become so.
func (c *engine) advance(o *ownerState) {
	waits, unseen, targets := o.waits()
	isAway := func(name mcreconcile.ClusterName) bool {
		why := c.access.WhyNot(name)
		return why != nil && !isBeingConnected(why) && c.reportedIn(name) == 0
	}
	isUsable := func(name mcreconcile.ClusterName) bool {
		why := c.access.WhyNot(name)
		return (why == nil || isBeingConnected(why)) && c.access.WhyPaused(name) == nil && (!c.access.IsElsewhere(name) || !o.isAbsent(name)) &&
			!c.isLeaving(name) && !isHeldUp(name, o.errorIn(name), isAway)
	}
	if !waits || c.unreported(o) > 0 || slices.ContainsFunc(unseen, isUsable) { // in this order, as it may be reported now
		return
	}
	for _, name := range o.grant(targets) {
		c.works.add(c.placing(o.req, name))
	}
}

// waits reports whether a cluster waits for a permit, and which targets were not looked at, of how many.
func (o *ownerState) waits() (waits bool, unseen []mcreconcile.ClusterName, targets int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.progress == nil || o.plan == nil || !o.progress.HasWaiting() {
		return false, nil, 0
	}
	for _, name := range o.plan.targets {
		if !o.progress.HasLookedAt(name) {
			unseen = append(unseen, name)
		}
	}
	return true, unseen, len(o.plan.targets)
}

// isAbsent reports whether a cluster could not be used when it was last to be looked at.
func (o *ownerState) isAbsent(name mcreconcile.ClusterName) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.progress != nil && o.progress.IsAbsent(name)
}

// isHeldUp reports whether a cluster is not looked at before others can be used that Desired needs, as the error of the last look says. If one is
// gone, nobody looks again.
func isHeldUp(name mcreconcile.ClusterName, last error, isAway func(mcreconcile.ClusterName) bool) bool {
	return !remote.IsAwayItself(last, name) && (errors.Is(last, fleet.ErrGone) || slices.ContainsFunc(remote.NamedAway(last), isAway))
}

// errorIn returns the error of the last look at a cluster.
func (o *ownerState) errorIn(name mcreconcile.ClusterName) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.parts[name]; p != nil {
		return p.result.Err
	}
	return nil
}

// noteNeededLocked notes which other clusters are needed for what is desired in one, and were away, as the error of the last look says.
func (o *ownerState) noteNeededLocked(in mcreconcile.ClusterName, last error) {
	needed := slices.DeleteFunc(remote.NamedAway(last), func(name mcreconcile.ClusterName) bool { return name == in })
	switch {
	case len(needed) == 0:
		delete(o.needed, in)
	case o.needed == nil:
		o.needed = map[mcreconcile.ClusterName][]mcreconcile.ClusterName{in: needed}
	default:
		o.needed[in] = needed
	}
}

// needing returns the clusters for which another one is needed, and was away.
func (o *ownerState) needing(name mcreconcile.ClusterName) (names []mcreconcile.ClusterName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for in, needed := range o.needed {
		if slices.Contains(needed, name) {
			names = append(names, in)
		}
	}
	return names
}

func (o *ownerState) grant(targets int) []mcreconcile.ClusterName {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.progress == nil {
		return nil // nothing is limited any more
	}
	o.progress.Order(o.asDesiredLocked)
	granted := o.progress.Grant(targets)
	if len(granted) > 0 {
		o.turned = time.Now()
	}
	return granted
}

// asDesiredLocked returns how many objects were as desired in a cluster when it was looked at last.
func (o *ownerState) asDesiredLocked(in mcreconcile.ClusterName) (n int) {
	if p := o.parts[in]; p != nil {
		for _, r := range p.result.Objects {
			if r.State == Unchanged {
				n++
			}
		}
	}
	return n
}

// unreported returns how long clusters may take to be reported in which there may be dependents, or that are needed for what is desired in others.
// It is zero once all are.
func (c *engine) unreported(o *ownerState) (most time.Duration) {
	for _, name := range o.unseenSites() {
		most = max(most, c.reportedIn(name))
	}
	return most
}

// unseenSites returns the clusters in which there may be dependents, and which were not looked at, and those that are needed for that, if clusters
// may have to wait for others.
func (o *ownerState) unseenSites() (names []mcreconcile.ClusterName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.progress == nil {
		return nil
	}
	for name := range o.named {
		if !o.progress.HasLookedAt(name) {
			names = append(names, name)
		}
	}
	for in, needed := range o.needed {
		if !o.progress.HasLookedAt(in) {
			names = append(names, needed...)
		}
	}
	return names
}

// takeBack takes permits from clusters that cannot be used, or are paused, and forgets those that are no targets any more: they have not failed
// either. One that its provider may not have reported yet may be a target: it returns when to look again then, and zero otherwise.
func (c *engine) takeBack(o *ownerState) (again time.Duration) {
	again = c.unreported(o)
	names, others := o.involved()
	away := map[mcreconcile.ClusterName]error{}
	for _, name := range names {
		if why := c.access.WhyNot(name); why != nil {
			away[name] = why
		}
	}
	paused := slices.DeleteFunc(slices.Clone(names), func(name mcreconcile.ClusterName) bool { return c.access.WhyPaused(name) == nil })
	late := map[mcreconcile.ClusterName]time.Duration{}
	for _, name := range union(names, others) {
		late[name] = c.reportedIn(name)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.progress == nil {
		return 0
	}
	for name, why := range away {
		if late[name] > 0 { // a former run of the program has begun there, and it keeps its place
			again = sooner(again, late[name])
		} else {
			o.awayLocked(name, why)
		}
	}
	for _, name := range paused {
		o.progress.Pass(name)
	}
	for _, name := range others {
		switch {
		case o.isServedLocked(name): // since now
		case o.hasOldTargetsLocked() && !remote.IsMissing(away[name]): // the account of what has changed meanwhile finds out
		case late[name] > 0 && o.plan.mode == serving: // it may be one once it is reported
		default:
			o.progress.Left(name)
		}
	}
	return again
}

// isServedLocked reports whether a cluster is a target of an owner that is not let go.
func (o *ownerState) isServedLocked(name mcreconcile.ClusterName) bool {
	_, targeted := slices.BinarySearch(o.plan.targets, name)
	return targeted && o.plan.mode == serving
}

// reportedIn returns how long a cluster that is not in the fleet may take to be reported, as the program has just begun. It is zero for all others.
func (c *engine) reportedIn(name mcreconcile.ClusterName) time.Duration {
	err := c.access.WhyNot(name)
	if !remote.IsMissing(err) {
		return 0
	}
	return max(0, remote.ReportedLate(err)-c.ledger.missingFor(record.Site{Name: name}))
}

// involved returns the clusters that have a permit, wait for one, or have failed, and all of which something is known although they are no targets.
func (o *ownerState) involved() (names, others []mcreconcile.ClusterName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.progress == nil {
		return nil, nil
	}
	names = o.progress.Involved()
	others = slices.DeleteFunc(append(o.progress.LookedAt(), names...), o.isServedLocked)
	return names, others
}

// revision returns a hash of what an owner says, but for its status and what controllers have noted on it.
func (c *engine) revision(owner client.Object, rollout Rollout) (hash, error) {
	if !rollout.limits() {
		return hash{}, nil
	}
	said := owner.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	record.Strip(said)                             // of all controllers: each notes what comes of its own
	if annotations := said.GetAnnotations(); len(annotations) == 0 {
		said.SetAnnotations(nil)
	}
	said.SetFinalizers(nil)
	h, err := liveHash(said)
	return hashOf(append(h[:], said.GetUID()...)), err // a copy of the owner may be of the same generation
}
