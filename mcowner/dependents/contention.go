package dependents

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// errContended says that others write whenever the controller does.
var errContended = errors.New("others change it whenever it is written; are there two controllers for it?")

// errDeleted says so of an object that is not there meanwhile.
var errDeleted = fmt.Errorf("it was deleted again: %w", errContended)

// errRestored says so of an object that was removed, and is there again.
var errRestored = fmt.Errorf("it was removed, and brought back again: %w", errContended)

// mostRemovals is how many removals are remembered of an owner. Beyond that, others may bring back what they like, and each is removed at once.
const mostRemovals = 1000

// contended is how many attempts in a row may find that an object was changed meanwhile, before that is told. As many times in a row
// it is changed back at once.
const contended = 5

// mostPause is the longest pause between attempts: what is wrong in another cluster is often put right there, and nobody tells.
// A contest is over once the object has stayed as desired for so long.
const mostPause = time.Minute

// pauseAfter returns the pause after so many attempts in a row.
func pauseAfter(attempts int) time.Duration {
	return min(100*time.Millisecond<<min(attempts-1, 10), mostPause)
}

// retried counts how often in a row objects of a cluster were not as they were thought to be. False ends the row.
func (o *ownerState) retried(name mcreconcile.ClusterName, again bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partLocked(name)
	if !again {
		p.retries = 0
	} else {
		p.retries++
	}
	return p.retries
}

// awaited counts how often in a row it was not known what is desired in a cluster. False ends the row.
func (o *ownerState) awaited(name mcreconcile.ClusterName, again bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partLocked(name)
	p.awaits++
	if !again {
		p.awaits = 0
	}
	return p.awaits
}

// contest is how others write against the controller about one object, without conflicts: each after the other.
type contest struct {
	corrections int       // in a row
	last        time.Time // when the last of them was
	lost        bool      // others have changed the object again
	removed     string    // the version in which it was removed, if that was the last correction
}

// left returns how long an object that others have changed again is left to them.
func (c contest) left(now time.Time) time.Duration {
	if c.corrections < contended || !c.lost {
		return 0
	}
	return max(0, pauseAfter(c.corrections)-now.Sub(c.last))
}

// contests are about objects that others have changed of late.
type contests map[dependentKey]contest

func (all contests) untilCorrection(key dependentKey, now time.Time) time.Duration {
	c, ok := all[key]
	switch {
	case !ok:
		return 0
	case !c.lost && now.Sub(c.last) >= mostPause: // it is another one
		delete(all, key)
		return 0
	}
	c.lost = true
	all[key] = c
	return c.left(now)
}

func (all contests) corrected(key dependentKey, now time.Time, removed string) {
	all[key] = contest{corrections: all[key].corrections + 1, last: now, removed: removed}
}

func (all contests) untilCalm(key dependentKey, now time.Time) time.Duration {
	c, ok := all[key]
	left := mostPause - now.Sub(c.last)
	switch {
	case !ok:
		return 0
	case left <= 0:
		delete(all, key)
		return 0
	}
	c.lost = false
	all[key] = c
	if c.corrections < contended {
		return 0
	}
	return left
}

// untilCorrection returns how long an object that others have changed is left to them, zero for not at all.
func (o *ownerState) untilCorrection(key dependentKey, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.partLocked(key.cluster).contests.untilCorrection(key, now)
}

// corrected notes that an object which others had changed was written.
func (o *ownerState) corrected(key dependentKey, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.partLocked(key.cluster).contests.corrected(key, now, "")
}

// untilCalm returns how long a contest about an object that is as desired goes on, zero if it is none, or over.
func (o *ownerState) untilCalm(key dependentKey, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.partLocked(key.cluster).contests.untilCalm(key, now)
}

// removal is one of an object in a version, which has the place of a desired one or is not desired.
type removal struct {
	dependentKey

	version   string
	isDesired bool
}

// removalsLocked returns those that a removal is one of.
func (o *ownerState) removalsLocked(r removal) contests {
	if r.isDesired {
		return o.partLocked(r.cluster).contests
	}
	return o.removals
}

// untilRemoval returns how long an object that others have brought back is left to them. It was not brought back if it is as it was removed: the
// cache is behind.
func (o *ownerState) untilRemoval(r removal, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.removalsLocked(r)
	if all[r.dependentKey].removed == r.version {
		return 0
	}
	return all.untilCorrection(r.dependentKey, now)
}

// removed notes that an object was removed.
func (o *ownerState) removed(r removal, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.removalsLocked(r)
	before, known := all[r.dependentKey]
	if before.removed == r.version || !known && !r.isDesired && len(all) >= mostRemovals {
		return
	}
	all.corrected(r.dependentKey, now, r.version)
}

// forgetRemovals drops what was removed and was not brought back, or is not there any more.
func (o *ownerState) forgetRemovals(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.removals, func(_ dependentKey, c contest) bool {
		since := now.Sub(c.last)
		return since >= mostPause && !c.lost || since >= 2*mostPause
	})
}

// untilGone returns for how long others may bring back what was removed from a cluster time and again, and is not there.
func (o *ownerState) untilGone(name mcreconcile.ClusterName, there map[dependentKey]bool, now time.Time) map[dependentKey]time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[dependentKey]time.Duration{}
	for key := range o.removals {
		if key.cluster != name || there[key] {
			continue
		}
		if left := o.removals.untilCalm(key, now); left > 0 {
			all[key] = left
		}
	}
	return all
}

// heldOff returns what the last run by a plan has found in a cluster, and how long what it has found there is left to others, zero if it is not.
func (o *ownerState) heldOff(name mcreconcile.ClusterName, seq uint64, now time.Time) (last Result, left time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partLocked(name)
	if !p.done || p.seq != seq || !isContended(p.result.Err) {
		return Result{}, 0
	}
	for key, c := range o.removals {
		if key.cluster == name {
			left = sooner(left, c.left(now))
		}
	}
	last = p.result
	last.Objects = slices.Clone(last.Objects) // others read those of the last report
	return last, left
}

// holdOff returns an error while an object is left to others that have changed it.
func (p *placement) holdOff(key dependentKey, object string) error {
	return p.contention(object, p.o.untilCorrection(key, time.Now()), errContended)
}

// calm returns an error while others may be about to change an object that is as desired, as they have done time and again.
func (p *placement) calm(key dependentKey, object string) error {
	return p.contention(object, p.o.untilCalm(key, time.Now()), errContended)
}

// calmBut returns an error while others may be about to bring back what was removed, as they have done time and again. It is about what is not
// there.
func (p *placement) calmBut(there []dependent) error {
	keys := make(map[dependentKey]bool, len(there))
	for _, d := range there {
		keys[p.keyOf(d.Kind, d.obj)] = true
	}
	left := p.o.untilGone(p.at.Name(), keys, time.Now())
	errs := make([]error, 0, len(left))
	for _, key := range slices.SortedFunc(maps.Keys(left), compareKeys) {
		object := key.kind.Kind + " " + strings.TrimPrefix(key.name.String(), "/")
		errs = append(errs, p.contention(object, left[key], errRestored))
	}
	return together(errs...)
}

func compareKeys(a, b dependentKey) int {
	return cmp.Or(strings.Compare(a.kind.String(), b.kind.String()), strings.Compare(a.name.String(), b.name.String()))
}

// contention returns the error of a contest that goes on, and sees to it that the object is looked at when that may change.
func (p *placement) contention(object string, left time.Duration, why error) error {
	if left == 0 {
		return nil
	}
	if p.pause == 0 || left < p.pause {
		p.pause = left
	}
	return fmt.Errorf("%s of %s: %w", object, p.at, why)
}

// isContended reports whether an error is only about objects that others change back.
func isContended(err error) bool {
	return err != nil && first(each(err), func(one error) bool { return !errors.Is(one, errContended) }) == nil
}

// unlessContended returns an error unless it is only about desired objects that are there, and that others change back, or about others that may
// not be removed. They hold up nothing else.
func unlessContended(err error) error {
	holdsUp := func(one error) bool {
		isMissing := errors.Is(one, errDeleted) || errors.Is(one, errRestored) || isOutdated(one)
		return !errors.Is(one, errDenied) && (!errors.Is(one, errContended) || isMissing)
	}
	if first(each(err), holdsUp) == nil {
		return nil
	}
	return err
}
